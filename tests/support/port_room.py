"""The ports room on real boxes, a clock that a test moves, and a person whose answers it gives."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from lodger_daemon.ports.contract import PortRules
from lodger_daemon.ports.core.pace import LONGEST_S
from lodger_daemon.ports.ports import ListedPort, Ports
from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, RunCommand
from lodger_tools.box.manager import BoxManager
from lodger_tools.json_value import JsonObject
from support.asked_person import AskedPerson
from support.hub_rig import until
from support.real_boxes import RealRequests
from support.turn_parts import TestClock


def server_port(beside: int = 0) -> int:
    """One that is free here, with so many behind it, and none of those that the system chooses for programs: nobody is
    asked about these. Workers of a test run, which have pids beside each other, look in different places."""
    for port in range(20000 + os.getpid() * 8 % 12000, 32700):
        with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
            for number in range(port, port + beside + 1):
                opened.enter_context(socket.socket()).bind(("127.0.0.1", number))
            return port
    raise AssertionError("no port is free")


class Rules:
    """Keeps `PortRules`' contract."""

    def __init__(self) -> None:
        self.may_grow = True
        self.always: set[tuple[str, int]] = set()

    def opens(self, workspace: str, port: int) -> bool:
        return (workspace, port) in self.always

    async def add(self, workspace: str, ports: Sequence[int]) -> None:
        self.always |= {(workspace, port) for port in ports}


class Person(AskedPerson[tuple[int, ...], int]):
    """Keeps `PortAsker`'s contract."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    async def ask_about_ports(self, box: BoxKey, ports: Sequence[int], rules: PortRules) -> frozenset[int] | None:
        return await self.ask(tuple(ports))

    def tell(self, box: BoxKey, text: str) -> None:
        self.told.append(text)


class CountingClock(TestClock):
    """Tells how often somebody has begun to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps = 0

    async def sleep(self, delay_s: float) -> None:
        self.sleeps += 1
        await super().sleep(delay_s)


class PortRoom:
    """One daemon's worth of it; another on the same `state` adopts the boxes."""

    def __init__(self, state: Path, workspace: Path, *, asks: bool = True) -> None:
        self.state, self.workspace = state, workspace
        self.clock, self.person, self.rules = CountingClock(), Person(), Rules()
        self.audit: list[tuple[str, str, str]] = []
        self.spoken_to: list[str] = []
        self.ports = Ports(self.rules, self.clock, self._note, asks=asks, spoken_to=lambda: self.spoken_to)
        self.ports.let_ask(self.person)
        self.manager = BoxManager(
            state / "boxes", RealRequests(state, workspace.parent / "no-home"), watcher=self.ports
        )
        self.key = BoxKey("agent-room", str(workspace))
        self._looking: asyncio.Task[None] | None = None
        self._count = 0

    def _note(self, agent_id: str, action: str, subject: str, detail: JsonObject) -> None:
        self.audit.append((action, subject, str(detail["by"])))

    def start(self) -> None:
        self._looking = asyncio.create_task(self.ports.keep_looking(self.manager))

    async def run(self, command: str, key: BoxKey | None = None) -> BoxOutcome:
        self._count += 1
        call = BoxCall(f"{id(self)}-{self._count}", RunCommand(command), str(self.workspace))
        return await self.manager.run(key or self.key, call)

    async def serve(self, program: str, *ports: int) -> None:
        """Run it in the background of the box and wait until all of the ports listen there."""
        await self.run(f"(echo $BASHPID >server.pid; {program}) >server.log 2>&1 &")
        for port in ports:
            tries = " || ".join(f"(exec 3<>/dev/tcp/{host}/{port}) 2>/dev/null" for host in ("127.0.0.1", "::1"))
            waiting = f"for i in $(seq 500); do ({tries}) && exit; sleep 0.02; done"
            outcome = await self.run(f"{waiting}; cat server.log; exit 1")
            assert outcome.exit_code == 0, outcome.text

    async def stop_server(self) -> None:
        """The last one that was started with `exec`."""
        gone = "while kill -0 $(cat server.pid) 2>/dev/null; do sleep 0.02; done"
        await self.run(f"kill $(cat server.pid); {gone}")

    async def look(self) -> None:
        """One whole look into every box."""
        await until(lambda: self.clock.sleeping == 1, "the next look is waited for")
        before = self.clock.sleeps
        self.clock.advance(LONGEST_S)
        await until(lambda: self.clock.sleeps > before, "the look is over")

    def seen(self, number: int) -> ListedPort | None:
        return next((one for one in self.ports.listed() if one.number == number), None)

    def states(self) -> dict[int, str]:
        return {one.number: one.port.state.value for one in self.ports.listed()}

    async def allowed(self, number: int) -> int:
        """Look, let the person allow it, and return where it is open."""
        await self.look()
        await until(lambda: bool(self.person.asked), "a person is asked")
        self.person.answers[-1].set_result(frozenset({number}))
        return await self.opened(number)

    async def opened(self, number: int) -> int:
        def local_port() -> int | None:
            one = self.seen(number)
            return None if one is None else one.local_port

        await until(lambda: local_port() is not None, f"port {number} is open")
        written = ("port.opened", str(number))
        await until(lambda: written in (entry[:2] for entry in self.audit), "that it is open is written down")
        found = local_port()
        assert found is not None
        return found

    async def let_go(self) -> None:
        """As a daemon that stops: boxes go on."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self.manager.aclose()
        await self.ports.aclose()


@asynccontextmanager
async def port_room(state: Path, workspace: Path, *, asks: bool = True) -> AsyncIterator[PortRoom]:
    """Its boxes end with it, unless a test has let go of them."""
    room = PortRoom(state, workspace, asks=asks)
    room.start()
    try:
        yield room
    finally:
        for status in room.manager.statuses():
            await room.manager.end(status.key)
        await room.let_go()
