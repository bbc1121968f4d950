"""Scripted stand-ins for the rooms around the turn machine: model, toolbox, memory, rules, clients' tools.

They keep the other rooms' contracts; the store and everything in `turns/` and `backends/` are real.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lodger_daemon.clock import MonoTime, WallTime
from lodger_daemon.identity import AgentId, ClientMessageId, ConversationKey
from lodger_daemon.memory.contract import (
    AgentCard,
    CompiledMemory,
    ImportReport,
    SyncOutcome,
    SyncStatus,
)
from lodger_daemon.models.contract import (
    FinishReason,
    ModelChunk,
    ModelFailure,
    ModelInfo,
    ModelRequest,
    ProviderStatus,
    StepEnded,
    TextChunk,
    ToolCallChunk,
    Usage,
)
from lodger_daemon.network.contract import AllowedHosts
from lodger_daemon.questions.questions import QuestionBook
from lodger_daemon.randomness import SeededRng
from lodger_daemon.spend.core.limits import SpendLimits
from lodger_daemon.spend.price_list import PriceList
from lodger_daemon.spend.spend import Spend
from lodger_daemon.store.database import Database
from lodger_daemon.turns.conductor import Conversations
from lodger_daemon.turns.contract import InputMessage, NewAgent, StartRuntime, Submission
from lodger_daemon.turns.core.events import ConversationEvent, LoopStatusChanged, NumberedEvent
from lodger_daemon.turns.services import TurnOptions, TurnServices
from lodger_tools.box.contract import BoxKey, PinnedFile
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, Denied, NeedsPerson, Suggestion, Verdict
from lodger_tools.toolbox_contract import EffectUnknown, Scheduling, ToolDescription, ToolOutcome, ToolRequest
from lodger_tools.validator.tree import Layout
from support.patience import LIMIT_S

SCHEMA: JsonObject = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


class TestClock:
    """Real waiting is skipped: a sleep ends as soon as a test moves the time past it."""

    __test__ = False

    def __init__(self) -> None:
        self.now = 1_000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def wall(self) -> WallTime:
        return WallTime(1_790_000_000.0 + self.now)

    def mono(self) -> MonoTime:
        return MonoTime(self.now)

    async def sleep(self, delay_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self.now + delay_s, future)
        self._sleepers.append(entry)
        try:
            await future
        finally:
            self._sleepers.remove(entry)

    @property
    def sleeping(self) -> int:
        return len(self._sleepers)

    def advance(self, by_s: float) -> None:
        self.now += by_s
        for until, future in self._sleepers:
            if until <= self.now and not future.done():
                future.set_result(None)


@dataclass
class Gate:
    """Somewhere a script waits until the test lets it go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        self.reached.set()
        await self.opened.wait()


Scripted = ModelChunk | Gate | ModelFailure


def says(*texts: str, finish: FinishReason = FinishReason.STOP) -> list[Scripted]:
    return [*(TextChunk(text) for text in texts), StepEnded(finish, Usage(prompt=10, completion=2))]


def calls(*commands: str, name: str = "Bash", ids: tuple[str, ...] | None = None) -> list[Scripted]:
    """A step that calls one tool per command; the ids are c1, c2 …"""
    names = ids or tuple(f"c{index + 1}" for index in range(len(commands)))
    chunks: list[Scripted] = [
        ToolCallChunk(index, names[index], name, json.dumps({"command": command}))
        for index, command in enumerate(commands)
    ]
    return [*chunks, StepEnded(FinishReason.TOOL_CALLS, Usage(prompt=10, completion=2))]


class ScriptedModels:
    """Plays one script per request, in order; keeps the requests."""

    def __init__(self) -> None:
        self.scripts: list[list[Scripted]] = []
        self.requests: list[ModelRequest] = []
        self.open_streams = 0
        self.window = 100_000

    def play(self, *scripts: list[Scripted]) -> None:
        self.scripts.extend(scripts)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        self.requests.append(request)
        script = self.scripts.pop(0) if self.scripts else says("nothing more to say")
        self.open_streams += 1
        try:
            for item in script:
                match item:
                    case Gate():
                        await item.wait()
                    case ModelFailure():
                        raise item
                    case _:
                        yield item
        finally:
            self.open_streams -= 1

    async def default_handle(self) -> str:
        return "test/model"

    async def list_models(self, refresh: bool = False) -> tuple[ModelInfo, ...]:
        return ()

    async def describe(self, handle: str) -> ModelInfo | None:
        return ModelInfo(handle, handle, "", self.window, 1_000, "test")

    async def connect(self, provider: str, fields: dict[str, str]) -> None:
        raise ValueError("no")

    async def disconnect(self, provider: str) -> bool:
        return False

    async def providers(self) -> tuple[ProviderStatus, ...]:
        return ()


class ScriptedToolbox:
    """`Bash` is a barrier, `Read` runs in parallel. A command may have a gate, an outcome, or lose its box."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.ended: list[str] = []
        self.collected: list[str] = []
        self.gates: dict[str, Gate] = {}
        self.collect_gates: dict[str, Gate] = {}
        self.lost: set[str] = set()
        self.collectable: dict[str, ToolOutcome] = {}
        self.outcomes: dict[str, ToolOutcome] = {}
        self.outputs: dict[str, tuple[str, ...]] = {}
        self.pins: dict[str, tuple[PinnedFile, ...]] = {}
        self.pinned: list[tuple[PinnedFile, ...]] = []
        """Of the calls that ran."""
        self.real_paths: dict[str, str] = {}
        self.path_gates: dict[str, Gate] = {}

    def tools(self, allowlist: tuple[str, ...] | None = None) -> tuple[ToolDescription, ...]:
        every = (
            ToolDescription("Bash", "runs a command", SCHEMA, Scheduling.BARRIER),
            ToolDescription("Read", "reads", SCHEMA, Scheduling.PARALLEL, only_reads=True),
        )
        return tuple(tool for tool in every if allowlist is None or tool.name in allowlist)

    def check(self, tool_name: str, arguments_json: str) -> JsonObject | str:
        try:
            value = json.loads(arguments_json)
        except ValueError:
            return "The arguments are not JSON."
        return value if isinstance(value, dict) and "command" in value else "command is missing"

    async def run(self, request: ToolRequest, on_output: Callable[[str], None] | None = None) -> ToolOutcome:
        command = str(request.arguments["command"])
        self.ran.append(command)
        self.pinned.append(request.pinned)
        for text in self.outputs.get(command, ()):
            if on_output is not None:
                on_output(text)
        if command in self.gates:
            await self.gates[command].wait()
        if command in self.lost:
            raise EffectUnknown
        self.ended.append(command)
        return self.outcomes.get(command, ToolOutcome("success", f"ran {command}"))

    async def collect(self, request: ToolRequest) -> ToolOutcome | None:
        self.collected.append(request.call_key)
        if gate := self.collect_gates.get(str(request.arguments["command"])):
            await gate.wait()
        return self.collectable.get(str(request.arguments["command"]))

    async def preview(self, request: ToolRequest) -> tuple[JsonObject, ...]:
        return ()

    async def pin(self, request: ToolRequest) -> tuple[PinnedFile, ...]:
        return self.pins.get(str(request.arguments["command"]), ())

    async def real_path(self, request: ToolRequest) -> str | None:
        if gate := self.path_gates.get(str(request.arguments["command"])):
            await gate.wait()
        return self.real_paths.get(str(request.arguments["command"]))


class ScriptedMemory:
    """A memory whose published head a test moves."""

    def __init__(self) -> None:
        self.head: str | None = "commit-1"
        self.text = "The person likes tea."
        self.layout = Layout.V2
        self.news = ""
        self.prepared: list[AgentId] = []
        self.turns_ended = 0
        self.reports: list[ImportReport] = []
        self.remote: tuple[AgentId, ...] = ()
        self.states: tuple[str, ...] = ()
        self.cards: list[tuple[AgentId, dict[str, str]]] = []

    async def prepare(
        self, agent_id: AgentId, card: AgentCard | None, progress: Callable[[str], None] | None = None
    ) -> AgentCard:
        self.prepared.append(agent_id)
        return card or AgentCard("from the remote")

    def checkout_path(self, agent_id: AgentId) -> str:
        return f"/host/{agent_id}"

    async def compiled(self, agent_id: AgentId) -> CompiledMemory:
        return CompiledMemory(self.head, self.text, self.layout)

    def standing(self, agent_id: AgentId) -> str | None:
        return self.head

    async def changed_since(self, agent_id: AgentId, standing: str | None) -> tuple[str | None, str]:
        return self.head, self.news if standing != self.head else ""

    async def follow_card(self, agent_id: AgentId, changes: Mapping[str, str]) -> None:
        self.cards.append((agent_id, dict(changes)))

    async def import_commits(self, agent_id: AgentId, box: BoxKey, told_head: str = "") -> ImportReport:
        if self.reports:
            report = self.reports.pop(0)
            self.head = report.head
            return replace(report, standing=report.head)
        return ImportReport(False, self.head)

    def turn_ended(self, agent_id: AgentId, box: BoxKey | None) -> None:
        self.turns_ended += 1

    def head_announced(self, agent_id: AgentId, head: str) -> None:
        pass

    async def freshen(self, agent_id: AgentId, limit_s: float = 0.3) -> None:
        pass

    def status(self, agent_id: AgentId) -> SyncStatus:
        return SyncStatus(SyncOutcome.SKIPPED, self.head, 0, None)

    def reminders(self, agent_id: AgentId) -> tuple[str, ...]:
        return self.states

    async def settled(self, agent_id: AgentId, limit_s: float) -> SyncStatus:
        return self.status(agent_id)

    async def known_agents(self) -> tuple[AgentId, ...]:
        return self.remote


class ScriptedJudge:
    """Allows what no rule names. Commands that begin with `ask` ask, with `deny` are denied."""

    def __init__(self) -> None:
        self.saved: list[Suggestion] = []
        self.denied: set[str] = set()
        self.judged: list[str] = []
        self.path_rules = False
        self.real_paths: list[str | None] = []

    def judge(self, call: CallToJudge, mode: Mode) -> Verdict:
        command = str(call.arguments.get("command", ""))
        self.judged.append(command)
        self.real_paths.append(call.real_path)
        if command.startswith("deny") or command in self.denied:
            return Denied("a rule denies it")
        if mode is not Mode.UNRESTRICTED and command.startswith("ask") and not self.saved:
            return NeedsPerson("leaves the box", suggestions=(Suggestion("save-default", "Bash(ask:*)", "ask…"),))
        return Allowed("the box contains it")

    def looks_at_paths(self, tool_name: str) -> bool:
        return self.path_rules

    async def save_rule(self, suggestion: Suggestion, workspace: str) -> None:
        self.saved.append(suggestion)


class ScriptedExternal:
    def __init__(self) -> None:
        self.brought: tuple[ToolDescription, ...] = ()
        self.called: list[tuple[str, JsonObject]] = []

    def tools(self, key: ConversationKey) -> tuple[ToolDescription, ...]:
        return self.brought

    async def call(self, key: ConversationKey, tool_call_id: str, name: str, arguments: JsonObject) -> ToolOutcome:
        self.called.append((name, arguments))
        return ToolOutcome("success", f"client ran {name}")


def message(text: str, client_message_id: str, **options: object) -> Submission:
    """One message of a person."""
    one = InputMessage(ClientMessageId(client_message_id), text, client_message_id)
    return Submission((one,), **options)  # type: ignore[arg-type]


def as_kept(event: ConversationEvent) -> ConversationEvent:
    """The event as it can be read again later."""
    if isinstance(event, LoopStatusChanged) and event.client_message_ids:
        own = {run: ids for run, ids in event.client_message_ids.items() if run == event.run_id}
        return replace(event, client_message_ids=own or None)
    return event


class House:
    """A daemon's turns over a real database. `crash` leaves it as a kill would; `restart` opens it again."""

    def __init__(self, folder: Path, options: TurnOptions | None = None) -> None:
        self.folder = folder
        self.options = options or TurnOptions(workspace=str(folder))
        self.clock = TestClock()
        self.models = ScriptedModels()
        self.toolbox = ScriptedToolbox()
        self.memory = ScriptedMemory()
        self.judge = ScriptedJudge()
        self.external = ScriptedExternal()
        self.spend_limits: SpendLimits | None = None
        """None = nothing is counted."""
        self.hosts: AllowedHosts | None = None
        self.events: list[ConversationEvent] = []
        self.numbers: list[int] = []
        self._changed = asyncio.Event()
        self._seed = 0
        self._opened: list[tuple[Conversations, Database]] = []

    async def open(self) -> None:
        self._seed += 1
        self.database = Database.open(self.folder / "lodger.db", clock=self.clock)
        self.book = QuestionBook(self.database, self.clock)
        self.conversations = Conversations(
            TurnServices(
                database=self.database,
                questions=self.book,
                models=self.models,
                toolbox=self.toolbox,
                memory=self.memory,
                external=self.external,
                judge=self.judge,
                clock=self.clock,
                rng=SeededRng(self._seed),
                memory_directory=lambda agent_id: "/memory",
                options=self.options,
                spend=self._spend(),
                hosts=self.hosts,
            )
        )
        self._opened.append((self.conversations, self.database))

    def _spend(self) -> Spend | None:
        if self.spend_limits is None:
            return None
        return Spend(self.database, self.clock, self.spend_limits, PriceList({}, lambda handle: None))

    async def start(self) -> ConversationKey:
        """Open the house with one agent and its default conversation."""
        await self.open()
        started = await self.conversations.start_runtime(StartRuntime(new_agent=NewAgent(), conversation_id="default"))
        self.key = started.key
        self.listen()
        return started.key

    def listen(self) -> None:
        self.conversations.subscribe(self.key, self._hear)

    def _hear(self, numbered: NumberedEvent) -> None:
        self.events.append(numbered.event)
        self.numbers.append(numbered.number)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that an event brings about."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self._changed.clear()
                if condition():
                    return
                waiter = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait({waiter}, timeout=0.01)
                waiter.cancel()

    def seen(self, kind: type) -> list[ConversationEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until_seen(self, kind: type, count: int = 1) -> list[ConversationEvent]:
        await self.until(lambda: len(self.seen(kind)) >= count)
        return self.seen(kind)

    async def say(self, text: str, client_message_id: str, **options: object) -> object:
        return await self.conversations.submit(self.key, message(text, client_message_id, **options))

    async def settled(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.conversations.settled(self.key)

    async def crash(self) -> None:
        """Nothing more is written, as after `kill -9`: the database closes under the turn."""
        for conversations, database in self._opened:
            for actor in conversations._registry._actors.values():
                actor.desk.stopping = True
            await database.aclose()
            await conversations.aclose()
        self._opened.clear()

    async def restart(self, recover: bool = True) -> None:
        await self.open()
        self.events.clear()
        self.listen()
        if recover:
            await self.conversations.recover()

    async def close(self) -> None:
        for conversations, database in self._opened:
            await conversations.aclose()
            await database.aclose()
        self._opened.clear()
