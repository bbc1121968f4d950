"""Calls that outlive the waiting for them, with the real runner as a plain process."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, OutputPart, RunCommand, Session, StillRuns
from lodger_tools.box.manager import BoxManager
from support.plain_runner import PlainStarter, plain_request

LIMIT_S = 20.0


class Rig:
    """A workspace with a pipe in it that holds a command until the test lets it go on."""

    def __init__(self, folder: Path) -> None:
        self.boxes = folder / "boxes"
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.starter = PlainStarter()
        self.key = BoxKey("agent-1", str(self.workspace))
        self.managers: list[BoxManager] = []
        os.mkfifo(self.workspace / "go")

    def daemon(self, **options: float) -> BoxManager:
        manager = BoxManager(self.boxes, plain_request, start_detached=self.starter, **options)  # type: ignore[arg-type]
        self.managers.append(manager)
        return manager

    def call(self, command: str, call_key: str = "k", timeout_s: float | None = None) -> BoxCall:
        return BoxCall(call_key, RunCommand(command, timeout_s), str(self.workspace))

    async def let_go(self) -> None:
        """Returns once a command that reads the pipe has what it waited for."""
        await asyncio.to_thread((self.workspace / "go").write_text, "on\n")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    for manager in rig.managers:
        await manager.aclose()
    rig.starter.end_all()


async def until_written(manager: BoxManager, rig: Rig, text: bytes, call_key: str = "k") -> OutputPart:
    async with asyncio.timeout(LIMIT_S):
        while True:
            part = await manager.read(rig.key, call_key, 0, 1000)
            if part is not None and text in part.data:
                return part


async def test_a_call_that_takes_longer_is_left_to_run_and_its_end_can_be_had(rig: Rig) -> None:
    manager = rig.daemon()
    shown: list[bytes] = []
    command = "echo begun; read line <go; echo ended; exit 3"
    still = await manager.run_a_while(rig.key, rig.call(command), shown.append, 1.5)
    assert still == StillRuns(b"begun\n", 6) and shown == [b"begun\n"]
    assert [(box.running_calls, box.background, box.idle_s) for box in manager.statuses()] == [(0, 1, 0.0)]
    watching = asyncio.create_task(manager.watch(rig.key, "k"))
    await rig.let_go()
    assert await asyncio.wait_for(watching, LIMIT_S) == BoxOutcome("error", "begun\nended\n", exit_code=3)
    assert shown == [b"begun\n"], "nobody is told of it any more"
    assert manager.statuses()[0].background == 0


async def test_a_call_that_is_quick_enough_just_ends(rig: Rig) -> None:
    manager = rig.daemon()
    assert await manager.run_a_while(rig.key, rig.call("echo quick"), None, 30) == BoxOutcome("success", "quick\n", 0)
    assert manager.statuses()[0].background == 0


async def test_a_call_begun_in_the_background_returns_as_soon_as_it_runs(rig: Rig) -> None:
    manager = rig.daemon()
    assert await manager.begin(rig.key, rig.call("echo begun; read line <go; echo ended")) is None
    assert await manager.begin(rig.key, rig.call("exit 9")) is None, "a known key is not run again"
    part = await until_written(manager, rig, b"begun\n")
    assert part == OutputPart(0, b"begun\n", 6, ended=False)
    await rig.let_go()
    assert await manager.watch(rig.key, "k") == BoxOutcome("success", "begun\nended\n", exit_code=0)
    assert await manager.read(rig.key, "k", 6, 100) == OutputPart(6, b"ended\n", 12, ended=True)
    assert await manager.read(rig.key, "k", -3, 100) == OutputPart(9, b"ed\n", 12, ended=True)
    assert await manager.read(rig.key, "k", 99, 100) == OutputPart(12, b"", 12, ended=True)
    assert await manager.read(rig.key, "nobody", 0, 100) is None


async def test_a_call_that_cannot_begin_says_so_at_once(rig: Rig) -> None:
    outcome = await rig.daemon().begin(rig.key, BoxCall("k", RunCommand("true", None), "/no/such/folder"))
    assert outcome is not None and outcome.status == "error" and "/no/such/folder" in outcome.text


async def test_it_survives_daemons_and_is_watched_by_the_last_one(rig: Rig) -> None:
    assert await rig.daemon().begin(rig.key, rig.call("echo begun; read line <go; echo ended; exit 4")) is None
    for _ in range(3):
        await rig.managers[-1].aclose()
        rig.daemon()
    manager = rig.managers[-1]
    watching = asyncio.create_task(manager.watch(rig.key, "k"))
    await until_written(manager, rig, b"begun\n")
    assert manager.statuses()[0].background == 1
    await rig.let_go()
    assert await asyncio.wait_for(watching, LIMIT_S) == BoxOutcome("error", "begun\nended\n", exit_code=4)
    assert len(rig.starter.started) == 1


async def test_whoever_stops_watching_stops_nothing(rig: Rig) -> None:
    manager = rig.daemon()
    await manager.begin(rig.key, rig.call("read line <go; echo ended"))
    watching = asyncio.create_task(manager.watch(rig.key, "k"))
    await manager.read(rig.key, "k", 0, 1)
    watching.cancel()
    await rig.let_go()
    assert await manager.watch(rig.key, "k") == BoxOutcome("success", "ended\n", exit_code=0)


async def test_a_cancelled_call_that_will_not_go_is_killed(rig: Rig) -> None:
    manager = rig.daemon()
    await manager.begin(rig.key, rig.call("trap '' TERM; echo begun; while :; do read line <go; done"))
    await until_written(manager, rig, b"begun\n")
    await manager.cancel(rig.key, "k")
    outcome = await asyncio.wait_for(manager.watch(rig.key, "k"), LIMIT_S)
    assert outcome is not None and (outcome.cancelled, outcome.exit_code) == (True, 137)


async def test_a_box_that_died_knows_nothing_any_more(rig: Rig) -> None:
    manager = rig.daemon()
    await manager.begin(rig.key, rig.call("read line <go"))
    watching = asyncio.create_task(manager.watch(rig.key, "k"))
    await manager.read(rig.key, "k", 0, 1)
    rig.starter.started[0].kill()
    assert await asyncio.wait_for(watching, LIMIT_S) is None
    assert await rig.daemon().watch(rig.key, "k") is None


async def test_a_box_at_work_is_not_ended_for_being_idle(rig: Rig) -> None:
    manager = rig.daemon(idle_limit_s=0.02)
    await manager.begin(rig.key, rig.call("read line <go; echo ended"))
    other = BoxKey("agent-2", str(rig.workspace))
    await manager.run(other, rig.call("true", "other", 5))
    async with asyncio.timeout(LIMIT_S):
        while len(manager.statuses()) > 1:  # noqa: ASYNC110 - the janitor tells nobody
            await asyncio.sleep(0.005)
    assert [box.key for box in manager.statuses()] == [rig.key], "only the one without work has gone"
    await rig.let_go()
    assert await manager.watch(rig.key, "k") == BoxOutcome("success", "ended\n", exit_code=0)


async def test_much_output_is_kept_in_the_box_and_read_piece_by_piece(rig: Rig) -> None:
    manager = rig.daemon()
    await manager.begin(rig.key, rig.call("seq 1 100000"))
    outcome = await manager.watch(rig.key, "k")
    assert outcome is not None and outcome.text.endswith("\n99999\n100000\n") and len(outcome.text) == 256 * 1024
    whole, offset = b"", 0
    while part := await manager.read(rig.key, "k", offset, 100_000):
        whole += part.data
        offset = part.start + len(part.data)
        if offset == part.total:
            break
    assert whole == b"".join(b"%d\n" % number for number in range(1, 100_001))


@pytest.mark.parametrize("terminal", [True, False])
async def test_a_session_takes_input_while_it_runs(rig: Rig, terminal: bool) -> None:
    manager = rig.daemon()
    command = "test -t 0 && echo tty || echo pipe; read line; echo got $line; read line; exit 4"
    call = BoxCall("k", RunCommand(command, None, session=Session(terminal)), str(rig.workspace))
    assert await manager.begin(rig.key, call) is None
    await until_written(manager, rig, b"tty" if terminal else b"pipe")
    assert await manager.write(rig.key, "k", b"one\n") is True
    await until_written(manager, rig, b"got one")
    assert await manager.write(rig.key, "k", b"two\n") is True
    outcome = await asyncio.wait_for(manager.watch(rig.key, "k"), LIMIT_S)
    assert outcome is not None and outcome.exit_code == 4
    assert await manager.write(rig.key, "k", b"three\n") is False
    assert await manager.write(rig.key, "nobody", b"x") is None


async def test_a_terminal_is_controlled_by_its_command(rig: Rig) -> None:
    """Its interrupt key ends what runs in it, and a shell in it has job control."""
    manager = rig.daemon()
    command = "trap 'echo interrupted; exit 7' INT; echo begun; while :; do read line <go; done"
    # Not by way of a login's scripts, one of which may take the terminal for itself.
    session = Session(terminal=True, login=False)
    call = BoxCall("k", RunCommand(command, None, session=session), str(rig.workspace))
    await manager.begin(rig.key, call)
    await until_written(manager, rig, b"begun")
    assert await manager.write(rig.key, "k", b"\x03") is True
    outcome = await asyncio.wait_for(manager.watch(rig.key, "k"), LIMIT_S)
    assert outcome is not None and outcome.exit_code == 7 and "interrupted" in outcome.text


async def test_a_command_that_does_not_read_gets_no_more_than_it_can_hold(rig: Rig) -> None:
    manager = rig.daemon()
    call = BoxCall("k", RunCommand("read line <go; wc -c", None, session=Session(terminal=False)), str(rig.workspace))
    await manager.begin(rig.key, call)
    piece, taken = b"x" * 65_536, 0
    while await manager.write(rig.key, "k", piece):
        taken += len(piece)
        assert taken < 4 * 1024 * 1024
    assert taken >= 1024 * 1024
    await manager.cancel(rig.key, "k")
    assert await asyncio.wait_for(manager.watch(rig.key, "k"), LIMIT_S) is not None


async def test_a_command_without_a_session_takes_no_input(rig: Rig) -> None:
    manager = rig.daemon()
    await manager.begin(rig.key, rig.call("read line <go"))
    assert await manager.write(rig.key, "k", b"x") is False
    await rig.let_go()
    await manager.watch(rig.key, "k")


async def test_who_changes_their_mind_as_it_begins_ends_that_call_alone(rig: Rig) -> None:
    manager = rig.daemon()
    await manager.begin(rig.key, rig.call("read line <go; echo ended", "other"))
    beginning = asyncio.create_task(manager.begin(rig.key, rig.call("while :; do read line <go; done")))
    await asyncio.sleep(0)  # it is sent now, and not answered
    beginning.cancel()
    await asyncio.wait({beginning})
    outcome = await asyncio.wait_for(manager.watch(rig.key, "k"), LIMIT_S)
    assert outcome is not None and outcome.cancelled
    assert manager.statuses()[0].background == 1, "the box lives, and the other call in it"
    await rig.let_go()
    assert await manager.watch(rig.key, "other") == BoxOutcome("success", "ended\n", exit_code=0)
