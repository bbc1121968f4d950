"""The memory of a box's processes together, in a real box: its limit is the one that each of them has for itself."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_sandbox import launch
from lodger_sandbox.cgroups import BoxGroup
from lodger_sandbox.contract import BoxLimits, BoxRequest
from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, RunCommand
from lodger_tools.box.manager import BoxManager
from support.real_boxes import RealRequests, workspace_for_tests

pytestmark = [
    pytest.mark.needs("bwrap"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc"),
]
LIMIT_S = 30.0
MIB = 1024**2
MEMORY_BYTES = 256 * MIB


def hold(size_bytes: int, pipe: str) -> str:
    """A command that fills so much memory in one process, says so and waits."""
    return f"python3 -c \"x = b'x' * {size_bytes}; print('full', flush=True); open('{pipe}').read()\""


class Rig:
    def __init__(self, manager: BoxManager, workspace: Path) -> None:
        self.manager = manager
        self.workspace = workspace
        self.key = BoxKey("agent-1", str(workspace))

    async def begin(self, call_key: str, command: str) -> None:
        call = BoxCall(call_key, RunCommand(command, None), str(self.workspace))
        assert await self.manager.begin(self.key, call) is None

    async def until_full(self, call_key: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            while True:
                part = await self.manager.read(self.key, call_key, 0, 100)
                if part is not None and (b"full" in part.data or part.ended):
                    return
                await asyncio.sleep(0.01)

    async def end(self, call_key: str) -> BoxOutcome:
        outcome = await asyncio.wait_for(self.manager.watch(self.key, call_key), LIMIT_S)
        assert outcome is not None
        return outcome


@pytest.fixture
def is_counted() -> bool:
    """Whether the box is made as where a control group counts its memory; a test that needs it says so."""
    return False


COUNTED = pytest.mark.parametrize("is_counted", [True])


@pytest.fixture
async def rig(tmp_path: Path, is_counted: bool, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """The watch is alone with the box: there is no group, whatever the box is told."""
    group = BoxGroup(counts_memory=is_counted)
    monkeypatch.setattr(launch, "group_for", lambda limits: contextlib.nullcontext(group))
    with workspace_for_tests() as workspace:
        for name in ("one", "two"):
            os.mkfifo(workspace / name)
            (workspace / name).chmod(0o666)
        requests = RealRequests(tmp_path, Path.home())

        def small(key: BoxKey) -> BoxRequest:
            return replace(requests(key), limits=BoxLimits(memory_bytes=MEMORY_BYTES, tmp_bytes=100 * MIB))

        manager = BoxManager(tmp_path / "boxes", small)
        made = Rig(manager, workspace)
        yield made
        await manager.end(made.key)
        await manager.aclose()


async def test_what_uses_most_is_killed_when_all_together_use_too_much(rig: Rig) -> None:
    await rig.begin("small", hold(100 * MIB, "one"))
    await rig.until_full("small")
    await rig.begin("large", hold(200 * MIB, "two"))
    ended = await rig.end("large")
    assert (ended.out_of_memory, ended.exit_code, ended.status, ended.leftovers) == (True, 137, "error", 0)
    await asyncio.to_thread((rig.workspace / "one").write_text, "on\n")
    assert await rig.end("small") == BoxOutcome("success", "full\n", exit_code=0), "the other one goes on"


async def test_a_process_that_left_its_call_is_killed_alone(rig: Rig) -> None:
    await rig.begin("leaves", f"setsid {hold(200 * MIB, 'two')} & echo left")
    assert (await rig.end("leaves")).out_of_memory is False
    await rig.begin("stays", hold(100 * MIB, "one"))
    async with asyncio.timeout(LIMIT_S):
        while True:
            outcome = await rig.manager.run(
                rig.key, BoxCall(f"look-{os.urandom(4).hex()}", RunCommand("pgrep -fc 'x = [b]'"), str(rig.workspace))
            )
            if outcome.text.strip() == "1":
                break
    await asyncio.to_thread((rig.workspace / "one").write_text, "on\n")
    assert await rig.end("stays") == BoxOutcome("success", "full\n", exit_code=0)


MEMORY_FILE = "import os; fd = os.memfd_create('m'); os.write(fd, bytes({size}))"
SHARED = "import mmap; m = mmap.mmap(-1, {size}); m.write(bytes({size}))"
OLD_SHARED = """
import ctypes
c = ctypes.CDLL(None)
c.shmat.restype = ctypes.c_void_p
c.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
for _ in range(3):
    number = c.shmget(0, {size} // 3, 0o1600)
    ctypes.memset(c.shmat(number, None, 0), 1, {size} // 3)
"""
MESSAGES = """
import ctypes, os
c = ctypes.CDLL(None)
message = (ctypes.c_long * 1025)(1)
for _ in range({size} // 16384):
    number = c.msgget(0, 0o600)
    for _ in range(2): c.msgsnd(number, message, 8192, 0)
"""
EMPTY_MESSAGES = """
import ctypes
c = ctypes.CDLL(None)
message = (ctypes.c_long * 1)(1)
for _ in range({size} // 16384 // 64):
    number = c.msgget(0, 0o600)
    for _ in range(16384): c.msgsnd(number, message, 0, 0o4000)
"""
WAYS = (
    # Where nobody counts them there are none.
    pytest.param(MEMORY_FILE, True, id="memory file"),
    pytest.param(SHARED, False, id="shared"),
    pytest.param(OLD_SHARED, False, id="old shared"),
)
OF_QUEUES = (
    pytest.param(MESSAGES, False, id="messages"),
    pytest.param(EMPTY_MESSAGES, False, id="empty messages"),
)


def program(text: str, size_bytes: int, pipe: str) -> str:
    return f"exec python3 -c \"{text.format(size=size_bytes)}\nprint('full', flush=True)\nopen('{pipe}').read()\""


@pytest.mark.parametrize(("how", "is_counted"), [*WAYS, *OF_QUEUES])
async def test_memory_that_is_shared_or_in_no_process_counts(rig: Rig, how: str) -> None:
    """Beside something that goes on, and beside full private folders, which a process does not own."""
    await rig.begin("fills", "for d in /tmp /dev/shm; do head -c 60M /dev/zero > $d/f; done")
    assert (await rig.end("fills")).exit_code == 0
    await rig.begin("small", hold(20 * MIB, "one"))
    await rig.until_full("small")
    await rig.begin("large", program(how, 150 * MIB, "two"))
    ended = await rig.end("large")
    assert (ended.out_of_memory, ended.exit_code) == (True, 137)
    await asyncio.to_thread((rig.workspace / "one").write_text, "on\n")
    assert (await rig.end("small")).exit_code == 0, "the other one goes on"


@pytest.mark.parametrize(("how", "is_counted"), WAYS)
async def test_what_several_hold_counts_once(rig: Rig, how: str) -> None:
    """A file in a private folder that is mapped too, and pages that a child shares with its parent."""
    text = f"{how}\nimport os, time\nchildren = [os.fork() for _ in range(2)]\nif 0 in children: time.sleep(100)"
    await rig.begin("several", f"{program(text, 100 * MIB, 'one')}")
    await rig.until_full("several")
    await several_looks(rig)
    assert (await rig.manager.stop_all(rig.key)) >= 1
    assert (await rig.end("several")).out_of_memory is False


SOCKETS = """
import socket, sys
kept = []
for _ in range({pairs}):
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 23)
    ours.setblocking(False)
    kept += (ours, theirs)
    try:
        while True: held += ours.send(bytes(4096))
    except BlockingIOError: pass
print(held // len(kept), 'full', flush=True)
"""
HIDDEN = "import ctypes; ctypes.CDLL(None).prctl(4, 0)"
IN_FLIGHT = """
import socket
first, last = socket.socketpair()
for _ in range(7):
    pairs = [socket.socketpair() for _ in range(100)]
    socket.send_fds(first, [b'x'], [one.fileno() for pair in pairs for one in pair])
del pairs
"""


@pytest.mark.parametrize("how", ["", HIDDEN], ids=["seen", "hidden"])
async def test_what_waits_in_sockets_is_bounded_by_their_number(rig: Rig, how: str) -> None:
    """256 MiB in buffers as large as they are born: some 1,090 sockets."""
    await rig.begin("small", f"python3 -c \"held = 0\n{SOCKETS.format(pairs=20)}\nopen('one').read()\"")
    await rig.until_full("small")
    part = await rig.manager.read(rig.key, "small", 0, 100)
    assert part is not None and int(part.data.split()[0]) <= 256 * 1024, "nobody makes them larger"
    await rig.begin("many", f"exec python3 -c \"{how}\nheld = 0\n{SOCKETS.format(pairs=600)}\nopen('two').read()\"")
    ended = await rig.end("many")
    assert (ended.out_of_memory, ended.exit_code) == (True, 137)
    await asyncio.to_thread((rig.workspace / "one").write_text, "on\n")
    assert (await rig.end("small")).exit_code == 0, "the other one goes on"


@COUNTED
async def test_where_a_group_counts_them_sockets_have_no_limit_of_ours(rig: Rig) -> None:
    text = SOCKETS.format(pairs=600).replace("1 << 23", "1 << 10")
    await rig.begin("many", f"exec python3 -c \"held = 0\n{text}\nopen('one').read()\"")
    await rig.until_full("many")
    await rig.begin("beside", hold(100 * MIB, "one"))
    await rig.until_full("beside")
    await several_looks(rig)
    part = await rig.manager.read(rig.key, "many", 0, 100)
    assert part is not None and not part.ended
    assert (await rig.manager.stop_all(rig.key)) >= 1


async def test_sockets_that_wait_in_a_socket_count(rig: Rig) -> None:
    await rig.begin("flight", f"exec python3 -c \"{IN_FLIGHT}\nopen('two').read()\"")
    assert (await rig.end("flight")).out_of_memory


async def test_without_a_group_there_are_no_memory_files(rig: Rig) -> None:
    await rig.begin("file", "python3 -c \"import os; os.memfd_create('m')\"")
    ended = await rig.end("file")
    assert ended.exit_code == 1 and "Function not implemented" in ended.text


KEPT_PAGE = """
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
page = ctypes.create_string_buffer(1)
piece = (ctypes.c_void_p * 2)(ctypes.addressof(page), 1)
print(c.vmsplice(os.pipe()[1], piece, 1, 0), os.strerror(ctypes.get_errno()))
"""
LARGE_SET = """
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
print(c.semget(0, 64, 0o600) >= 0, c.semget(0, 32000, 0o600), os.strerror(ctypes.get_errno()))
"""
NO_COPY = "import socket\nsocket.create_server(('127.0.0.1', 0)).setsockopt(1, 60, 1)"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (KEPT_PAGE, "-1 Function not implemented"),
        (LARGE_SET, "True -1 Invalid argument"),
        (NO_COPY, "Protocol not available"),
    ],
    ids=["pages in a pipe", "large set of semaphores", "pages in a socket"],
)
async def test_without_a_group_no_memory_is_kept_where_no_process_has_it(rig: Rig, how: str, said: str) -> None:
    await rig.begin("keeps", f'python3 -c "{how}"')
    assert said in (await rig.end("keeps")).text


async def test_full_private_folders_end_nothing_and_can_be_emptied(rig: Rig) -> None:
    await rig.begin("fills", "for d in /tmp /var/tmp /dev/shm; do head -c 95M /dev/zero > $d/f; done")
    assert (await rig.end("fills")).exit_code == 0
    await rig.begin("waits", hold(5 * MIB, "one"))
    await rig.until_full("waits")
    await several_looks(rig)
    part = await rig.manager.read(rig.key, "waits", 0, 100)
    assert part is not None and not part.ended
    await rig.begin("empties", "rm /tmp/f /var/tmp/f /dev/shm/f && echo gone")
    assert (await rig.end("empties")).text == "gone\n"
    await asyncio.to_thread((rig.workspace / "one").write_text, "on\n")
    assert (await rig.end("waits")).exit_code == 0


async def several_looks(rig: Rig) -> None:
    """The watch has looked since, also at a time when nothing else took too much."""
    for number, first in enumerate(("true", "sleep 0.5")):
        await rig.begin(f"hog-{number}", f"{first}; {hold(200 * MIB, 'two')}")
        assert (await rig.end(f"hog-{number}")).out_of_memory
