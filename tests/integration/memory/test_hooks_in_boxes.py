"""Hooks of a checkout in real boxes: there from the first commit on, whether the memory was founded or cloned; advice
for whoever commits, and nothing that the daemon relies on."""

from pathlib import Path

from lodger_daemon.memory.contract import SyncOutcome
from support.boxed_daemon import ADA, BoxedDaemon, boxed_daemon
from support.hub_rig import running_hub
from support.real_boxes import workspace_for_tests
from support.shared_machines import share

GOOD = "---\\nname: x\\ndescription: about x\\n---\\n\\nhello\\n"


async def test_a_founded_and_a_cloned_memory_have_them(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        async with running_hub(tmp_path / "hub") as hub, boxed_daemon(tmp_path / "one", workspace, hub) as founder:
            await _gives_advice(founder, founder.memory_inside, "one.md")
            founder.memory.turn_ended(ADA, founder.box)
            assert (await founder.memory.settled(ADA, 60)).outcome is SyncOutcome.PUSHED
            async with boxed_daemon(tmp_path / "two", workspace, hub) as cloned:
                assert cloned.memory.status(ADA).head == founder.memory.status(ADA).head
                await _gives_advice(cloned, cloned.memory_inside, "two.md")


async def _gives_advice(ada: BoxedDaemon, place: str, name: str) -> None:
    refused = await ada.runs(f"cd {place} && echo 'no front matter' > {name} && git add -A && git commit -q -m bad")
    assert refused.exit_code != 0
    assert f"memory: {name}: the file must begin with front matter" in refused.text
    # Who passes the hook by has a commit, which is not published.
    passed = await ada.runs(f"cd {place} && git commit -q --no-verify -m bad")
    assert passed.exit_code == 0, passed.text
    before = ada.memory.status(ADA).head
    report = await ada.brings_in()
    assert (report.moved, name in report.text, ada.memory.status(ADA).head) == (False, True, before)
    mended = await ada.runs(f"cd {place} && printf -- '{GOOD}' > {name} && git commit -q -a --amend -m good")
    assert mended.exit_code == 0, mended.text
    assert (await ada.brings_in()).moved
    pushed = await ada.runs(f"cd {place} && git push")
    assert pushed.exit_code != 0
    assert "a commit on main is published when the command that made it returns" in pushed.text


async def test_the_hook_of_a_shared_memory_knows_its_rules(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        async with running_hub(tmp_path / "hub") as hub, boxed_daemon(tmp_path / "ada", workspace, hub) as ada:
            await share(hub, {ADA: "write"})
            await ada.looks()
            card = "printf 'name = \"Ada\"\\n' > agent.toml && git add -A && git commit -q -m card"
            refused = await ada.runs(f"cd {ada.place} && {card}")
            assert refused.exit_code != 0
            assert "memory: agent.toml: a shared memory describes no agent" in refused.text
            # In the agent's own it is what belongs there.
            assert (await ada.runs(f"cd {ada.memory_inside} && {card}")).exit_code == 0
