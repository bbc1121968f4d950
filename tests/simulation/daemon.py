"""One daemon: the real conversations, store, questions and client router over simulated surroundings."""

import asyncio
import traceback
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from lodger_daemon.clients.external_tools import ExternalToolRegistry
from lodger_daemon.clients.router import Router
from lodger_daemon.clients.services import ClientServices
from lodger_daemon.identity import AgentId
from lodger_daemon.questions.core.rules import DEFAULT_LIMIT_S
from lodger_daemon.questions.questions import QuestionBook
from lodger_daemon.randomness import SeededRng
from lodger_daemon.service.ownership_watch import watch_ownership
from lodger_daemon.spend.core.limits import Limits, SpendLimits
from lodger_daemon.spend.core.prices import Price, Rates
from lodger_daemon.spend.price_list import PriceList
from lodger_daemon.spend.spend import Spend
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreError
from lodger_daemon.turns.conductor import Conversations
from lodger_daemon.turns.services import TurnOptions, TurnServices
from simulation.boxes import Boxes, SimToolbox
from simulation.line import Line
from simulation.loop import Life
from simulation.provider import Provider, SimModels
from simulation.relay import Hub, keep_uplink
from simulation.rooms import SharedMemory, SharedRules, SimJudge, SimMemory
from simulation.wire import Frame, Wire
from simulation.world import SimClock, World
from simulation.writer import SteppedWriter


@dataclass
class Surroundings:
    """What every daemon of a run finds."""

    world: World
    provider: Provider
    boxes: Boxes
    memory: SharedMemory
    rules: SharedRules
    hub: Hub | None = None
    prices: PriceList = field(
        default_factory=lambda: PriceList({"test/model": Price(Rates(1_000, 2_000))}, lambda handle: None)
    )
    answers_sent: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Request id to conversation and question, of every answer a client gave."""
    answers_taken: dict[tuple[str, str], int] = field(default_factory=dict)
    """How many answers to a question daemons have accepted."""


class Facts:
    connection_name = "workstation"
    version = "1.2.3"
    boot_working_directory = "/boot"

    def memory_directory(self, agent_id: AgentId) -> str | None:
        return f"/memory/{agent_id}"

    async def reload(self) -> str:
        return "Settings read again"


SHOWN_OF_A_RUN: Final = frozenset(
    {"assistant_message", "reasoning_message", "approval_request_message", "client_tool_start"}
)


class SimDaemon:
    """Everything of it runs in the context of its life, and ends with that."""

    def __init__(self, surroundings: Surroundings, number: int) -> None:
        self.number = number
        self.surroundings = surroundings
        self.world = surroundings.world
        self.life = Life(f"daemon {number}")
        self.world.lives.append(self.life)
        self.ready = False
        self.ended = False
        """It stopped by itself, in good order or refusing to start."""
        self.stopping = asyncio.Event()
        self.wires: list[Wire] = []
        self.uplink_line: Line | None = None
        self._asked: dict[tuple[str, str], tuple[float, int]] = {}
        """When each question of this daemon left it first, and as which event."""
        self.asks_since_s = float("inf")
        """Questions asked before were taken over from an earlier daemon."""
        self._own: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        self.world.loop.create_task(self._run(), context=self.life.context.copy())

    def own(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.world.loop.create_task(work)
        self._own.add(task)
        task.add_done_callback(self._own.discard)

    def connect(self, take: Any, lost: Any) -> Wire:
        wire = Wire(self.world, self, take, lost)
        self.wires.append(wire)
        return wire

    def watch(self, frame: Frame) -> None:
        """Checks on what leaves a daemon, before it is under way."""
        match frame["type"]:
            case "input_accepted" if frame["accepted"] and "disposition" in frame:
                message_id = str(frame["request_id"]).partition("#")[0]
                if not self.world.look("SELECT 1 FROM inbox WHERE client_message_id = ?", message_id):
                    self.world.fail("R1 stored, then acknowledged", f"{message_id} is acknowledged and not on disk")
            case "input_accepted" if frame["accepted"]:
                answered = self.surroundings.answers_sent.get(frame["request_id"])
                if answered is not None:
                    taken = self.surroundings.answers_taken
                    taken[answered] = taken.get(answered, 0) + 1
            case "control_request" if "lodger_event" in frame:
                name = (frame["conversation_id"], frame["request_id"], frame["request"]["tool_call_id"])
                self._asked.setdefault(name[:2], (self.world.loop.time(), frame["lodger_event"]))
            case "lodger_question_settled":
                self._watch_settled(frame)
            case "stream_delta":
                self._watch_delta(frame["delta"])
            case _:
                pass

    def _watch_delta(self, delta: Frame) -> None:
        """What is shown of a step outlives a crash: its run and the results of its calls are on disk before."""
        run_id, kind, call_id = delta.get("run_id"), delta.get("message_type"), delta.get("tool_call_id")
        on_disk = True
        if kind in SHOWN_OF_A_RUN:
            on_disk = bool(self.world.look("SELECT 1 FROM runs WHERE run_id = ?", run_id))
        elif kind == "client_tool_end":
            query = "SELECT 1 FROM messages WHERE run_id = ? AND tool_call_id = ?"
            on_disk = bool(self.world.look(query, run_id, call_id))
        if not on_disk:
            self.world.fail("R2 stored, then shown", f"{kind} of {run_id} is shown and not on disk")

    def _watch_settled(self, frame: Frame) -> None:
        """R8: a question waits for its whole limit, whatever the clocks do meanwhile."""
        name = (frame["runtime"]["conversation_id"], frame["request_id"])
        asked_s, number = self._asked.get(name, (0.0, 0))
        if number == 0 or frame["lodger_event"] < number:
            # Of an older question of the same name, told late.
            return
        del self._asked[name]
        if frame["outcome"] != "expired" or asked_s < self.asks_since_s:
            return
        if asked_s - self.world.jumped_s < DEFAULT_LIMIT_S:
            # The machine slept; a frame may have lain in a dead socket all that time.
            return
        waited_s = self.world.loop.time() - asked_s
        if waited_s < DEFAULT_LIMIT_S - 60:
            self.world.fail("R8 clocks expire no question", f"{name} expired after {waited_s:.0f} s")

    # -- the process --

    async def _run(self) -> None:
        try:
            await self._live()
        except StoreError as error:
            self.world.note(self.life.name, f"cannot go on: {error}")
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.world.fail("nothing unforeseen", f"{error!r} at {place.filename}:{place.lineno}")
        finally:
            self.ready, self.ended = False, True

    async def _live(self) -> None:
        around, world, clock = self.surroundings, self.world, SimClock(self.world)
        rng = SeededRng(self.world.chance.getrandbits(60))
        self.database = Database.open(
            world.database, clock=clock, make_writer=lambda c, p, e: SteppedWriter(c, p, e, world)
        )
        world.owner = self.life
        limits = SpendLimits(turn=Limits(tokens=world.weather.turn_tokens))
        toolbox = SimToolbox(around.boxes, self.life)
        if world.disk_is_full:
            self.writer.set_full(True)
        external = ExternalToolRegistry(rng)
        models = SimModels(around.provider, self.life)
        questions = QuestionBook(self.database, clock)
        await questions.load()
        self.conversations = Conversations(
            TurnServices(
                database=self.database,
                questions=questions,
                models=models,
                toolbox=toolbox,
                memory=SimMemory(world, around.memory),
                external=external,
                judge=SimJudge(world, around.rules),
                clock=clock,
                rng=rng,
                memory_directory=lambda agent_id: "/memory",
                options=TurnOptions(workspace="/tmp"),
                spend=Spend(self.database, clock, limits, around.prices),
            )
        )
        try:
            await self.conversations.recover()
            self.router = Router(
                ClientServices(
                    conversations=self.conversations,
                    models=models,
                    facts=Facts(),
                    external_tools=external,
                    clock=clock,
                    rng=rng,
                )
            )
            beside = [self.world.loop.create_task(watch_ownership(self.database, clock, self.stopping))]
            if around.hub is not None:
                beside.append(self.world.loop.create_task(keep_uplink(self, around.hub, clock, rng)))
            self.ready = True
            self.asks_since_s = world.loop.time() + 1.0
            world.note(self.life.name, f"is ready with epoch {self.database.epoch}")
            await self.stopping.wait()
            self.ready = False
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            for wire in self.wires:
                wire.cut()
            await self.router.aclose()
        finally:
            world.note(self.life.name, "stops")
            await self.conversations.aclose(toolbox.let_go)
            await self.database.aclose()

    @property
    def is_open(self) -> bool:
        return hasattr(self, "database") and not self.ended

    @property
    def writer(self) -> SteppedWriter:
        writer = self.database._writer
        assert isinstance(writer, SteppedWriter)
        return writer

    def leaked(self) -> list[str]:
        """Tasks that still run although the daemon has stopped."""
        return [repr(task) for task in self.life.tasks if not task.done()]


def close_files(daemon: SimDaemon) -> None:
    """A dead process keeps no file open."""
    database = getattr(daemon, "database", None)
    if database is None:
        return
    connections = [database._writer.connection, database._now_connection, *database._reader_connections]
    for connection in connections:
        if connection is not None:
            connection.close()
