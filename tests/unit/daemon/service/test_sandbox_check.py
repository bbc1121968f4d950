"""What the daemon does with the report of its probe: the real one, with a protection taken away."""

import asyncio
from pathlib import Path

import pytest

from lodger_daemon.paths import Paths
from lodger_daemon.service.box_requests import BoxRequests
from lodger_daemon.service.sandbox_check import LOOK_AGAIN_AFTER_S, LOOK_AGAIN_UNTIL_IT_HOLDS_S, SandboxCheck
from lodger_daemon.service.settings import Settings
from lodger_sandbox.contract import BoxUser, ProbeReport, SandboxUnavailable
from lodger_sandbox.probe import probe
from support.real_boxes import box_user_for_tests
from support.store_rows import HandClock


def requests(folder: Path) -> BoxRequests:
    box_user_for_tests()
    return BoxRequests(Paths(folder / "config", folder / "state", folder / "work", folder), Settings(), {})


async def test_no_box_is_started_while_the_sandbox_leaks(tmp_path: Path) -> None:
    open_network = True

    def look(user: BoxUser) -> ProbeReport:
        def without_its_network(options: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(word for word in options if word != "--unshare-net")

        return probe(user, rewrite=without_its_network if open_network else None)

    clock = HandClock()
    check = SandboxCheck(requests(tmp_path), clock, look)
    assert check.facts()["holds"] is None
    assert check.unless_it_leaks(str, 1) == "1", "nothing is known yet, and the box has walls of its own"
    report = await check.look()
    assert not report.holds
    with pytest.raises(SandboxUnavailable, match=r"does not hold .* so no box is started"):
        check.unless_it_leaks(str, 1)
    assert str(check.facts()["summary"]).startswith("does not hold, so no box is started: ")
    assert check.facts()["at"] == clock.wall()
    open_network = False
    assert (await check.look()).holds
    assert check.unless_it_leaks(str, 1) == "1"


async def test_what_does_not_hold_is_looked_at_again_soon_and_a_wall_that_holds_once_an_hour(tmp_path: Path) -> None:
    reports = [
        ProbeReport(False, "bwrap", "1", ("leaks",)),
        ProbeReport(False, "none", "", ("bubblewrap is not installed",)),
        ProbeReport(True, "bwrap", "1"),
    ]
    waits: list[float] = []

    class Counting(HandClock):
        async def sleep(self, delay_s: float) -> None:
            waits.append(delay_s)
            if not reports:
                raise asyncio.CancelledError

    check = SandboxCheck(requests(tmp_path), Counting(), lambda user: reports.pop(0))
    with pytest.raises(asyncio.CancelledError):
        await check.keep_looking()
    assert waits == [LOOK_AGAIN_UNTIL_IT_HOLDS_S, LOOK_AGAIN_UNTIL_IT_HOLDS_S, LOOK_AGAIN_AFTER_S]


async def test_a_missing_box_is_told_as_that_and_refuses_by_itself(tmp_path: Path) -> None:
    missing = ProbeReport(False, "none", "", ("bubblewrap is not installed",))
    check = SandboxCheck(requests(tmp_path), HandClock(), lambda user: missing)
    await check.look()
    assert check.facts()["summary"] == "no box can be started, so tools refuse: bubblewrap is not installed"
    assert check.unless_it_leaks(str, 1) == "1"
