"""One seed from beginning to end: a plan made by chance, its misfortunes, then calm, then every promise looked at."""

import asyncio
import gc
import logging
import re
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from lodger_daemon.identity import AgentId, ClientMessageId, ConversationId, ConversationKey
from lodger_daemon.store import agent_rows, conversation_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import OwnershipLost, StoreBusy, StoreClosed, StoreFull
from lodger_daemon.turns.contract import AgentRecord, InputMessage, Submission
from simulation import laws
from simulation.boxes import Boxes
from simulation.client import Client
from simulation.daemon import SimDaemon, Surroundings, close_files
from simulation.loop import LIFE, Halted, LifeState, Stalled
from simulation.plan import OTHER, Plan, make_plan
from simulation.provider import Provider
from simulation.relay import Hub
from simulation.rooms import SharedMemory, SharedRules
from simulation.world import SimClock, World

AGENT: Final = "agent-of-the-run"
SETTLE_LIMIT_S: Final = 6 * 3600.0
"""Virtual time for everything to come to rest once nothing goes wrong any more: some questions may have to expire."""

RESTART_S: Final = 5.0

REAL_CHANCE: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class Verdict:
    seed: int
    fault: str | None
    trace: list[tuple[float, str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    digest: int = 0


class Run:
    """Owns all parts of one seed."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.agent_id = AGENT
        self.provider = Provider(world)
        self.memory = SharedMemory()
        self.boxes = Boxes(world, self.memory.remember)
        self.hub = Hub(world) if plan.has_hub else None
        self.around = Surroundings(world, self.provider, self.boxes, self.memory, SharedRules(), self.hub)
        self.daemon: SimDaemon | None = None
        self.daemons: list[SimDaemon] = []
        self.external_calls: dict[tuple[str, str, str], int] = {}
        self.sent: dict[str, tuple[str, str]] = {}
        """Message id to conversation and text, of everything any client was given to say."""
        self.clients = [Client(self, f"client{n}", plan.conversations, c) for n, c in enumerate(plan.clients)]
        self.settling = False
        self.notices = 0
        self.counts = {"crashes": 0, "freezes": 0, "requests": 0, "effects": 0, "messages": 0}

    # -- daemons --

    def start_daemon(self) -> None:
        daemon = SimDaemon(self.around, len(self.daemons) + 1)
        self.daemons.append(daemon)
        self.daemon = daemon
        daemon.start()
        self.world.later(RESTART_S, self._supervise, daemon)

    def _supervise(self, daemon: SimDaemon) -> None:
        """As a service manager does: a daemon that ended is started again."""
        if daemon is not self.daemon:
            return
        if daemon.ended and not (self.settling and self.finished):
            self.start_daemon()
            return
        self.world.later(RESTART_S, self._supervise, daemon)

    finished = False

    def crash_after(self, callbacks: int) -> None:
        """Kill the daemon when so many more of its callbacks have run."""
        daemon = self.daemon
        if daemon is None or daemon.life.state is not LifeState.ALIVE or daemon.ended:
            return
        daemon.life.fuse = callbacks
        daemon.life.blow = lambda: self.crash(daemon)

    def crash(self, daemon: SimDaemon) -> None:
        world = self.world
        if daemon.life.state is LifeState.DEAD:
            return
        world.note(daemon.life.name, "is killed")
        self.counts["crashes"] += 1
        daemon.life.state = LifeState.DEAD
        daemon.ready = False
        for wire in daemon.wires:
            wire.cut()
        if daemon.uplink_line is not None:
            daemon.uplink_line.cut()
        world.later(0.0, close_files, daemon)
        if daemon is self.daemon:
            self.daemon = None
            world.later(world.between(0.05, 20), self.start_daemon)

    def freeze(self, for_s: float, replaced: bool) -> None:
        """SIGSTOP; `replaced` when another daemon takes its place meanwhile."""
        daemon = self.daemon
        if daemon is None or daemon.life.state is not LifeState.ALIVE:
            return
        self.counts["freezes"] += 1
        self.world.note(daemon.life.name, f"is frozen for {for_s:.1f} s{', and replaced' if replaced else ''}")
        daemon.life.state = LifeState.FROZEN
        if replaced:
            for client in self.clients:
                client.cut()
            self.start_daemon()
        self.world.later(for_s, self._thaw, daemon)

    def _thaw(self, daemon: SimDaemon) -> None:
        if daemon.life.state is LifeState.FROZEN:
            self.world.note(daemon.life.name, "wakes")
            daemon.life.thaw(self.world.loop)

    def fill_disk(self, for_s: float) -> None:
        self._set_full(True)
        self.world.later(for_s, self._set_full, False)

    def _set_full(self, full: bool) -> None:
        if full == self.world.disk_is_full:
            return
        self.world.note("disk", "is full" if full else "has space again")
        self.world.disk_is_full = full
        for daemon in self.daemons:
            if daemon.life.state is not LifeState.DEAD and daemon.is_open:
                daemon.writer.set_full(full)

    def give_notice(self, conversation: str, count: int) -> None:
        daemon = self.daemon
        if daemon is None or not daemon.ready or daemon.life.state is not LifeState.ALIVE:
            return
        self.world.note(daemon.life.name, f"has {count} notices for {conversation}")
        key = ConversationKey(AgentId(AGENT), ConversationId(conversation))

        async def give() -> None:
            for _ in range(count):
                self.notices += 1
                name = f"notice-{self.notices}"
                message = InputMessage(ClientMessageId(name), f"{name}: the build is done", name)
                await daemon.conversations.submit_notice(
                    key, Submission((message,)), "task_notification", "task_notification"
                )

        daemon.life.run(daemon.own, give())

    # -- what clients report --

    def external_call(self, conversation: str, tool_call_id: str, text: str) -> None:
        name = (conversation, tool_call_id, text)
        self.external_calls[name] = self.external_calls.get(name, 0) + 1
        if self.external_calls[name] > 1:
            self.world.fail("R3 no effect twice", f"{text} was asked of a client again")

    # -- the course --

    async def play(self) -> None:
        self.start_daemon()
        for client in self.clients:
            self.world.later(self.world.between(0.0, 2.0), client.connect)
        for act in self.plan.acts:
            self.world.later(act.at_s, act.do, self)
        await asyncio.sleep(self.plan.length_s)
        self._calm()
        await self._settle()
        self.finished = True
        await self._stop()
        laws.check_all(self)

    def _calm(self) -> None:
        """Nothing goes wrong from here on."""
        self.world.note("plan", "calm from here on")
        self.settling = True
        self.world.weather.clear_up()
        for daemon in self.daemons:
            daemon.life.fuse = None
        for life in self.world.lives:
            if life.state is LifeState.FROZEN:
                life.thaw(self.world.loop)
        self._set_full(False)
        for client in self.clients:
            client.connect()

    async def _settle(self) -> None:
        world = self.world
        deadline_s = world.loop.time() + SETTLE_LIMIT_S
        pause_s = 5.0
        while world.loop.time() < deadline_s:
            await asyncio.sleep(pause_s)
            pause_s = min(120.0, pause_s * 1.1)
            for client in self.clients:
                for conversation, kept in client.kept.items():
                    if any(item.get("paused") for item in kept.queue):
                        client.resume_queue(conversation)
            unrest = laws.unrest(self)
            if not unrest:
                # Some more for what is only written in passing, and for the clients to see the end.
                await asyncio.sleep(200.0)
                if not laws.unrest(self):
                    return
        world.fail("no turn is stuck", f"after {SETTLE_LIMIT_S:g} s of calm: {laws.unrest(self)}")

    async def _stop(self) -> None:
        daemon = self.daemon
        assert daemon is not None
        for client in self.clients:
            client._wanted = False
        daemon.stopping.set()
        for _ in range(600):
            await asyncio.sleep(1.0)
            if daemon.ended:
                break
        else:
            self.world.fail("the daemon stops", f"still running: {daemon.leaked()}")
        for each in self.daemons:
            if each.life.state is LifeState.ALIVE and (leaked := each.leaked()):
                self.world.fail("no task leaks", f"{each.life.name} left {leaked}")


class Ears(logging.Handler):
    """Hears what the product logs: a fault that nobody foresaw is a fault of the run."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        life = LIFE.get()
        if life is not None and life.state is not LifeState.ALIVE:
            return
        error = record.exc_info[1] if record.exc_info else None
        text = f"{record.getMessage()} {error!r}" if error else record.getMessage()
        # The hub names its clients by real chance, and a seed plays the same every time.
        self._world.note("log", REAL_CHANCE.sub("ID", text))
        if error is not None and not isinstance(error, OwnershipLost | StoreFull | StoreBusy | StoreClosed):
            place = traceback.extract_tb(error.__traceback__)[-1]
            self._world.fail("nothing unforeseen", f"{error!r} at {place.filename.rsplit('/', 2)[-1]}:{place.lineno}")


@lru_cache(maxsize=1)
def template() -> bytes:
    """A fresh database with one agent, as bytes."""

    async def make(folder: Path) -> None:
        world = World(0, folder)
        clock = SimClock(world)
        database = Database.open(world.database, clock=clock)
        now = clock.wall()
        record = AgentRecord(AgentId(AGENT), "Sim", "", "test/model", "", (), now, now)
        await database.write(lambda connection: agent_rows.insert(connection, record))
        key = ConversationKey(record.id, ConversationId(OTHER))
        await database.write(lambda connection: conversation_rows.ensure(connection, key, now))
        await database.aclose()
        world.loop.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(make(Path(folder)))
        return (Path(folder) / "lodger.db").read_bytes()


def memory_folder() -> Path:
    """On a file system in memory where there is one."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="lodger-sim-", dir=shared if shared.is_dir() else None))


def play_seed(seed: int, keep_trace: bool = False, before: Callable[[Run], None] | None = None) -> Verdict:
    """Play one seed. The verdict's fault is None when every promise was kept."""
    data = template()
    folder = memory_folder()
    (folder / "lodger.db").write_bytes(data)
    world = World(seed, folder, keep_trace)
    run = Run(world, make_plan(world))
    if before is not None:
        before(run)
    gc.disable()
    ears = Ears(world)
    logging.getLogger().addHandler(ears)
    fault: str | None = None
    try:
        asyncio.set_event_loop(world.loop)
        main = world.spawn(run.play())
        world.loop.run_until_complete(main)
        if world.loop.unheard:
            fault = f"unheard: {world.loop.unheard[0]}"
    except Halted as error:
        fault = str(error)
    except Stalled as error:
        fault = f"stalled: {error}"
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
        if keep_trace:
            raise
    finally:
        for daemon in run.daemons:
            close_files(daemon)
        counts = {**run.counts, "requests": run.provider.requests, "effects": len(run.boxes.ledger)}
        counts["messages"] = len(run.sent)
        counts["steps"] = world.loop.steps
        world.close()
        asyncio.set_event_loop(None)
        logging.getLogger().removeHandler(ears)
        gc.enable()
    return Verdict(seed, fault, world.trace, counts, world.digest)
