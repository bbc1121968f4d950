"""Boxes, broker and daemon together, with real boxes and a real broker process."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from lodger_daemon.network import network as network_module
from lodger_daemon.network.broker_process import FoundBroker, find_broker
from lodger_daemon.network.network import PROXY_URL, Network
from lodger_daemon.system_clock import SystemClock
from lodger_sandbox.egress.core.allow import parse_allow_list
from lodger_tools.box import record as records
from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, RunCommand
from lodger_tools.box.manager import BoxManager
from support.broker_rig import Upstream, upstream
from support.developer import Nobody
from support.hub_rig import until
from support.patience import LIMIT_S
from support.real_boxes import RealRequests, box_user_for_tests, workspace_for_tests

pytestmark = pytest.mark.needs("bwrap")


class Daemon:
    """Boxes and network of one daemon's life."""

    def __init__(self, state: Path, workspace: Path, allow: list[str]) -> None:
        user = box_user_for_tests()
        self.noted: list[tuple[BoxKey, str, str, str]] = []
        self.place = state / "egress"
        self.network = Network(
            self.place,
            parse_allow_list(allow),
            lambda: (user.uid, user.gid) if os.getuid() == 0 else None,
            lambda *row: self.noted.append(row),
            SystemClock(),
        )
        self.network.let_ask(Nobody())
        self.boxes = BoxManager(state / "boxes", RealRequests(state, Path.home()), watcher=self.network)
        self.key = BoxKey("agent-1", str(workspace))
        self.count = 0

    async def start(self) -> None:
        await self.network.start()
        await self.boxes.start()

    async def run(self, command: str, key: BoxKey | None = None) -> BoxOutcome:
        self.count += 1
        call = BoxCall(f"{id(self)}/{self.count}", RunCommand(command), self.key.workspace)
        return await self.boxes.run(key or self.key, call)

    async def fetch(self, url: str) -> str:
        return (await self.run(f"curl -sS -m 40 --proxy {PROXY_URL} {url}")).text

    async def aclose(self) -> None:
        await self.boxes.aclose()
        await self.network.aclose()

    def broker_pid(self) -> int:
        found = find_broker(self.place)
        assert found is not None
        lock = (found.folder / "lock").stat().st_ino
        for process in Path("/proc").glob("[0-9]*"):
            try:
                fds = [fd.stat().st_ino for fd in (process / "fd").iterdir()]
            except OSError:
                continue
            if lock in fds:
                return int(process.name)
        raise AssertionError("nobody holds the broker's lock")


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[[list[str]], Daemon]]:
    made: list[Daemon] = []
    with workspace_for_tests() as workspace:

        def one(allow: list[str]) -> Daemon:
            made.append(Daemon(tmp_path, workspace, allow))
            return made[-1]

        yield one
        last = made[-1]
        await last.boxes.end(last.key)
        await last.aclose()
        await until(lambda: find_broker(last.place) is None, "the broker ends with the last box")


async def test_listed_hosts_are_reached_and_others_told(make: Callable[[list[str]], Daemon]) -> None:
    async with upstream() as there, upstream() as other:
        daemon = make([f"127.0.0.1:{there.port}"])
        await daemon.start()
        await daemon.run("true")
        assert find_broker(daemon.place) is None
        count = daemon.network.refused_count(daemon.key)
        assert await daemon.fetch(f"http://127.0.0.1:{there.port}/") == "hi"
        assert await daemon.network.refused_since(daemon.key, count) == ()
        refused = await daemon.fetch(f"http://example.org:{other.port}/")
        assert "lets no connection through" in refused
        assert await daemon.network.refused_since(daemon.key, count) == (
            (f"example.org:{other.port}", "it is not on the list of allowed hosts and nobody allowed it"),
        )
        assert [row[:3] for row in daemon.noted] == [
            (daemon.key, "passed", f"127.0.0.1:{there.port}"),
            (daemon.key, "denied", f"example.org:{other.port}"),
        ]
        if os.getuid() == 0:
            status = Path(f"/proc/{daemon.broker_pid()}/status").read_text()
            assert f"Uid:\t{box_user_for_tests().uid}\t" in status


async def test_a_restarted_daemon_finds_broker_and_boxes(make: Callable[[list[str]], Daemon]) -> None:
    """R5: a download does not notice."""
    async with upstream() as there:
        allow = [f"127.0.0.1:{there.port}"]
        first = make(allow)
        await first.start()
        assert await first.fetch(f"http://127.0.0.1:{there.port}/") == "hi"
        pid = first.broker_pid()
        await first.aclose()
        second = make(allow)
        await second.start()
        assert await second.fetch(f"http://127.0.0.1:{there.port}/") == "hi"
        assert second.broker_pid() == pid


async def test_what_was_decided_while_no_daemon_ran_is_noted_once_by_the_next(
    make: Callable[[list[str]], Daemon],
) -> None:
    """The broker tells of it as soon as a daemon comes, which knows its boxes only after that."""
    async with upstream() as there:
        listed = f"127.0.0.1:{there.port}"
        first = make([listed])
        await first.start()
        curl = f"curl -sS -m 40 --proxy {PROXY_URL}"
        # The first word only makes sure that the broker runs before the daemon leaves.
        command = f"{curl} {listed}; echo; read line <go; {curl} {listed}; {curl} example.org:{there.port}"
        os.mkfifo(Path(first.key.workspace) / "go", 0o666)
        (Path(first.key.workspace) / "go").chmod(0o666)
        running = asyncio.create_task(first.run(command))
        await until(lambda: first.noted, "the command reached the broker")
        await first.aclose()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.to_thread((Path(first.key.workspace) / "go").write_text, "on\n")
        await until(lambda: len(there.received) == 2, "the command went on without a daemon")
        second = make([listed])
        await second.network.start()
        await second.boxes.start()
        await second.boxes.collect(second.key, f"{id(first)}/1")
        await second.network.refused_since(second.key, 0)
        assert [row[:3] for row in second.noted] == [
            (second.key, "passed", listed),
            (second.key, "denied", f"example.org:{there.port}"),
        ]


async def test_a_broker_that_died_is_started_again(make: Callable[[list[str]], Daemon]) -> None:
    async with upstream() as there:
        daemon = make([f"127.0.0.1:{there.port}"])
        await daemon.start()
        assert await daemon.fetch(f"http://127.0.0.1:{there.port}/") == "hi"
        os.kill(daemon.broker_pid(), signal.SIGKILL)
        await until(lambda: daemon.network._link is None, "the daemon notices")
        assert await daemon.fetch(f"http://127.0.0.1:{there.port}/") == "hi"


async def test_a_broker_whose_last_box_ended_while_it_started_ends_too(
    make: Callable[[list[str]], Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended, start = threading.Event(), threading.Event(), network_module.start_broker

    def slow(place: Path, user: tuple[int, int] | None) -> FoundBroker:
        begun.set()
        assert ended.wait(LIMIT_S)
        return start(place, user)

    monkeypatch.setattr(network_module, "start_broker", slow)
    daemon = make([])
    await daemon.start()
    fetching = asyncio.create_task(daemon.fetch("http://127.0.0.1:1/"))
    await until(begun.is_set, "the broker is to start")
    await daemon.boxes.end(daemon.key)
    await asyncio.gather(fetching, return_exceptions=True)
    linking = daemon.network._linking
    assert linking is not None
    ended.set()
    await linking
    await until(lambda: find_broker(daemon.place) is None, "the broker ends")


async def test_the_broker_shows_nothing_of_itself_to_a_box(make: Callable[[list[str]], Daemon]) -> None:
    async with upstream() as there:
        daemon = make([f"127.0.0.1:{there.port}"])
        await daemon.start()
        assert await daemon.fetch(f"http://127.0.0.1:{there.port}/") == "hi"
        found = find_broker(daemon.place)
        assert found is not None
        seen = await daemon.run(
            f"ls -la {found.folder} {daemon.place} 2>&1; ss -xlp 2>/dev/null; cat {found.folder}/token"
        )
        assert found.token not in seen.text
        assert "No such file" in seen.text or "Permission denied" in seen.text
        assert records.is_alive(found.folder)


LOOK_UP = """
import socket, struct
def resolve(name):
    ask = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
    question = labels + bytes(1) + struct.pack("!HH", 1, 1)
    ask.sendto(struct.pack("!HHHHHH", 9, 0x100, 1, 0, 0, 0) + question, ("127.0.0.1", 53))
    return socket.inet_ntoa(ask.recv(512)[-4:])
def says(name):
    there = socket.create_connection((resolve(name), 443))
    there.sendall(b"hello!")
    return there.recv(100)
"""


@contextlib.asynccontextmanager
async def upstream_443() -> AsyncIterator[Upstream]:
    """Ports are the same inside and outside, and below 1024 not everybody's."""
    try:
        async with upstream(b"pong", port=443) as there:
            yield there
    except PermissionError:
        pytest.skip("needs to listen on a low port")


async def test_programs_that_know_of_no_proxy_reach_what_is_listed_and_nothing_else(
    make: Callable[[list[str]], Daemon],
) -> None:
    daemon = make(["localhost", "127.0.0.1"])
    await daemon.start()
    async with upstream_443() as there:
        resolve = "import socket; print(socket.gethostbyname('Example.test.'))"
        assert (await daemon.run(f'python3 -c "{resolve}"')).text.strip() == "127.64.0.1"
        # Many programs look up with AI_ADDRCONFIG, as this one does.
        assert (await daemon.run("getent ahostsv4 other.test")).text.startswith("127.64.0.2")
        program = Path(daemon.key.workspace) / "says.py"
        program.write_text(LOOK_UP + "import sys; print(says(sys.argv[1]))")
        assert (await daemon.run("python3 says.py localhost")).text.strip() == "b'pong'"
        count = daemon.network.refused_count(daemon.key)
        assert (await daemon.run("python3 says.py example.test")).text.strip() == "b''"
        assert [to for to, _ in await daemon.network.refused_since(daemon.key, count)] == ["example.test:443"]
        assert len(there.received) == 1


async def test_a_restarted_daemon_leaves_the_sockets_where_they_are(make: Callable[[list[str]], Daemon]) -> None:
    first = make([])
    await first.start()
    await first.run("python3 -c \"import socket; socket.gethostbyname('a.test')\"")
    pid = first.broker_pid()
    await first.aclose()
    second = make([])
    await second.start()
    said = await second.run("python3 -c \"import socket; print(socket.gethostbyname('a.test'))\"")
    assert (said.text.strip(), second.broker_pid()) == ("127.64.0.1", pid)
