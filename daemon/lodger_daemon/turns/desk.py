"""The desk of one conversation: what its turn works with, and the turn's own papers."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from lodger_daemon.backends.core.step_assembly import StepAssembly
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.backends.local.backend import BuiltRequest, LocalBackend, Standing
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import (
    AgentId,
    ClientMessageId,
    ConversationKey,
    MessageId,
    QuestionId,
    RunId,
    ToolCallId,
    TurnId,
)
from lodger_daemon.inbox.core.items import InboxItem, TurnSettings
from lodger_daemon.inbox.core.rules import REMEMBERED, batch_content, batch_settings
from lodger_daemon.models.contract import ModelRequest, Usage
from lodger_daemon.spend.contract import Charge, StepUse
from lodger_daemon.store import inbox_rows, spend_rows
from lodger_daemon.store.errors import StoreError
from lodger_daemon.store.patience import until_stored
from lodger_daemon.turns.beside import CommitsBeside
from lodger_daemon.turns.contract import Answer
from lodger_daemon.turns.core.events import (
    ConversationEvent,
    LoopStatus,
    LoopStatusChanged,
    QuestionAsked,
    QueueChanged,
    QueueRemoval,
    RetryAnnounced,
    StatusNote,
)
from lodger_daemon.turns.core.machine_events import MachineEvent
from lodger_daemon.turns.core.states import Lease
from lodger_daemon.turns.event_log import EventLog
from lodger_daemon.turns.live import LiveConversation, Place
from lodger_daemon.turns.services import TurnServices
from lodger_tools.box.contract import BoxKey
from lodger_tools.catalogue.person_questions import ASK_TOOL
from lodger_tools.json_value import Json, JsonObject
from lodger_tools.toolbox_contract import ToolOutcome

T = TypeVar("T")

STORE_RETRY_S: Final = 1.0
"""How often a write that must not be lost is tried again while the disk is full; the store's own figure."""


@dataclass(slots=True)
class Step:
    """One run in the making. Ids are chosen before the first chunk, so that every fragment carries them."""

    run_id: RunId
    built: BuiltRequest
    message_id: MessageId
    calls_message_id: MessageId
    reasoning_message_id: MessageId
    otid: str
    reasoning_otid: str
    assembly: StepAssembly = field(default_factory=StepAssembly)
    characters: int = 0
    """Received so far: text, reasoning and arguments."""
    admitted: bool = False
    ended: bool = False
    """Its end is committed."""


@dataclass(slots=True)
class TurnWork:
    """The papers of the turn that owns the conversation; gone with its lease."""

    lease: Lease
    turn_id: TurnId
    place: Place
    settings: TurnSettings = field(default_factory=TurnSettings)
    reserved: bool = False
    """Its own input was reserved in the commit that accepted it."""
    queued: bool = False
    """Its own input had waited in the queue."""
    pending: TranscriptMessage | None = None
    """Reserved, not yet admitted."""
    folded: bool = False
    """What is pending joined in mid-turn: if no model takes it up, it goes back to the head of the queue."""
    client_message_ids: tuple[ClientMessageId, ...] = ()
    """Of everything that joined this turn so far: they are what its runs are told apart by."""
    run_id: RunId | None = None
    """The run that the transcript ends with."""
    step: Step | None = None
    tasks: dict["asyncio.Task[None]", None] = field(default_factory=dict)
    """In the order they were begun, so that they are stopped in it."""
    dropping: "asyncio.Task[None] | None" = None
    """Writes down the end of a run that failed; the next run is not begun before."""
    interruption: "asyncio.Task[None] | None" = None
    """Writes down that a person stopped this turn."""
    started_calls: set[ToolCallId] = field(default_factory=set)
    """Of the present batch: in the journal."""
    finished_calls: set[ToolCallId] = field(default_factory=set)
    """Of the present batch: with a result in the transcript."""
    batch_recorded: bool = False
    used_box: bool = False
    boxes: dict[ToolCallId, BoxKey] = field(default_factory=dict)
    """Of calls that run now: where, which is not the turn's own box when a person let one into another folder."""
    collecting: dict[ToolCallId, JsonObject] = field(default_factory=dict)
    """Calls an earlier daemon started."""
    reading: dict[ToolCallId, "asyncio.Future[ToolOutcome]"] = field(default_factory=dict)
    """Calls that only read and were begun before their step was written down."""
    unstored: StoreError | None = None
    """Why a commit that this turn went past has failed: what is in memory is ahead of the disk for good."""


class Desk:
    """Given to everything that works for one conversation. Event loop only."""

    def __init__(
        self,
        services: TurnServices,
        backend: LocalBackend,
        live: LiveConversation,
        log: EventLog,
        feed: Callable[[MachineEvent], None],
        spawn: Callable[[Lease, Coroutine[Any, Any, None]], asyncio.Task[None]],
        memory_ready: Callable[[AgentId], Awaitable[None]],
        questions_changed: Callable[[], None],
    ) -> None:
        self.services = services
        self.backend = backend
        self.live = live
        self.log = log
        self._beside = CommitsBeside(log.publish)
        self.feed = feed
        self.spawn = spawn
        self.memory_ready = memory_ready
        self.questions_changed = questions_changed
        self.work: TurnWork | None = None
        self.loop_status = LoopStatusChanged(LoopStatus.WAITING_ON_INPUT)
        """As shown last."""
        self.questions: dict[QuestionId, QuestionAsked] = {}
        """Those on screen, the oldest first."""
        self.askers: dict[QuestionId, asyncio.Future[Answer | None]] = {}
        """Of questions that somebody beside the turn's machine waits for; None for one that got no answer."""
        self.early_answers: dict[QuestionId, Answer] = {}
        """To such questions, when they came before whoever is to wait: after a restart."""
        self.last_box: BoxKey | None = None
        """Where the latest turn ran calls; None when it ran none."""
        self.last_was_queued = False
        self._waiting: tuple[InboxItem, ...] = ()
        self.anything_queued = False
        """Whether something is in line, as shown last."""
        self.last_sync: tuple[str, str | None] | None = None
        """Outcome and head of the sync that was reported last."""
        self._retry_at: WallTime | None = None
        self.waits_for_disk = 0
        """How many writes are tried again until there is space."""
        self.stopping = False
        """The daemon is going: nothing more is recorded of running calls, so that the next one finds them running."""

    @property
    def key(self) -> ConversationKey:
        return self.live.key

    def work_of(self, lease: Lease) -> TurnWork:
        """Raises: asyncio.CancelledError for a lease that is over, which ends the task that asks."""
        if self.work is None or self.work.lease != lease:
            raise asyncio.CancelledError
        return self.work

    def tell_asker(self, question_id: QuestionId, answer: Answer | None) -> bool:
        """Whether somebody beside the machine waited for this answer."""
        asker = self.askers.get(question_id)
        if asker is None or asker.done():
            return False
        asker.set_result(answer)
        return True

    def publish(self, event: ConversationEvent) -> None:
        if isinstance(event, RetryAnnounced):
            self._retry_at = WallTime(self.services.clock.wall() + event.delay_ms / 1000)
        if isinstance(event, LoopStatusChanged):
            if event.status is not LoopStatus.RETRYING_API_REQUEST:
                self._retry_at = None
            event = self.loop_status = replace(
                event, client_message_ids=self._runs_to_tell(event) or None, retry_at=self._retry_at
            )
        self._beside.publish(event)

    def _runs_to_tell(self, event: LoopStatusChanged) -> dict[RunId, tuple[ClientMessageId, ...]]:
        runs = dict(self.live.runs)
        opened = event.status is LoopStatus.PROCESSING_API_RESPONSE and event.run_id is None
        if opened and self.work is not None and self.work.step is not None:
            # An open stream is told before its run: only the status that names the run tells what caused it.
            runs.pop(self.work.step.run_id, None)
        return runs

    def publish_queue(self, removed: tuple[QueueRemoval, ...] = ()) -> None:
        queue = tuple(item.as_queued() for item in self.waiting())
        self.anything_queued = any(not item.paused for item in queue)
        self.publish(QueueChanged(queue, removed))

    def forget_old(self) -> None:
        """Let go of what nobody can ask for any more. Not awaited: the next turn's end does what this could not."""
        key = self.key
        self.log.forget_old()
        self.services.database.write_soon(lambda connection: inbox_rows.forget_settled(connection, key, REMEMBERED))

    def waiting(self) -> tuple[InboxItem, ...]:
        """What is in the queue; while the database cannot be read, what was there last."""
        key = self.key
        try:
            self._waiting = self.services.database.read_now(lambda connection: inbox_rows.waiting(connection, key))
        except StoreError as error:
            if not error.retryable:
                raise
        return self._waiting

    def standing(self, work: TurnWork | None = None) -> Standing:
        live, options = self.live, self.services.options
        return Standing(
            key=live.key,
            agent=live.agent,
            handle=live.handle,
            system_prompt=live.state.system_prompt,
            shown_memory_commit=live.state.shown_memory_commit,
            mode=live.mode(options),
            cwd=work.place.cwd if work is not None else live.cwd(options),
            tool_allowlist=self._tools_of(work.settings) if work is not None else None,
        )

    def charge(self, work: TurnWork, step: Step | None) -> Charge | None:
        """What is to be written down with the end of this step."""
        if self.services.spend is None or step is None:
            return None
        use = StepUse(
            run_id=step.run_id,
            agent_id=self.key.agent_id,
            turn_id=work.turn_id,
            request=step.built.request,
            usage=step.assembly.usage,
            received_characters=step.characters,
        )
        return self.services.spend.charge(use)

    def _tools_of(self, settings: TurnSettings) -> tuple[str, ...] | None:
        """The names of the tools a turn may have; None = all there are."""
        if settings.offer_questions:
            return settings.tool_allowlist
        own, brought = self.services.toolbox.tools(), self.services.external.tools(self.key)
        every = settings.tool_allowlist
        names = tuple(tool.name for tool in (*own, *brought)) if every is None else every
        return tuple(name for name in names if name != ASK_TOOL)

    def charge_summary(self, work: TurnWork | None, request: ModelRequest, usage: Usage, characters: int) -> None:
        """A summary is paid for by its turn; one that a person asked for, by nobody's. Stored within moments."""
        if self.services.spend is None:
            return
        turn_id = work.turn_id if work is not None else TurnId(f"summary-{self.services.rng.uuid()}")
        run_id = RunId(f"summary-{self.services.rng.uuid()}")
        charge = self.services.spend.charge(StepUse(run_id, self.key.agent_id, turn_id, request, usage, characters))
        if charge is not None:
            self.services.database.write_soon(lambda connection: spend_rows.add(connection, charge))

    def new_message_id(self) -> MessageId:
        return MessageId(f"message-{self.services.rng.uuid()}")

    def new_run_id(self) -> RunId:
        return RunId(f"run-{self.services.rng.uuid()}")

    async def durably(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Commit what must not be lost, with the events so far: while the disk is full it waits, and says so once. Not
        while the daemon stops: the next one finds on paper how far this came. Commits stay in their order.
        """
        await self.settled()
        return await self.until_stored(lambda: self.log.write(change))

    async def settled(self) -> None:
        """Return once all is on disk that this turn went past. Raises: StoreError when something never will be."""
        await self._beside.settled()
        if self.work is not None and self.work.unstored is not None:
            raise self.work.unstored

    async def durably_beside(
        self,
        work: TurnWork,
        change: Callable[[sqlite3.Connection], None],
        go_on: Callable[[], None],
    ) -> None:
        """As `durably`, but `go_on` is called at once: the model may be asked while the change is on its way to the
        disk. Nothing is shown meanwhile, and whatever is committed later is committed after it.

        Args:
            go_on: changes the memory as the commit changes the disk, publishes what tells of it, tells the machine.

        Raises: StoreError; then the turn is over and `work.unstored` set.
        """
        try:
            await self._beside.run(self.until_stored(lambda: self.log.write(change)), go_on)
        except StoreError as error:
            work.unstored = error
            raise

    async def until_stored(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """As `durably`, for a change that another room commits; it may be attempted several times."""
        said = False

        async def wait(refusal: StoreError) -> None:
            nonlocal said
            if not said:
                self._beside.hold_nothing()
                self.publish(StatusNote(str(refusal), "warning"))
                said = True
            self.waits_for_disk += 1
            try:
                await self.services.clock.sleep(STORE_RETRY_S)
            finally:
                self.waits_for_disk -= 1

        return await until_stored(attempt, wait, lambda: self.stopping)

    def take_input(self, work: TurnWork, batch: tuple[InboxItem, ...], first: bool) -> None:
        """Make the one user message of a reserved batch."""
        messages = [message for item in batch for message in item.messages]
        ids = tuple(message.client_message_id for message in messages)
        joined: Json = messages[0].content if len(messages) == 1 else batch_content(batch)
        stored_ids: list[Json] = list(ids)
        content: JsonObject = {"content": joined, "client_message_ids": stored_ids}
        work.pending = TranscriptMessage(
            self.new_message_id(), MessageKind.USER, content, self.services.clock.wall(), otid=messages[0].otid
        )
        work.client_message_ids += ids
        work.folded = not first
        if first:
            work.settings = batch_settings(batch)
