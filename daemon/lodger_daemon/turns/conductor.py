"""`Conversations`: the one door to conversations, implementing `ConversationService`."""

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Literal

from lodger_daemon.backends.core.compaction_options import options_from
from lodger_daemon.backends.core.transcript import text_of
from lodger_daemon.backends.local.backend import NotCompacted
from lodger_daemon.identity import AgentId, ConversationKey, QuestionId, QueueItemId, RunId
from lodger_daemon.inbox.core.items import ItemKind, NewItem, Source
from lodger_daemon.questions.core.rules import QuestionStatus
from lodger_daemon.questions.questions import SettledQuestion
from lodger_daemon.store import conversation_rows, message_rows
from lodger_daemon.turns import records, spend_work, step_work
from lodger_daemon.turns.actor import ConversationActor
from lodger_daemon.turns.contract import (
    AgentRecord,
    Allow,
    Answer,
    ConversationRecord,
    ConversationSnapshot,
    EventSink,
    Folders,
    NewAgent,
    Receipt,
    SendersDropped,
    StartedRuntime,
    StartRuntime,
    Submission,
)
from lodger_daemon.turns.conversation_editor import ConversationEditor
from lodger_daemon.turns.core.events import DeviceStateChanged, NumberedEvent, QuestionSettled
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_daemon.turns.desk import Desk
from lodger_daemon.turns.git_work import GitConfigAsker
from lodger_daemon.turns.intake import Intake
from lodger_daemon.turns.judge_work import look_at_answer
from lodger_daemon.turns.network_work import NetworkAsker
from lodger_daemon.turns.ports_work import PortsAsker
from lodger_daemon.turns.registry import Registry
from lodger_daemon.turns.runtime_states import RuntimeStates
from lodger_daemon.turns.services import TurnServices, finish_regardless
from lodger_daemon.turns.stored_messages import stored_messages, whole_id
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.modes import Mode

PAGE_LIMIT: Final = 1000
"""Messages or events of one answer at most."""


class Conversations:
    """Owns every conversation of this daemon. Call `recover` once at start, before clients are let in."""

    def __init__(self, services: TurnServices) -> None:
        self._services = services
        self._database = services.database
        self._registry = Registry(services)
        self._agents = self._registry.agents
        self._intake = Intake(services, self._registry)
        self._states = RuntimeStates(services, self._registry)
        self._editor = ConversationEditor(services, self._registry)
        self.network_asker = NetworkAsker(self._desks_of)
        self.git_asker = GitConfigAsker(self._desks_of)
        self.ports_asker = PortsAsker(self._desks_of)

    def _desks_of(self, agent_id: AgentId) -> list[Desk]:
        return [one.desk for one in self._registry.of_agent(agent_id)]

    # -- life --

    async def recover(self) -> None:
        """Take up what an earlier daemon left: unfinished turns go on, the queue moves, questions are shown again."""
        await self._states.load()
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
        return await self._intake.submit(key, NewItem(submission))

    async def submit_notice(
        self,
        key: ConversationKey,
        submission: Submission,
        kind: Literal["task_notification", "cron_prompt"],
        source: Source,
    ) -> Receipt:
        """For the daemon's own rooms: background work that ended, a schedule that is due."""
        return await self._intake.submit(key, NewItem(submission, ItemKind(kind), source))

    def device_changed(self, key: ConversationKey) -> None:
        """Whoever watches this conversation is shown the device state again."""
        actor = self._registry.in_use(key)
        if actor is not None:
            actor.desk.publish(DeviceStateChanged())

    async def answer(self, key: ConversationKey, question_id: QuestionId, answer: Answer, by: str = "client") -> bool:
        actor = await self._registry.actor(key)
        book = self._services.questions
        question = book.open_question(key, question_id)
        if question is None:
            return False
        about_spend = question.asked.tool_name == OwnQuestion.SPEND
        given, pinned = (
            (spend_work.plain(answer), None) if about_spend else await look_at_answer(actor.desk, question, answer)
        )
        raising = partial(spend_work.raise_it, actor.desk) if about_spend and isinstance(given, Allow) else None

        async def settle() -> bool:
            settled = await book.settle(key, question_id, given, pinned, by, raising)
            if settled is None:
                return False
            self._publish_settled(actor, settled)
            actor.answer(question_id, given)
            return True

        # A client that leaves in mid-answer must not leave a settled question that no turn was told of.
        return await finish_regardless(settle())

    async def abort(self, key: ConversationKey, run_id: RunId | None = None) -> bool:
        return await self._intake.abort(key, run_id)

    async def remove_queued(self, key: ConversationKey, item_id: QueueItemId) -> bool:
        return await self._intake.remove(key, item_id)

    async def drop_senders(self, device_ids: Sequence[str]) -> SendersDropped:
        return await self._intake.drop_senders(device_ids)

    async def resume_queue(self, key: ConversationKey) -> int:
        return await self._intake.resume(key)

    async def compact(self, key: ConversationKey, wishes: JsonObject | None = None) -> JsonObject:
        options = options_from(wishes or {})
        actor = await self._registry.actor(key)
        before = len(actor.desk.live.transcript.in_context)
        not_compacted = await actor.run_command("compact", step_work.compact(actor.desk, None, options))
        if isinstance(not_compacted, NotCompacted):
            return {"compacted": False, "reason": not_compacted.reason}
        after = actor.desk.live.transcript.in_context
        return {
            "compacted": True,
            "num_messages_before": before,
            "num_messages_after": len(after),
            "summary": text_of(after[0].content, "text"),
        }

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
        return await self._states.start(request)

    async def change_state(self, key: ConversationKey, mode: Mode | None, cwd: str | None) -> None:
        await self._states.change(key, mode, cwd)

    async def set_model(self, key: ConversationKey, handle: str) -> Literal["agent", "conversation"]:
        return await self._states.set_model(key, handle)

    async def folders(self) -> Folders:
        return await self._states.folders()

    async def set_boot_folder(self, folder: str) -> Folders:
        return await self._states.set_boot_folder(folder)

    async def snapshot(self, key: ConversationKey, *, with_queue: bool = True) -> ConversationSnapshot:
        return await self._states.snapshot(key, with_queue=with_queue)

    def subscribe(self, key: ConversationKey, sink: EventSink) -> Callable[[], None]:
        return self._registry.subscribe(key, sink)

    async def events_after(self, key: ConversationKey, number: int, limit: int = 1000) -> tuple[NumberedEvent, ...]:
        if not await self._registry.known(key):
            return ()
        actor = await self._registry.actor(key)
        return await actor.desk.log.after(number, min(limit, PAGE_LIMIT))

    async def resume_point(self, key: ConversationKey, number: int) -> int:
        if not await self._registry.known(key):
            return 0
        actor = await self._registry.actor(key)
        return await actor.desk.log.resume_point(number)

    # -- agents, conversations, messages --

    async def list_agents(self) -> tuple[AgentRecord, ...]:
        return await self._agents.all()

    async def get_agent(self, agent_id: AgentId) -> AgentRecord | None:
        return await self._agents.get(agent_id)

    async def create_agent(self, agent: NewAgent) -> AgentRecord:
        return await self._agents.create(agent)

    async def adopt_agent(self, agent_id: AgentId) -> AgentRecord:
        return await self._states.adopt_agent(agent_id)

    async def update_agent(self, agent_id: AgentId, changes: JsonObject) -> AgentRecord:
        return await self._states.update_agent(agent_id, changes)

    async def delete_agent(self, agent_id: AgentId) -> None:
        async def change() -> None:
            await self._agents.delete(agent_id)
            await self._registry.forget(agent_id)

        await finish_regardless(change())

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

    def _publish_settled(self, actor: ConversationActor, settled: SettledQuestion) -> None:
        outcome: Literal["allowed", "denied"] = (
            "allowed" if settled.settlement.status is QuestionStatus.ALLOWED else "denied"
        )
        actor.desk.publish(QuestionSettled(settled.question.asked.question_id, outcome))
