"""Shared memories in real boxes, as the daemon makes them: what is attached is there at the next command, and what an
agent may only read it cannot write, whatever it tries."""

from pathlib import Path

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import AgentCard, ImportReport
from lodger_daemon.randomness import SystemRng
from lodger_tools.box.contract import BoxCall, BoxKey, RunCommand
from support.boxed_daemon import ADA, BoxedDaemon, boxed_daemon
from support.hub_rig import Hub, running_hub, until
from support.real_boxes import workspace_for_tests
from support.shared_machines import NAME, SharingMachine, head_of, share

FILE = "---\\nname: x\\ndescription: about x\\n---\\n\\nhello\\n"
COMMIT = f"printf -- '{FILE}' > x.md && git add -A && git commit -q -m x"


async def test_what_is_attached_shows_in_the_next_command_and_runs_on_in_the_old_box(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        async with running_hub(tmp_path / "hub") as hub, boxed_daemon(tmp_path / "ada", workspace, hub) as ada:
            assert (await ada.runs(f"ls {ada.place}")).exit_code == 2
            call_key = SystemRng().uuid()
            background = BoxCall(call_key, RunCommand("sleep 300", None), ada.box.workspace)
            assert await ada.boxes.begin(ada.box, background) is None
            await share(hub, {ADA: "write"})
            await ada.looks()
            done = await ada.runs(f"set -e; cd {ada.place}; {COMMIT}; cat MEMORY.md")
            assert done.exit_code == 0, done.text
            assert "# team" in done.text
            report = await ada.brings_in()
            assert (report.moved, "Shared memory team: 1 new commit published" in report.text) == (True, True)
            await ada.ends_turn()
            assert head_of(hub) == ada.memory.repository(ADA, NAME).room.published.head()
            # The command in the background is where it was: two boxes of one key, of which one begins nothing more.
            of_key = [status for status in ada.boxes.statuses() if status.key == ada.box]
            assert sorted(status.background for status in of_key) == [0, 1]
            await ada.boxes.cancel(ada.box, call_key)


async def test_what_an_agent_may_only_read_it_cannot_write(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        async with running_hub(tmp_path / "hub") as hub, boxed_daemon(tmp_path / "ada", workspace, hub) as ada:
            await share(hub, {ADA: "write"})
            await ada.looks()
            assert (await ada.runs(f"cd {ada.place} && {COMMIT}")).exit_code == 0
            await ada.brings_in()
            await ada.ends_turn()
            await share(hub, {ADA: "read"})
            await ada.looks()
            done = await ada.runs(f"cat {ada.place}/x.md")
            assert (done.exit_code, "hello" in done.text) == (0, True)
            for attempt in (
                f"touch {ada.place}/y",
                f"cd {ada.place} && git commit -q --allow-empty -m no",
                f"rm -f {ada.place}/x.md",
                f"chmod 777 {ada.place}",
                f"mount -o remount,rw {ada.place}",
                f"mv {ada.place} /tmp/away",
                f"ln {ada.place}/x.md /tmp/x && echo evil >> /tmp/x",
            ):
                assert (await ada.runs(attempt)).exit_code != 0, attempt
            assert await ada.brings_in() == ImportReport(False, *_same(ada))
            await ada.ends_turn()
            before = head_of(hub)
            assert ada.memory.repository(ADA, NAME).room.published.head() == before
            # What others write comes in all the same, through a box of its own.
            await _another_writes(hub, tmp_path)
            await ada.hears(hub)
            assert (await ada.runs(f"cat {ada.place}/other.md")).exit_code == 0
            assert head_of(hub) == ada.memory.repository(ADA, NAME).room.published.head() != before


async def test_no_agent_sees_what_another_shares(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        async with running_hub(tmp_path / "hub") as hub, boxed_daemon(tmp_path / "ada", workspace, hub) as ada:
            await share(hub, {ADA: "write"})
            await ada.looks()
            await until(lambda: bool(ada.memory.shared and ada.memory.shared.heads(ADA)[NAME]), "attached")
            ben = BoxKey("agent-ben", ada.box.workspace)
            await ada.memory.prepare(AgentId("agent-ben"), AgentCard("Ben"))
            call = BoxCall(SystemRng().uuid(), RunCommand(f"ls {ada.place}; ls ~", 60.0), ben.workspace)
            done = await ada.boxes.run(ben, call)
            assert "shared-memory" not in done.text.replace(f"'{ada.place}'", "")


def _same(ada: BoxedDaemon) -> tuple[str | None, str, str | None]:
    return ada.memory.status(ADA).head, "", ada.memory.standing(ADA)


async def _another_writes(hub: Hub, folder: Path) -> None:
    other = SharingMachine(folder / "other", hub, "agent-other")
    try:
        await share(hub, {"agent-other": "write"})
        await other.memory.prepare(other.agent, AgentCard("Other"))
        await other.look()
        other.commit("other.md", "---\nname: other\ndescription: of another\n---\n\nnew\n")
        await other.end_turn()
    finally:
        await other.memory.aclose()
