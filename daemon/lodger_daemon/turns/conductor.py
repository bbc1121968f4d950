"""`Conversations`: the one door to conversations, implementing `ConversationService`."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from lodger_daemon.backends.core.transcript import text_of
from lodger_daemon.identity import (
    DEFAULT_CONVERSATION,
    AgentId,
    ConversationId,
    ConversationKey,
    QuestionId,
    QueueItemId,
    RunId,
    TurnId,
)
from lodger_daemon.inbox.core.items import CancelCause, ItemKind, NewItem, Source, item_number
from lodger_daemon.models.contract import PRACTICE_HANDLE
from lodger_daemon.questions.core.rules import QuestionStatus
from lodger_daemon.questions.questions import SettledQuestion
from lodger_daemon.store import conversation_rows, inbox_rows, message_rows
from lodger_daemon.store.errors import StoreError
from lodger_daemon.turns import call_work, records, recovery, step_work
from lodger_daemon.turns.actor import ConversationActor
from lodger_daemon.turns.boot_folders import BootFolders
from lodger_daemon.turns.contract import (
    Accepted,
    AgentRecord,
    Allow,
    Answer,
    ConversationError,
    ConversationRecord,
    ConversationSnapshot,
    EventSink,
    Folders,
    NewAgent,
    Receipt,
    Refused,
    StartedRuntime,
    StartRuntime,
    Submission,
)
from lodger_daemon.turns.conversation_editor import ConversationEditor
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
from lodger_daemon.turns.core.states import Active
from lodger_daemon.turns.registry import Registry
from lodger_daemon.turns.services import TurnServices, finish_regardless
from lodger_daemon.turns.stored_messages import stored_messages, whole_id
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.modes import Mode, within_ceiling

PAGE_LIMIT: Final = 1000
"""Messages or events of one answer at most."""


class Conversations:
    """Owns every conversation of this daemon. Call `recover` once at start, before clients are let in."""

    def __init__(self, services: TurnServices) -> None:
        self._services = services
        self._database = services.database
        self._registry = Registry(services)
        self._agents = self._registry.agents
        self._boot = BootFolders(services)
        self._editor = ConversationEditor(services, self._registry)

    # -- life --

    async def recover(self) -> None:
        """Take up what an earlier daemon left: unfinished turns go on, the queue moves, questions are shown again."""
        await self._boot.load()
        await self._registry.recover()

    async def aclose(self, let_go_of_boxes: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stop without ending what runs in boxes: it is collected by the next daemon.

        Args:
            let_go_of_boxes: closes the connections to boxes; called after everything here has stopped recording and
                before tasks are cancelled, since cancelling a call on an open connection would end its processes.
        """
        await self._registry.aclose(let_go_of_boxes)

    async def settled(self, key: ConversationKey) -> None:
        """Wait until nothing of this conversation runs or waits to run."""
        await (await self._registry.actor(key)).settled()

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
            actor = await self._registry.actor(key)
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
            # The write may have happened although nobody waited for it; then its row is found as reserved or waiting.
            actor.own(self._settle_claim(actor, turn_id) if turn_id is not None else self._settle_queue(actor))
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
        actor = await self._registry.actor(key)
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

        async def settle() -> bool:
            settled = await self._services.questions.settle(key, question_id, answer)
            if settled is None:
                return False
            self._publish_settled(actor, settled)
            actor.answer(question_id, answer, rejudged)
            return True

        # A client that leaves in mid-answer must not leave a settled question that no turn was told of.
        return await finish_regardless(settle())

    async def abort(self, key: ConversationKey, run_id: RunId | None = None) -> bool:
        actor = await self._registry.actor(key)
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

        async def remove() -> bool:
            removed = await self._database.write(
                lambda connection: inbox_rows.cancel(connection, key, number, CancelCause.REMOVED, now)
            )
            if removed is None:
                return False
            actor = await self._registry.actor(key)
            actor.desk.publish_queue((QueueRemoval(removed.client_message_id, "cancelled"),))
            return True

        return await finish_regardless(remove())

    async def resume_queue(self, key: ConversationKey) -> int:
        async def resume() -> int:
            released = await self._database.write(lambda connection: inbox_rows.resume(connection, key))
            if released:
                actor = await self._registry.actor(key)
                actor.desk.publish_queue()
                actor.pump()
            return released

        return await finish_regardless(resume())

    async def compact(self, key: ConversationKey) -> JsonObject:
        actor = await self._registry.actor(key)
        before = len(actor.desk.live.transcript.in_context)
        shrunk = await actor.run_command("compact", step_work.compact(actor.desk, None))
        after = len(actor.desk.live.transcript.in_context)
        shown: JsonObject = {"compacted": shrunk, "num_messages_before": before, "num_messages_after": after}
        first = actor.desk.live.transcript.in_context[:1]
        if shrunk and first:
            shown["summary"] = text_of(first[0].content, "text")
        return shown

    async def recompile(self, key: ConversationKey) -> str:
        actor = await self._registry.actor(key)
        prompt, commit = await actor.desk.backend.system_prompt(actor.desk.standing())

        def write(connection: sqlite3.Connection) -> None:
            conversation_rows.set_system_prompt(connection, key, prompt)
            conversation_rows.set_shown_memory_commit(connection, key, commit)

        async def keep() -> None:
            await self._database.write(write)
            actor.desk.live.change_state(system_prompt=prompt, shown_memory_commit=commit)

        await finish_regardless(keep())
        return prompt

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
            agent = await self.adopt_agent(request.agent_id)
        key, created = await self._find_or_name(agent.id, request.conversation_id)
        actor = await self._registry.actor(key)
        if created and request.conversation_tags:
            await self._tag(key, request.conversation_tags)
        if request.mode is not None or request.cwd is not None or request.reset_cwd:
            await self._store_state(actor, request.mode, request.cwd, request.reset_cwd)
        conversation = await self.get_conversation(key)
        assert conversation is not None
        return StartedRuntime(key, agent, conversation, agent_created, created)

    async def change_state(self, key: ConversationKey, mode: Mode | None, cwd: str | None) -> None:
        await self._check_state(mode, cwd)
        await self._store_state(await self._registry.actor(key), mode, cwd, reset_cwd=False)

    async def snapshot(self, key: ConversationKey) -> ConversationSnapshot:
        options = self._services.options
        actor = self._registry.in_use(key)
        if actor is None and await self._registry.known(key):
            actor = await self._registry.actor(key)
        if actor is None:
            loop = LoopStatusChanged(LoopStatus.WAITING_ON_INPUT)
            return ConversationSnapshot(key, loop, False, (), (), options.default_mode, options.boot_folder, 0, (), 0)
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
        return self._registry.subscribe(key, sink)

    async def events_after(self, key: ConversationKey, number: int, limit: int = 1000) -> tuple[NumberedEvent, ...]:
        if not await self._registry.known(key):
            return ()
        actor = await self._registry.actor(key)
        return await actor.desk.log.after(number, min(limit, PAGE_LIMIT))

    # -- agents, conversations, messages --

    async def list_agents(self) -> tuple[AgentRecord, ...]:
        return await self._agents.all()

    async def get_agent(self, agent_id: AgentId) -> AgentRecord | None:
        return await self._agents.get(agent_id)

    async def create_agent(self, agent: NewAgent) -> AgentRecord:
        return await self._agents.create(agent)

    async def adopt_agent(self, agent_id: AgentId) -> AgentRecord:
        """An agent of this machine, or one whose memory the remote holds. Raises: ConversationError.

        One that has had to do with the practice model gets the default model as soon as that is another.
        """
        agent = await self._agents.adopt(agent_id)
        if agent.model != PRACTICE_HANDLE:
            return agent
        handle = await self._services.models.default_handle()
        return agent if handle == PRACTICE_HANDLE else await self.update_agent(agent_id, {"model": handle})

    async def update_agent(self, agent_id: AgentId, changes: JsonObject) -> AgentRecord:
        async def change() -> AgentRecord:
            changed = await self._agents.update(agent_id, changes)
            for actor in self._registry.of_agent(agent_id):
                actor.desk.live.agent = changed
            return changed

        return await finish_regardless(change())

    async def list_conversations(
        self, agent_id: AgentId | None, limit: int = 50, hidden: bool = True
    ) -> tuple[ConversationRecord, ...]:
        return await self._database.read(
            lambda connection: conversation_rows.newest(connection, agent_id, min(limit, PAGE_LIMIT), hidden)
        )

    async def get_conversation(self, key: ConversationKey) -> ConversationRecord | None:
        return await self._database.read(lambda connection: conversation_rows.get(connection, key))

    async def find_conversation(self, conversation_id: str) -> ConversationRecord | None:
        return await self._database.read(lambda connection: conversation_rows.find(connection, conversation_id))

    async def create_conversation(self, agent_id: AgentId, changes: JsonObject) -> ConversationRecord:
        return await self._editor.create((await self.adopt_agent(agent_id)).id, changes)

    async def update_conversation(self, key: ConversationKey, changes: JsonObject) -> ConversationRecord:
        return await self._editor.update(key, changes)

    async def fork_conversation(
        self, key: ConversationKey, last_message_id: str | None = None, hidden: bool = False
    ) -> ConversationKey:
        return await self._editor.fork(key, last_message_id, hidden)

    async def folders(self) -> Folders:
        return await self._boot.folders()

    async def set_boot_folder(self, folder: str) -> Folders:
        await self._check_state(None, folder)
        await finish_regardless(self._boot.choose(folder))
        for actor in self._registry.all_in_use():
            if actor.desk.live.state.cwd is None:
                actor.desk.publish(DeviceStateChanged())
        return await self._boot.folders()

    async def set_model(self, key: ConversationKey, handle: str) -> Literal["agent", "conversation"]:
        """The default conversation's model is its agent's; any other keeps its own."""
        if key.conversation_id == DEFAULT_CONVERSATION:
            await self.update_agent(key.agent_id, {"model": handle})
            return "agent"
        actor = await self._registry.actor(key)
        now = self._services.clock.wall()

        def write(connection: sqlite3.Connection) -> None:
            record = conversation_rows.get(connection, key)
            assert record is not None
            conversation_rows.describe(connection, replace(record, model=handle, updated_at=now))

        async def change() -> None:
            await self._database.write(write)
            actor.desk.live.model = handle

        await finish_regardless(change())
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
                whole_id(before) if before is not None else None,
                whole_id(after) if after is not None else None,
            )
        )
        shown = (stored_messages(records.from_row(row)) for row in rows)
        ordered = (reversed(parts) if descending else parts for parts in shown)
        return tuple(part for parts in ordered for part in parts)

    # -- inside --

    async def _settle_claim(self, actor: ConversationActor, turn_id: TurnId) -> None:
        """The client went away while its input was being stored: find out whether it was."""
        items = await actor.desk.durably(lambda connection: recovery.reserved_of(connection, turn_id))
        if items:
            actor.begin(turn_id, items[0])
        else:
            actor.give_back_claim()

    async def _settle_queue(self, actor: ConversationActor) -> None:
        """The same for an input that was to wait: whatever became of it is shown, and moved when nothing runs."""
        await actor.desk.durably(lambda _: None)
        self._queued(actor, ())

    def _queued(self, actor: ConversationActor, removed: tuple[QueueRemoval, ...]) -> None:
        actor.desk.publish_queue(removed)
        actor.pump()

    def _publish_settled(self, actor: ConversationActor, settled: SettledQuestion) -> None:
        outcome: Literal["allowed", "denied"] = (
            "allowed" if settled.settlement.status is QuestionStatus.ALLOWED else "denied"
        )
        actor.desk.publish(QuestionSettled(settled.question.asked.question_id, outcome))

    async def _find_or_name(self, agent_id: AgentId, conversation_id: str | None) -> tuple[ConversationKey, bool]:
        if conversation_id is None:
            fresh = ConversationId(f"conv-{self._services.rng.uuid()}")
            return ConversationKey(agent_id, fresh), True
        key = ConversationKey(agent_id, ConversationId(conversation_id))
        if await self._registry.known(key):
            return key, False
        if conversation_id != DEFAULT_CONVERSATION:
            raise ConversationError(f"Agent {agent_id} has no conversation {conversation_id}.")
        # Every agent has it from the start, although its row is made at first use.
        return key, False

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

        async def change() -> None:
            revision = await self._database.write(write)
            if mode is not None:
                live.change_state(mode=mode)
            if cwd is not None or reset_cwd:
                live.change_state(cwd=cwd, cwd_revision=revision)
            actor.desk.publish(DeviceStateChanged())

        await finish_regardless(change())
