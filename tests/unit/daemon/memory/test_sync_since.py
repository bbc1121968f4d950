"""Since when syncs have ended as the last one did, also over a restart. Real git."""

from pathlib import Path

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.core.sync_state import SyncState, dated, state_from_json, state_to_json
from support.git_host_server import RunningHost
from support.memory_machines import AGENT, Machine, note, running_machine


async def test_a_fault_that_lasts_keeps_its_beginning(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        hub.faults = [403] * 100
        one.commit("fact.md", note("blue"))
        first, second = await one.end_turn(), await one.end_turn()
    assert (first.outcome, first.since) == (SyncOutcome.PUSH_FAILED, first.at)
    assert second.since == first.at
    assert (second.at or 0) > (first.at or 0)
    again = Machine(tmp_path / "a", hub)
    try:
        assert again.memory.status(AGENT).since == first.at
        third = await again.end_turn()
        assert (third.outcome, third.since) == (SyncOutcome.PUSH_FAILED, first.at)
        hub.faults = []
        well = await again.end_turn()
        assert (well.outcome, well.since) == (SyncOutcome.PUSHED, well.at)
    finally:
        await again.memory.aclose()


def test_a_state_of_an_earlier_version_has_no_beginning_and_gets_one() -> None:
    text = state_to_json(SyncState(SyncOutcome.INVALID, at_s=5.0)).replace(', "since_s": null', "")
    assert "since_s" not in text
    old = state_from_json(text)
    assert (old.outcome, old.since_s) == (SyncOutcome.INVALID, None)
    assert dated(old, SyncState(SyncOutcome.INVALID, at_s=9.0)).since_s == 9.0
