"""The manager with the real runner as a plain process: no sandbox is needed for what is asked here."""

import asyncio
import gc
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from lodger_sandbox.contract import BoxRequest, DetachedBox, RunnerStart, SandboxUnavailable
from lodger_tools.box import record as records
from lodger_tools.box.contract import (
    BoxCall,
    BoxKey,
    BoxLost,
    BoxOutcome,
    BoxUnavailable,
    EditFile,
    FindFiles,
    Operation,
    PreviewChange,
    ReadFile,
    RunCommand,
    RunProgram,
    SearchFiles,
    WriteFile,
)
from lodger_tools.box.manager import BoxManager
from lodger_tools.runner.wire import (
    TO_DAEMON_PAYLOAD_LIMIT_BYTES,
    TO_RUNNER_HEADER_LIMIT_BYTES,
    TO_RUNNER_PAYLOAD_LIMIT_BYTES,
    VERSION,
    encode_frame,
)
from support.needed_programs import needed
from support.patience import LIMIT_S
from support.plain_runner import PlainStarter, plain_request

SIGNALS_OF_THE_C_LIBRARY = 1 << 31 | 1 << 32
"""32 and 33, which it lets nobody change: ignored in whatever posix_spawn has started, and below it."""


class Rig:
    """A folder with boxes in it, and as many daemons one after another as a test wants."""

    def __init__(self, folder: Path) -> None:
        self.boxes = folder / "boxes"
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.starter = PlainStarter()
        self.key = BoxKey("agent-1", str(self.workspace))
        self.managers: list[BoxManager] = []
        self.request_for: Callable[[BoxKey], BoxRequest] = plain_request
        self.count = 0

    def daemon(self, *, extra_folders: tuple[tuple[str, str], ...] = (), **options: float) -> BoxManager:
        manager = BoxManager(
            self.boxes,
            self._request,
            start_detached=self.starter,
            extra_folders=extra_folders,
            **options,  # type: ignore[arg-type]
        )
        self.managers.append(manager)
        return manager

    def _request(self, key: BoxKey) -> BoxRequest:
        return self.request_for(key)

    def call(self, operation: Operation, key: str | None = None) -> BoxCall:
        self.count += 1
        return BoxCall(key or f"call-{self.count}", operation, str(self.workspace))

    async def run(self, operation: Operation) -> BoxOutcome:
        manager = self.managers[-1] if self.managers else self.daemon()
        return await manager.run(self.key, self.call(operation))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    for manager in rig.managers:
        await manager.aclose()
    rig.starter.end_all()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.005)


async def test_keys_that_are_done_with_leave_nothing_behind(rig: Rig) -> None:
    """A conversation in a new folder each time makes a new key, for as long as the daemon runs."""

    def locks() -> int:
        gc.collect()
        return sum(isinstance(one, asyncio.Lock) for one in gc.get_objects())

    manager = rig.daemon()
    await manager.end(rig.key)
    before = locks()
    for number in range(100):
        await manager.end(BoxKey("agent-1", f"/folder-{number}"))
    assert locks() == before


async def test_output_comes_as_it_is_written_and_the_exit_code_with_the_end(rig: Rig) -> None:
    pieces: list[bytes] = []
    call = rig.call(RunCommand("echo one; echo two >&2; cat; exit 3"))
    outcome = await rig.daemon().run(rig.key, call, pieces.append)
    assert outcome == BoxOutcome("error", "one\ntwo\n", exit_code=3)
    assert b"".join(pieces) == b"one\ntwo\n"


async def test_a_program_gets_its_input_and_gives_bytes(rig: Rig) -> None:
    data = bytes(range(256)) * 2000
    assert await rig.run(RunProgram(("cat",), data)) == BoxOutcome("success", "", exit_code=0, data=data)
    failed = await rig.run(RunProgram(("sh", "-c", "echo no >&2; exit 2")))
    assert (failed.status, failed.text, failed.exit_code) == ("error", "no\n", 2)
    cut = await rig.run(RunProgram(("sh", "-c", "yes"), stdout_limit_bytes=1000))
    assert (cut.status, len(cut.data) <= 1000, "exceeded 1000 bytes" in cut.text) == ("error", True, True)
    missing = await rig.run(RunProgram(("no-such-program",)))
    assert missing.status == "error"


@pytest.mark.parametrize(
    "operation",
    [
        RunProgram(("cat",), bytes(TO_RUNNER_PAYLOAD_LIMIT_BYTES + 1)),
        RunCommand("true " + "x" * TO_RUNNER_HEADER_LIMIT_BYTES),
    ],
    ids=["payload", "header"],
)
async def test_a_call_that_no_runner_takes_ends_no_box(rig: Rig, operation: Operation) -> None:
    assert (await rig.run(RunCommand("mkfifo go"))).exit_code == 0
    waiting = asyncio.create_task(rig.run(RunCommand("read line < go; echo $line")))
    refused = await rig.run(operation)
    assert (refused.status, "too many for a call" in refused.text) == ("error", True)
    await rig.run(RunCommand("echo same box > go"))
    assert (await waiting).text.strip() == "same box"


async def test_one_key_runs_once(rig: Rig) -> None:
    manager = rig.daemon()
    call = rig.call(RunCommand("echo mark >>marks; cat marks"), "once")
    first = await manager.run(rig.key, call)
    assert await manager.run(rig.key, call) == first == BoxOutcome("success", "mark\n", exit_code=0)
    assert (rig.workspace / "marks").read_text() == "mark\n"


async def test_a_process_that_ignores_the_term_is_killed_at_the_time_limit(rig: Rig) -> None:
    outcome = await rig.run(RunCommand("trap '' TERM; echo begun; sleep 30 & wait; wait", 2.0))
    assert (outcome.status, outcome.timed_out, outcome.leftovers) == ("error", True, 0)
    assert outcome.text == "begun\n"


async def test_the_end_is_the_death_of_the_command_not_of_its_pipe(rig: Rig) -> None:
    outcome = await rig.run(RunCommand("sleep 30 & echo begun"))
    assert outcome == BoxOutcome("success", "begun\n", exit_code=0, leftovers=1)
    escaped = await rig.run(RunCommand("setsid sleep 31 >/dev/null 2>&1 & sleep 0.05"))
    assert escaped.leftovers == 1
    assert rig.managers[-1].statuses()[0].leftovers == 2
    assert await rig.managers[-1].stop_all(rig.key) == 2
    assert (await rig.run(RunCommand("true"))).leftovers == 0


async def test_cancelling_the_waiter_ends_the_processes(rig: Rig) -> None:
    manager = rig.daemon()
    begun = asyncio.Event()
    call = rig.call(RunCommand("sleep 29 & echo $!; wait"), "cancelled")
    task = asyncio.create_task(manager.run(rig.key, call, lambda data: begun.set()))
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    outcome = await manager.collect(rig.key, "cancelled")
    assert outcome is not None and outcome.cancelled
    assert records.start_ticks(int(outcome.text)) == 0


class WaitingWatcher:
    """Somebody who takes his time with every new box."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.ended: list[Path] = []

    async def box_started(self, found: records.FoundBox) -> None:
        self.told.set()
        await asyncio.Event().wait()

    def box_ended(self, found: records.FoundBox) -> None:
        self.ended.append(found.folder)


async def test_a_start_that_is_given_up_leaves_no_box_that_nobody_knows(rig: Rig) -> None:
    watcher = WaitingWatcher()
    manager = BoxManager(rig.boxes, plain_request, start_detached=rig.starter, watcher=watcher)
    rig.managers.append(manager)
    task = asyncio.create_task(manager.run(rig.key, rig.call(RunCommand("true"), "given up")))
    await asyncio.wait_for(watcher.told.wait(), LIMIT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert records.find_boxes(rig.boxes) == ()
    assert len(watcher.ended) == 1


async def test_a_descriptor_that_leaked_in_is_closed_at_once(rig: Rig) -> None:
    read_end, write_end = os.pipe()
    try:
        rig.starter.leaked_fds = (write_end,)
        await rig.run(RunCommand("true"))
    finally:
        os.close(write_end)
    os.set_blocking(read_end, False)
    # The end of the pipe: nobody holds the other side any more.
    assert os.read(read_end, 1) == b""
    os.close(read_end)


async def test_what_its_starter_ignores_or_blocks_reaches_no_program(rig: Rig) -> None:
    rig.starter.started_by = (needed("env"), "--ignore-signal=TERM", "--block-signal=USR1,USR2,TERM")
    outcome = await rig.run(RunProgram((needed("grep"), "-E", "Sig(Blk|Ign)", "/proc/self/status")))
    assert {int(line.split()[1], 16) & ~SIGNALS_OF_THE_C_LIBRARY for line in outcome.data.splitlines()} == {0}


async def test_a_flood_keeps_its_beginning_and_its_end(rig: Rig) -> None:
    outcome = await rig.run(RunCommand("echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last"))
    assert outcome.text.startswith("first\nxxx") and outcome.text.endswith("x\nlast\n")
    assert "bytes of output were not kept]" in outcome.text
    assert len(outcome.text) < 17 * 1024 * 1024


async def test_many_calls_share_one_box(rig: Rig) -> None:
    (rig.workspace / "a").write_text("text\n")
    manager = rig.daemon()
    commands = [manager.run(rig.key, rig.call(RunCommand(f"echo {number}"))) for number in range(8)]
    reads = [manager.run(rig.key, rig.call(ReadFile("a"))) for _ in range(8)]
    outcomes = await asyncio.gather(*commands, *reads)
    assert [outcome.text for outcome in outcomes] == [f"{number}\n" for number in range(8)] + ["1\ttext"] * 8
    assert len(rig.starter.started) == 1


async def test_files_are_written_changed_found_and_previewed(rig: Rig) -> None:
    assert (await rig.run(WriteFile("d/a.txt", "one\ntwo\n"))).status == "success"
    preview = await rig.run(PreviewChange(EditFile("d/a.txt", "two", "2")))
    assert '"type":"remove","content":"two"' in preview.text
    assert (rig.workspace / "d/a.txt").read_text() == "one\ntwo\n"
    assert (await rig.run(EditFile("d/a.txt", "two", "2"))).status == "success"
    assert (await rig.run(FindFiles("**/*.txt"))).text == f"{rig.workspace}/d/a.txt"
    assert (await rig.run(SearchFiles("^on", output_mode="content"))).text.endswith("a.txt:1:one")
    assert (await rig.run(SearchFiles("nowhere"))).text == "[Nothing found.]"
    assert "regex parse error" in (await rig.run(SearchFiles("("))).text
    assert await rig.run(ReadFile("nix")) == BoxOutcome(
        "error", f"There is no such file or folder: {rig.workspace}/nix"
    )


async def test_a_later_daemon_adopts_the_box_and_collects_the_call(rig: Rig) -> None:
    first = rig.daemon()
    begun = asyncio.Event()
    call = rig.call(RunCommand("echo begun; while [ ! -e go ]; do sleep 0.01; done; echo ended"), "long")
    task = asyncio.create_task(first.run(rig.key, call, lambda data: begun.set()))
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    await first.aclose()
    with pytest.raises(asyncio.CancelledError):
        await task
    second = rig.daemon()
    await second.start()
    assert second.statuses()[0].key == rig.key
    collecting = asyncio.create_task(second.collect(rig.key, "long"))
    (rig.workspace / "go").touch()
    assert await collecting == BoxOutcome("success", "begun\nended\n", exit_code=0)
    assert await second.collect(rig.key, "never started") is None
    assert len(rig.starter.started) == 1


async def test_a_box_whose_start_was_cut_short_is_ended_and_replaced(rig: Rig) -> None:
    """The daemon died between the start and the record of the box's processes."""
    first = rig.daemon()
    await first.run(rig.key, rig.call(RunCommand("true")))
    (folder,) = rig.boxes.iterdir()
    record = records.read_record(folder)
    assert record is not None
    records.write_record(folder, records.BoxRecord(record.key, record.fingerprint))
    await first.aclose()
    second = rig.daemon()
    await second.start()
    assert second.statuses() == ()
    assert not folder.exists()
    assert (await second.run(rig.key, rig.call(RunCommand("echo anew")))).text.strip() == "anew"


async def test_under_another_policy_an_adopted_box_begins_nothing(rig: Rig) -> None:
    await rig.daemon().run(rig.key, rig.call(RunCommand("echo kept"), "old"))
    await rig.managers[0].aclose()
    rig.request_for = lambda key: BoxRequest(
        **{**{name: getattr(plain_request(key), name) for name in BoxRequest.__slots__}, "masks": ("/somewhere",)}
    )
    second = rig.daemon()
    assert await second.collect(rig.key, "old") == BoxOutcome("success", "kept\n", exit_code=0)
    await second.run(rig.key, rig.call(RunCommand("true")))
    assert len(rig.starter.started) == 2


async def test_after_an_upgrade_an_adopted_box_begins_nothing(rig: Rig, tmp_path: Path) -> None:
    await rig.daemon().run(rig.key, rig.call(RunCommand("true")))
    await rig.managers[0].aclose()
    same = rig.daemon()
    await same.run(rig.key, rig.call(RunCommand("true")))
    await same.aclose()
    assert len(rig.starter.started) == 1
    await rig.daemon(extra_folders=((str(tmp_path), "validator"),)).run(rig.key, rig.call(RunCommand("true")))
    assert len(rig.starter.started) == 2


async def test_a_box_that_dies_in_mid_call_is_lost_and_the_next_call_gets_another(rig: Rig) -> None:
    manager = rig.daemon()
    begun = asyncio.Event()
    call = rig.call(RunCommand("echo begun; sleep 3"))
    task = asyncio.create_task(manager.run(rig.key, call, lambda data: begun.set()))
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    rig.starter.started[0].kill()
    with pytest.raises(BoxLost):
        await task
    rig.starter.started[0].wait(LIMIT_S)
    assert (await manager.run(rig.key, rig.call(RunCommand("echo again")))).text == "again\n"


async def test_no_box_means_nothing_runs(rig: Rig) -> None:
    def refuse(request: BoxRequest, runner: RunnerStart) -> DetachedBox:
        raise SandboxUnavailable("no bwrap here; install it")

    rig.starter = refuse  # type: ignore[assignment]  # stands in for the sandbox
    manager = rig.daemon()
    with pytest.raises(BoxUnavailable, match="no bwrap here; install it"):
        await manager.run(rig.key, rig.call(RunCommand("touch ran")))
    assert list(rig.boxes.iterdir()) == [] and not (rig.workspace / "ran").exists()
    rig.starter = PlainStarter()


async def test_an_idle_box_ends_and_a_busy_one_does_not(rig: Rig) -> None:
    manager = rig.daemon(idle_limit_s=0.05)
    assert (await manager.run(rig.key, rig.call(RunCommand("sleep 28 >/dev/null 2>&1 &")))).leftovers == 1
    other = BoxKey("agent-2", str(rig.workspace))
    await manager.run(other, rig.call(RunCommand("true")))
    await until(lambda: [status.key for status in manager.statuses()] == [rig.key])
    await until(lambda: len(list(rig.boxes.iterdir())) == 1)
    await manager.stop_all(rig.key)
    await until(lambda: manager.statuses() == () and list(rig.boxes.iterdir()) == [])


async def test_a_stop_in_good_order_ends_the_boxes_in_which_nothing_runs(rig: Rig) -> None:
    manager = rig.daemon()
    keys = {name: BoxKey(name, str(rig.workspace)) for name in ("idle", "left", "background", "runs")}
    await manager.run(keys["idle"], rig.call(RunCommand("true")))
    await manager.run(keys["left"], rig.call(RunCommand("sleep 28 >/dev/null 2>&1 &")))
    await manager.begin(keys["background"], rig.call(RunCommand("sleep 28", None), "in the background"))
    running = asyncio.create_task(manager.run(keys["runs"], rig.call(RunCommand("touch began; sleep 28"), "now")))
    await until((rig.workspace / "began").exists)
    folders = {box.record.key: box.folder for box in records.find_boxes(rig.boxes)}
    await manager.leave()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert {box.record.key for box in records.find_boxes(rig.boxes)} == {*keys.values()} - {keys["idle"]}
    assert not folders[keys["idle"]].exists()
    later = rig.daemon()
    await later.start()
    assert {status.key for status in later.statuses()} == {*keys.values()} - {keys["idle"]}
    assert (await later.run(keys["idle"], rig.call(RunCommand("echo anew")))).text == "anew\n"


async def test_the_records_are_private_and_a_wrong_token_is_refused(rig: Rig) -> None:
    await rig.run(RunCommand("true"))
    (folder,) = rig.boxes.iterdir()
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes == {folder.name: 0o700, "lock": 0o600, "socket": 0o600, "token": 0o600, "box.json": 0o600}
    stranger = records.connect(folder)
    stranger.settimeout(10)
    stranger.sendall(encode_frame({"do": "hello", "token": "0" * 64}))
    assert stranger.recv(100) == b""
    silent = records.connect(folder)
    silent.settimeout(10)
    silent.sendall(encode_frame({"do": "stop_all", "id": 1}))
    assert silent.recv(100) == b""
    assert (await rig.run(RunCommand("echo lives"))).text == "lives\n"


async def test_an_orphan_ends_itself(rig: Rig) -> None:
    rig.starter.orphan_s = 0.05
    await rig.run(RunCommand("true"))
    await rig.managers[0].aclose()
    await until(lambda: rig.starter.started[0].poll() is not None)
    assert records.find_boxes(rig.boxes) == ()


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff" * 64,
        (TO_DAEMON_PAYLOAD_LIMIT_BYTES + 1).to_bytes(4, "big") * 2,
        encode_frame({"is": "output", "id": 1, "offset": 5}, b"x"),
        encode_frame({"is": "gap", "id": 1, "bytes": -1}),
        encode_frame({"is": "surprise", "id": 1}),
        encode_frame({"is": "started", "id": 1}),
        encode_frame({"is": "done", "id": "1"}),
    ],
)
async def test_a_hostile_runner_is_dropped(rig: Rig, answer: bytes) -> None:
    servers: list[asyncio.Server] = []

    def hostile(request: BoxRequest, runner: RunnerStart) -> DetachedBox:
        listener = socket.socket(fileno=socket.dup(runner.listener_fd))
        servers.append(asyncio.run_coroutine_threadsafe(asyncio.start_unix_server(talk, sock=listener), loop).result(5))
        return DetachedBox(0, 0, 0)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(encode_frame({"is": "hello", "version": VERSION}))
        await reader.read(1000)
        writer.write(answer)
        await reader.read()
        writer.close()

    loop = asyncio.get_running_loop()
    manager = BoxManager(rig.boxes, plain_request, start_detached=hostile)
    rig.managers.append(manager)
    with pytest.raises(BoxLost):
        await asyncio.wait_for(manager.run(rig.key, rig.call(RunCommand("true"))), LIMIT_S)
    for server in servers:
        server.close()
