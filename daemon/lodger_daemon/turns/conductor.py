"""`Conversations`: the one door to conversations, implementing `ConversationService`."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from lodger_daemon.backends.local.backend import LocalBackend
from lodger_daemon.backends.local.conversation import LocalConversation
from lodger_daemon.identity import (
    DEFAULT_CONVERSATION,
    AgentId,
    ConversationId,
    ConversationKey,
    MessageId,
    QuestionId,
    QueueItemId,
    RunId,
    TurnId,
)
from lodger_daemon.inbox.core.items import CancelCause, ItemKind, NewItem, Source, item_number
from lodger_daemon.questions.core.rules import QuestionStatus
from lodger_daemon.questions.questions import SettledQuestion
from lodger_daemon.store import conversation_rows, inbox_rows, message_rows
from lodger_daemon.store.errors import StoreError
from lodger_daemon.turns import call_work, records, recovery, step_work
from lodger_daemon.turns.actor import ConversationActor
from lodger_daemon.turns.agents import Agents
from lodger_daemon.turns.contract import (
    Accepted,
    AgentRecord,
    Allow,
    Answer,
    ConversationError,
    ConversationRecord,
    ConversationSnapshot,
    EventSink,
    NewAgent,
    Receipt,
    Refused,
    StartedRuntime,
    StartRuntime,
    Submission,
)
from lodger_daemon.turns.core import calls as core_calls
from lodger_daemon.turns.core.calls import CallProgress
from lodger_daemon.turns.core.events import (
    DeviceStateChanged,
    LoopStatus,
    LoopStatusChanged,
    NumberedEvent,
    QuestionSettled,
    QueueRemoval,
)
from lodger_daemon.turns.core.machine_events import MachineEvent
from lodger_daemon.turns.core.states import Active
from lodger_daemon.turns.desk import STORE_RETRY_S, Desk, TurnWork
from lodger_daemon.turns.event_log import NUMBER_BLOCK, EventLog
from lodger_daemon.turns.live import LiveConversation, Loaded, load
from lodger_daemon.turns.services import TurnServices
from lodger_daemon.turns.stored_messages import stored_messages
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.modes import Mode, within_ceiling

PAGE_LIMIT: Final = 1000
"""Messages or events of one answer at most."""


class Conversations:
    """Owns every conversation of this daemon. Call `recover` once at start, before clients are let in."""

    def __init__(self, services: TurnServices) -> None:
        self._services = services
        self._database = services.database
        options = services.options
        self._backend = LocalBackend(
            services.models,
            services.memory,
            services.toolbox,
            services.external,
            services.memory_directory,
            options.machine_name,
            options.operating_system,
            services.clock,
            services.rng,
        )
        self._agents = Agents(services)
        self._actors: dict[ConversationKey, ConversationActor] = {}
        self._opening: dict[ConversationKey, asyncio.Lock] = {}
        self._sinks: dict[ConversationKey, list[EventSink]] = {}
        self._question_watch: asyncio.Task[None] | None = None
        self._closing = False

    # -- life --

    async def recover(self) -> None:
        """Take up what an earlier daemon left: unfinished turns go on, the queue moves, questions are shown again."""
        now = self._services.clock.wall()
        left_over = await self._database.write(lambda connection: recovery.put_in_order(connection, now))
        if await self._services.questions.load():
            self._watch_questions()
        await self._announce_ends()
        for left in left_over:
            await self._resume(left)
        for key in await self._database.read(inbox_rows.keys_with_work):
            (await self._actor(key)).pump()

    async def aclose(self, let_go_of_boxes: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stop without ending what runs in boxes: it is collected by the next daemon.

        Args:
            let_go_of_boxes: closes the connections to boxes; called after everything here has stopped recording and
                before tasks are cancelled, since cancelling a call on an open connection would end its processes.
        """
        self._closing = True
        for actor in self._actors.values():
            actor.desk.stopping = True
        if let_go_of_boxes is not None:
            await let_go_of_boxes()
        if self._question_watch is not None:
            self._question_watch.cancel()
            await asyncio.wait({self._question_watch})
        await asyncio.gather(*(actor.aclose() for actor in self._actors.values()))
        await self._agents.aclose()

    async def settled(self, key: ConversationKey) -> None:
        """Wait until nothing of this conversation runs or waits to run."""
        await (await self._actor(key)).settled()

    # -- turns --

    async def submit(self, key: ConversationKey, submission: Submission) -> Receipt:
        return await self.submit_item(key, NewItem(submission))

    async def submit_notice(
        self,
        key: ConversationKey,
        submission: Submission,
        kind: Literal["task_notification", "cron_prompt"],
        source: Source,
    ) -> Receipt:
        """For the daemon's own rooms: background work that ended, a schedule that is due."""
        return await self.submit_item(key, NewItem(submission, ItemKind(kind), source))

    async def submit_item(self, key: ConversationKey, item: NewItem) -> Receipt:
        if not item.submission.messages:
            return Refused("An input needs at least one message.")
        try:
            actor = await self._actor(key)
        except ConversationError as error:
            return Refused(str(error))
        turn_id = actor.claim() if item.kind is ItemKind.MESSAGE else None
        begin = None
        if turn_id is not None:
            place = actor.desk.live.place(self._services.options)
            begin = records.TurnBegin(turn_id, place.as_cause("message"))
        disposition: Literal["started", "queued"] = "started" if begin is not None else "queued"
        now = self._services.clock.wall()
        try:
            result = await self._database.write(
                lambda connection: records.accept(connection, key, item, disposition, begin, now)
            )
        except StoreError as error:
            if turn_id is not None:
                actor.give_back_claim()
            return Refused(str(error))
        except BaseException:
            if turn_id is not None:
                # The write may have happened although nobody waited for it; then its row is found as reserved.
                actor.own(self._settle_claim(actor, turn_id))
            raise
        match result:
            case inbox_rows.ItemRefused(reason):
                if turn_id is not None:
                    actor.give_back_claim()
                return Refused(reason)
            case inbox_rows.ItemDuplicate(known):
                if turn_id is not None:
                    actor.give_back_claim()
                return Accepted(known.disposition, resent=True)
            case inbox_rows.ItemAccepted(stored, dropped):
                loop = asyncio.get_running_loop()
                # The acknowledgement goes out before the first event of the turn.
                if turn_id is not None:
                    loop.call_soon(actor.begin, turn_id, stored)
                else:
                    removed = tuple(QueueRemoval(item.client_message_id, "cancelled") for item in dropped)
                    loop.call_soon(self._queued, actor, removed)
                return Accepted(disposition)

    async def answer(self, key: ConversationKey, question_id: QuestionId, answer: Answer) -> bool:
        actor = await self._actor(key)
        call = actor.asked_call()
        rejudged: CallProgress | None = None
        if call is not None and isinstance(answer, Allow) and answer.updated_input is not None:
            work = actor.desk.work
            checked = step_work.check_input(actor.desk, call.tool_name, answer.updated_input)
            if isinstance(checked, str):
                rejudged = core_calls.Refused(checked)
            elif work is not None:
                answer = replace(answer, updated_input=checked)
                rejudged = call_work.judge_now(actor.desk, work, call.tool_name, checked)
        settled = await self._services.questions.settle(key, question_id, answer)
        if settled is None:
            return False
        self._publish_settled(actor, settled)
        actor.answer(question_id, answer, rejudged)
        return True

    async def abort(self, key: ConversationKey, run_id: RunId | None = None) -> bool:
        actor = await self._actor(key)
        state = actor.state
        if run_id is not None and isinstance(state, Active) and state.turn.run_id not in (None, run_id):
            return False
        turn_id = actor.abort()
        if turn_id is None:
            return False
        now = self._services.clock.wall()

        def mark(connection: sqlite3.Connection) -> None:
            if recovery.is_active(connection, turn_id):
                records.mark_aborted(connection, turn_id, now)

        # Acknowledged only once a crash can no longer undo it.
        await self._database.write(mark)
        return True

    async def remove_queued(self, key: ConversationKey, item_id: QueueItemId) -> bool:
        number = item_number(item_id)
        if number is None:
            return False
        now = self._services.clock.wall()
        removed = await self._database.write(
            lambda connection: inbox_rows.cancel(connection, key, number, CancelCause.REMOVED, now)
        )
        if removed is None:
            return False
        actor = await self._actor(key)
        actor.desk.publish_queue((QueueRemoval(removed.client_message_id, "cancelled"),))
        return True

    async def resume_queue(self, key: ConversationKey) -> int:
        released = await self._database.write(lambda connection: inbox_rows.resume(connection, key))
        if released:
            actor = await self._actor(key)
            actor.desk.publish_queue()
            actor.pump()
        return released

    async def compact(self, key: ConversationKey) -> JsonObject:
        actor = await self._actor(key)
        before = len(actor.desk.live.transcript.in_context)
        try:
            shrunk = await actor.run_command("compact", step_work.compact(actor.desk, None))
        except RuntimeError:
            raise ConversationError("The conversation is busy. Wait for its turn to end, or abort it.") from None
        after = len(actor.desk.live.transcript.in_context)
        return {"compacted": shrunk, "num_messages_before": before, "num_messages_after": after}

    async def recompile(self, key: ConversationKey) -> None:
        """Have the system prompt made anew for the next request, from memory as it is then."""
        actor = await self._actor(key)
        await self._database.write(lambda connection: conversation_rows.set_system_prompt(connection, key, None))
        actor.desk.live.change_state(system_prompt=None)

    # -- state and events --

    async def start_runtime(self, request: StartRuntime) -> StartedRuntime:
        if (request.agent_id is None) == (request.new_agent is None):
            raise ConversationError("Name an agent or describe a new one, not both.")
        await self._check_state(request.mode, request.cwd)
        agent_created = request.new_agent is not None
        if request.new_agent is not None:
            agent = await self._agents.create(request.new_agent)
        else:
            assert request.agent_id is not None
            agent = await self._agents.adopt(request.agent_id)
        key, created = await self._find_or_name(agent.id, request.conversation_id)
        actor = await self._actor(key)
        if created and request.conversation_tags:
            await self._tag(key, request.conversation_tags)
        if request.mode is not None or request.cwd is not None or request.reset_cwd:
            await self._store_state(actor, request.mode, request.cwd, request.reset_cwd)
        conversation = await self.get_conversation(key)
        assert conversation is not None
        return StartedRuntime(key, agent, conversation, agent_created, created)

    async def change_state(self, key: ConversationKey, mode: Mode | None, cwd: str | None) -> None:
        await self._check_state(mode, cwd)
        await self._store_state(await self._actor(key), mode, cwd, reset_cwd=False)

    async def snapshot(self, key: ConversationKey) -> ConversationSnapshot:
        options = self._services.options
        actor = self._actors.get(key)
        if actor is None and await self._known(key):
            actor = await self._actor(key)
        if actor is None:
            loop = LoopStatusChanged(LoopStatus.WAITING_ON_INPUT)
            return ConversationSnapshot(key, loop, False, (), (), options.default_mode, options.workspace, 0, (), 0)
        desk = actor.desk
        live = desk.live
        return ConversationSnapshot(
            key=key,
            loop=replace(desk.loop_status, client_message_ids=dict(live.runs) or None),
            processing=actor.processing,
            queue=tuple(item.as_queued() for item in desk.waiting()),
            questions=(desk.question,) if desk.question is not None else (),
            mode=live.mode(options),
            cwd=live.cwd(options),
            cwd_revision=live.state.cwd_revision,
            toolset=live.state.toolset,
            last_event_number=desk.log.last_number,
        )

    def subscribe(self, key: ConversationKey, sink: EventSink) -> Callable[[], None]:
        sinks = self._sinks.setdefault(key, [])
        sinks.append(sink)

        def end() -> None:
            if sink in sinks:
                sinks.remove(sink)
            if not sinks:
                self._sinks.pop(key, None)

        return end

    async def events_after(self, key: ConversationKey, number: int, limit: int = 1000) -> tuple[NumberedEvent, ...]:
        if not await self._known(key):
            return ()
        actor = await self._actor(key)
        return await actor.desk.log.after(number, min(limit, PAGE_LIMIT))

    # -- agents, conversations, messages --

    async def list_agents(self) -> tuple[AgentRecord, ...]:
        return await self._agents.all()

    async def get_agent(self, agent_id: AgentId) -> AgentRecord | None:
        return await self._agents.get(agent_id)

    async def create_agent(self, agent: NewAgent) -> AgentRecord:
        return await self._agents.create(agent)

    async def adopt_agent(self, agent_id: AgentId) -> AgentRecord:
        """An agent of this machine, or one whose memory the remote holds. Raises: ConversationError."""
        return await self._agents.adopt(agent_id)

    async def update_agent(self, agent_id: AgentId, changes: JsonObject) -> AgentRecord:
        changed = await self._agents.update(agent_id, changes)
        for actor in self._actors.values():
            if actor.desk.key.agent_id == agent_id:
                actor.desk.live.agent = changed
        return changed

    async def list_conversations(self, agent_id: AgentId | None, limit: int = 50) -> tuple[ConversationRecord, ...]:
        return await self._database.read(
            lambda connection: conversation_rows.newest(connection, agent_id, min(limit, PAGE_LIMIT))
        )

    async def get_conversation(self, key: ConversationKey) -> ConversationRecord | None:
        return await self._database.read(lambda connection: conversation_rows.get(connection, key))

    async def find_conversation(self, conversation_id: str) -> ConversationRecord | None:
        return await self._database.read(lambda connection: conversation_rows.find(connection, conversation_id))

    async def set_model(self, key: ConversationKey, handle: str) -> Literal["agent", "conversation"]:
        """The default conversation's model is its agent's; any other keeps its own."""
        if key.conversation_id == DEFAULT_CONVERSATION:
            await self.update_agent(key.agent_id, {"model": handle})
            return "agent"
        actor = await self._actor(key)
        record = await self.get_conversation(key)
        assert record is not None
        changed = replace(record, model=handle, updated_at=self._services.clock.wall())
        await self._database.write(lambda connection: conversation_rows.describe(connection, changed))
        actor.desk.live.model = handle
        return "conversation"

    async def list_messages(
        self,
        key: ConversationKey,
        limit: int = 50,
        descending: bool = True,
        before: str | None = None,
        after: str | None = None,
    ) -> tuple[JsonObject, ...]:
        rows = await self._database.read(
            lambda connection: message_rows.page(
                connection,
                key,
                min(limit, PAGE_LIMIT),
                descending,
                MessageId(before) if before is not None else None,
                MessageId(after) if after is not None else None,
            )
        )
        shown = (stored_messages(records.from_row(row)) for row in rows)
        ordered = (reversed(parts) if descending else parts for parts in shown)
        return tuple(part for parts in ordered for part in parts)

    # -- inside --

    async def _actor(self, key: ConversationKey) -> ConversationActor:
        """Raises: ConversationError for an agent that does not exist."""
        actor = self._actors.get(key)
        if actor is not None:
            return actor
        lock = self._opening.setdefault(key, asyncio.Lock())
        async with lock:
            actor = self._actors.get(key)
            if actor is None:
                now = self._services.clock.wall()
                loaded = await self._database.write(lambda connection: load(connection, key, now))
                if loaded is None:
                    raise ConversationError(f"There is no agent {key.agent_id} on this machine.")
                actor = self._actors[key] = self._open(key, loaded)
        self._opening.pop(key, None)
        return actor

    def _open(self, key: ConversationKey, loaded: Loaded) -> ConversationActor:
        live = LiveConversation(
            key=key,
            agent=loaded.agent,
            model=loaded.model,
            state=loaded.state,
            transcript=LocalConversation(loaded.in_context),
            runs=dict(loaded.runs),
        )
        reserved = loaded.numbers_reserved
        log = EventLog(key, self._database, self._services.clock, reserved - NUMBER_BLOCK, reserved)
        log.subscribe(lambda numbered: self._fan_out(key, numbered))

        def feed(event: MachineEvent) -> None:
            actor.feed(event)

        desk = Desk(self._services, self._backend, live, log, feed, self._agents.memory_ready, self._watch_questions)
        actor = ConversationActor(desk)
        return actor

    def _fan_out(self, key: ConversationKey, numbered: NumberedEvent) -> None:
        for sink in tuple(self._sinks.get(key, ())):
            sink(numbered)

    async def _resume(self, left: recovery.LeftOver) -> None:
        try:
            actor = await self._actor(left.turn.conversation)
        except ConversationError:
            return
        desk = actor.desk
        work = TurnWork(actor.next_lease(), left.turn.turn_id, desk.live.place(self._services.options))
        event, collecting = recovery.resume(desk, left, work)
        if left.aborted:
            collecting = ()
        actor.recover(work, event, collecting)
        if left.aborted:
            actor.abort()

    async def _announce_ends(self) -> None:
        """Tell of turns that ended on paper just before the daemon stopped."""
        while owed := await self._database.read(records.unannounced):
            logs = []
            for key, finished in owed:
                actor = await self._actor(key)
                actor.desk.publish(finished)
                logs.append(actor.desk.log)
            for log in logs:
                await log.store_held()

    async def _settle_claim(self, actor: ConversationActor, turn_id: TurnId) -> None:
        """The client went away while its input was being stored: find out whether it was."""
        items = await self._database.write(lambda connection: recovery.reserved_of(connection, turn_id))
        if items:
            actor.begin(turn_id, items[0])
        else:
            actor.give_back_claim()

    def _queued(self, actor: ConversationActor, removed: tuple[QueueRemoval, ...]) -> None:
        actor.desk.publish_queue(removed)
        actor.pump()

    def _publish_settled(self, actor: ConversationActor, settled: SettledQuestion) -> None:
        outcome: Literal["allowed", "denied"] = (
            "allowed" if settled.settlement.status is QuestionStatus.ALLOWED else "denied"
        )
        actor.desk.publish(QuestionSettled(settled.question.asked.question_id, outcome))

    def _watch_questions(self) -> None:
        if self._question_watch is None or self._question_watch.done():
            self._question_watch = asyncio.get_running_loop().create_task(self._expire_questions())

    async def _expire_questions(self) -> None:
        """Runs while a question is open."""
        book = self._services.questions
        while (wait_s := book.next_expiry_s()) is not None:
            await self._services.clock.sleep(wait_s)
            try:
                expired = await book.expire_due()
            except StoreError as error:
                if not error.retryable:
                    raise
                await self._services.clock.sleep(STORE_RETRY_S)
                continue
            for settled in expired:
                actor = await self._actor(settled.question.conversation)
                question_id = settled.question.asked.question_id
                actor.desk.publish(QuestionSettled(question_id, "expired"))
                actor.lapse(question_id)

    async def _known(self, key: ConversationKey) -> bool:
        if key in self._actors:
            return True
        number = await self._database.read(lambda connection: conversation_rows.number_of(connection, key))
        return number is not None

    async def _find_or_name(self, agent_id: AgentId, conversation_id: str | None) -> tuple[ConversationKey, bool]:
        if conversation_id is None:
            fresh = ConversationId(f"conv-{self._services.rng.uuid()}")
            return ConversationKey(agent_id, fresh), True
        key = ConversationKey(agent_id, ConversationId(conversation_id))
        if await self._known(key):
            return key, False
        if conversation_id != DEFAULT_CONVERSATION:
            raise ConversationError(f"Agent {agent_id} has no conversation {conversation_id}.")
        return key, True

    async def _tag(self, key: ConversationKey, tags: tuple[str, ...]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            record = conversation_rows.get(connection, key)
            if record is not None:
                conversation_rows.describe(connection, replace(record, tags=tags))

        await self._database.write(write)

    async def _check_state(self, mode: Mode | None, cwd: str | None) -> None:
        ceiling = self._services.options.ceiling
        if mode is not None and not within_ceiling(mode, ceiling):
            raise ConversationError(f"This machine allows no wider mode than {ceiling.value}.")
        if cwd is not None and not (cwd.startswith("/") and await asyncio.to_thread(Path(cwd).is_dir)):
            raise ConversationError(f"{cwd} is not a folder on this machine.")

    async def _store_state(self, actor: ConversationActor, mode: Mode | None, cwd: str | None, reset_cwd: bool) -> None:
        key, live = actor.desk.key, actor.desk.live

        def write(connection: sqlite3.Connection) -> int:
            if mode is not None:
                conversation_rows.set_mode(connection, key, mode)
            if cwd is not None or reset_cwd:
                return conversation_rows.set_cwd(connection, key, cwd)
            return live.state.cwd_revision

        revision = await self._database.write(write)
        if mode is not None:
            live.change_state(mode=mode)
        if cwd is not None or reset_cwd:
            live.change_state(cwd=cwd, cwd_revision=revision)
        actor.desk.publish(DeviceStateChanged())
