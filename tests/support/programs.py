"""Real processes of ours for integration tests: a world of its own on disk, hub, daemons, model endpoint, clean-up.

A world lies in a fresh folder below /srv that every user can pass through: as root, boxes run as the system user
`lodger`, which must reach its workspace; an ordinary user takes a folder of the own home. Not below /tmp or /var/tmp,
which a box has for itself, so that nothing there is outside of it.

Nothing outside a world is touched, and no process is ever found by its name: what a world started it ends by pid, and
the boxes it left it ends by their own locks and records.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from lodger_daemon.network.broker_process import find_broker
from lodger_sandbox.egress.core.wire import End, Hello, order_line
from lodger_tools.box import record as box_records
from lodger_tools.box.ending import end_unconnected
from support.machine_processes import Seen, descendants, processes
from support.patience import LIMIT_S
from support.real_boxes import box_user_for_tests

ROOT = Path(__file__).resolve().parents[2]
ENDPOINT = ROOT / "tests" / "support" / "model_endpoint.py"
LODGER = (sys.executable, "-m", "lodger_cli.main")
HEEDING = ("env", "--default-signal=INT")
"""The tests may run where an interrupt is ignored; a shell's commands do not."""

Json = dict[str, Any]


class NeverHappened(AssertionError):
    """A condition that a test waited for did not come true."""


async def until(condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
    """Wait for a condition on the outside world; returns what made it true."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while not (found := condition()):
        if asyncio.get_running_loop().time() > deadline:
            raise NeverHappened(f"within {limit_s:.0f} s: {what}")
        await asyncio.sleep(0.01)
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Program:
    """One process of ours whose first line on standard output was JSON."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    first: Json
    drain: "asyncio.Task[None]"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ended(self) -> bool:
        return self.process.returncode is not None

    def kill(self) -> None:
        """SIGKILL to this process alone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def wait(self, limit_s: float = LIMIT_S) -> int:
        try:
            return await asyncio.wait_for(self.process.wait(), limit_s)
        except TimeoutError:
            raise NeverHappened(f"{self.name} did not end within {limit_s:.0f} s\n{self.last_words()}") from None

    async def killed(self) -> None:
        self.kill()
        await self.wait()

    async def stop(self, limit_s: float = LIMIT_S) -> int:
        """Ask it to end in good order; its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        return await self.wait(limit_s)

    def last_words(self, size: int = 6000) -> str:
        try:
            text = self.log.read_text("utf-8", "replace")
        except OSError:
            return ""
        return f"--- {self.name} ({self.log.name})\n{text[-size:]}"


@dataclass
class Home:
    """What one machine of the story has on disk: HOME, LODGER_HOME and a workspace."""

    name: str
    home: Path
    lodger: Path
    workspace: Path

    @property
    def state(self) -> Path:
        return self.lodger / "state"

    @property
    def socket(self) -> Path:
        return self.state / "daemon.sock"

    @property
    def database(self) -> Path:
        return self.state / "lodger.db"

    @property
    def marker(self) -> Path:
        """Commands that must not run twice add a line here."""
        return self.workspace / "marker.txt"

    def marks(self) -> list[str]:
        return self.marker.read_text().splitlines() if self.marker.exists() else []

    def boxes(self) -> tuple[box_records.FoundBox, ...]:
        """Boxes of this home that live now."""
        folder = self.state / "boxes"
        found = []
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            record = box_records.read_record(entry)
            with contextlib.suppress(OSError):
                if record is not None and record.runner_pid and box_records.is_alive(entry):
                    found.append(box_records.FoundBox(entry, record, ""))
        return tuple(found)


@dataclass
class Endpoint:
    """The scripted model endpoint, a process of its own."""

    program: Program

    @property
    def url(self) -> str:
        return str(self.program.first["url"])

    @property
    def environment(self) -> dict[str, str]:
        return {"OPENAI_BASE_URL": f"{self.url}/v1", "OPENAI_API_KEY": "a-key-for-tests"}

    async def _ask(self, method: str, path: str) -> Any:
        def ask() -> Any:
            request = urllib.request.Request(f"{self.url}{path}", method=method)
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=LIMIT_S) as answer:
                return json.loads(answer.read())

        return await asyncio.to_thread(ask)

    async def requests(self) -> list[Json]:
        """Every model request so far, oldest first."""
        return list(await self._ask("GET", "/requests"))

    async def open_answers(self) -> int:
        return int(await self._ask("GET", "/open"))

    async def reset(self) -> None:
        await self._ask("POST", "/reset")

    async def asked(self, times: int) -> None:
        """Wait until so many requests have come."""
        for _ in range(2000):
            if len(await self.requests()) >= times:
                return
            await asyncio.sleep(0.01)
        raise NeverHappened(f"{times} model requests")


class World:
    """A folder, the processes started in it, and the promise to end them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.programs: list[Program] = []
        self.homes: list[Home] = []
        self._logs = 0
        self._while_fd, self._held_fd = os.pipe()
        """Daemons and hubs end when we are gone, also if we are killed."""

    def home(self, name: str) -> Home:
        """A fresh machine: empty HOME, empty LODGER_HOME, a workspace that boxes can use."""
        folder = self.base / name
        made = Home(name, folder / "home", folder / "lodger", folder / "work")
        for path in (folder, made.home, made.lodger):
            path.mkdir(mode=0o755)
        self.homes.append(made)
        self.workspace(made.workspace)
        return made

    def workspace(self, path: Path) -> Path:
        path.mkdir(mode=0o755, parents=True)
        user = box_user_for_tests()
        os.chown(path, user.uid, user.gid)
        return path

    def environment(self, home: Home, more: dict[str, str] | None = None) -> dict[str, str]:
        """From nothing, so that no key or setting of whoever runs the tests comes in."""
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(home.home),
            "LODGER_HOME": str(home.lodger),
            "LANG": "C.UTF-8",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            **(more or {}),
        }

    async def start(
        self,
        name: str,
        argv: Iterable[str],
        environment: dict[str, str],
        *,
        cwd: Path | None = None,
        pass_fds: tuple[int, ...] = (),
        stdin: int | None = None,
        limit_s: float = LIMIT_S,
    ) -> Program:
        """Start a process and wait for its JSON line. One that ends before has an empty `first`."""
        self._logs += 1
        log = self.base / f"{self._logs:03}-{name}.log"
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env=environment,
                cwd=cwd or self.base,
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        assert process.stdout is not None
        program = Program(name, process, log, {}, asyncio.create_task(_drain(process.stdout, None)))
        program.drain.cancel()
        self.programs.append(program)
        try:
            line = await asyncio.wait_for(process.stdout.readline(), limit_s)
        except TimeoutError:
            program.kill()
            raise NeverHappened(f"{name} said nothing within {limit_s:.0f} s\n{program.last_words()}") from None
        program.first = json.loads(line) if line.strip() else {}
        program.drain = asyncio.create_task(_drain(process.stdout, log))
        if not program.first:
            await program.wait()
        return program

    async def endpoint(self, *options: str) -> Endpoint:
        # Its standard input is ours: it ends with us, however that happens.
        argv = [sys.executable, str(ENDPOINT), "--port", "0", *options]
        program = await self.start("endpoint", argv, {"LANG": "C.UTF-8"}, stdin=subprocess.PIPE)
        return Endpoint(program)

    async def hub(
        self, home: Home, *options: str, port: int = 0, argv: tuple[str, ...] = LODGER, **more: Any
    ) -> Program:
        environment = self.environment(home, more.pop("more_environment", None))
        return await self.start(
            "hub", [*argv, "hub", "--port", str(port), *options, *self._while(more)], environment, **more
        )

    async def daemon(
        self,
        home: Home,
        *options: str,
        endpoint: Endpoint | None = None,
        argv: tuple[str, ...] = LODGER,
        more_environment: dict[str, str] | None = None,
        **more: Any,
    ) -> Program:
        environment = self.environment(home, {**(endpoint.environment if endpoint else {}), **(more_environment or {})})
        command = [*argv, "daemon", *options, *self._while(more)]
        return await self.start(f"daemon-{home.name}", command, environment, **more)

    def _while(self, how: dict[str, Any]) -> tuple[str, str]:
        how["pass_fds"] = (*how.get("pass_fds", ()), self._while_fd)
        return "--while-fd", str(self._while_fd)

    async def run(
        self,
        home: Home,
        *arguments: str,
        endpoint: Endpoint | None = None,
        stdin: str = "",
        cwd: Path | None = None,
        prefix: tuple[str, ...] = (),
        limit_s: float = LIMIT_S,
    ) -> "Ran":
        """`lodger ARGUMENTS` to its end."""
        environment = self.environment(home, endpoint.environment if endpoint else None)
        process = await asyncio.create_subprocess_exec(
            *prefix,
            *LODGER,
            *arguments,
            env=environment,
            cwd=cwd or home.workspace,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin.encode()), limit_s)
        except TimeoutError:
            process.kill()
            raise NeverHappened(f"`lodger {' '.join(arguments)}` did not end within {limit_s:.0f} s") from None
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    def strays(self) -> list[Seen]:
        """Processes, other than those in boxes, that name this world in their command line or environment."""
        mark, boxed, found = str(self.base).encode(), self._boxed(), []
        for pid, _, seen in processes():
            if pid == os.getpid() or pid in boxed:
                continue
            try:
                told = Path(f"/proc/{pid}/environ").read_bytes() + seen.command.encode()
            except OSError:
                continue
            if mark in told and seen.ticks:
                found.append(seen)
        return found

    def _boxed(self) -> set[int]:
        inside: set[int] = set()
        for home in self.homes:
            for box in home.boxes():
                inside |= {seen.pid for seen in descendants(box.record.outer_pid)} | {box.record.outer_pid}
        return inside

    def end_boxes(self) -> int:
        """End every box left in this world, each by its own lock and record; returns how many."""
        left = [box for home in self.homes for box in home.boxes()]
        for box in left:
            end_unconnected(box)
        return len(left)

    def end_brokers(self) -> None:
        """They outlive their daemons."""
        for home in self.homes:
            found = find_broker(home.state / "egress")
            if found is not None:
                with contextlib.suppress(OSError), box_records.connect(found.folder) as broker:
                    broker.sendall(order_line(Hello(found.token)) + order_line(End()))

    async def close(self) -> None:
        for program in self.programs:
            tree = [] if program.ended else descendants(program.pid)
            program.kill()
            await program.wait()
            program.drain.cancel()
            await asyncio.gather(program.drain, return_exceptions=True)
            for seen in tree:
                # Workers end with their daemon; one that does not must not outlive its world.
                with contextlib.suppress(NeverHappened):
                    await until(lambda seen=seen: not seen.alive, "it ends", 5)
                if seen.alive:
                    os.kill(seen.pid, signal.SIGKILL)
        os.close(self._while_fd)
        os.close(self._held_fd)
        await asyncio.to_thread(self.end_boxes)
        await asyncio.to_thread(self.end_brokers)

    def tell(self) -> None:
        """The end of every log, for a test that failed (pytest shows it then and not else)."""
        for program in self.programs[-8:]:
            print(program.last_words())


@dataclass(frozen=True, slots=True)
class Ran:
    """A command of ours that has ended."""

    code: int
    out: str
    err: str
    lines: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        """Its only line of output, or the last."""
        return json.loads(self.out.strip().splitlines()[-1])

    def ok(self) -> Self:
        assert self.code == 0, self
        return self


async def _drain(stream: asyncio.StreamReader, log: Path | None) -> None:
    """A process must not wait because nobody reads what it says."""
    while line := await stream.readline():
        if log is not None:
            with log.open("ab") as file:
                file.write(line)


def base_folder() -> Path:
    return Path("/srv") if os.access("/srv", os.W_OK) else Path.home()


@contextlib.asynccontextmanager
async def new_world(name: str) -> AsyncIterator[World]:
    base = Path(tempfile.mkdtemp(prefix=f"lodger-{name}-", dir=base_folder()))
    base.chmod(0o755)
    world = World(base)
    try:
        yield world
    finally:
        world.tell()
        await world.close()
        shutil.rmtree(base, ignore_errors=True)
