"""Every conversation in use: opened when it is first asked for, taken up after a restart, let go at the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from lodger_daemon.backends.local.backend import LocalBackend
from lodger_daemon.backends.local.conversation import LocalConversation
from lodger_daemon.clock import MonoTime
from lodger_daemon.identity import AgentId, ConversationKey
from lodger_daemon.store import conversation_rows, inbox_rows
from lodger_daemon.store.errors import OwnershipLost, StoreError
from lodger_daemon.turns import records, recovery, retelling
from lodger_daemon.turns.actor import ConversationActor
from lodger_daemon.turns.agents import Agents
from lodger_daemon.turns.contract import ConversationError, EventSink
from lodger_daemon.turns.core.events import NumberedEvent, QuestionSettled
from lodger_daemon.turns.core.machine_events import MachineEvent
from lodger_daemon.turns.core.states import Lease
from lodger_daemon.turns.desk import STORE_RETRY_S, Desk, TurnWork
from lodger_daemon.turns.event_log import NUMBER_BLOCK, EventLog
from lodger_daemon.turns.live import LiveConversation, Loaded, load
from lodger_daemon.turns.services import TurnServices

logger = logging.getLogger(__name__)

EXPIRY_LOOK_S: Final = 10.0
FORGET_AFTER_S: Final = 30 * 60.0
"""Longer than any single request works on a conversation."""


class Registry:
    """Event loop only."""

    def __init__(self, services: TurnServices) -> None:
        self._services = services
        self._database = services.database
        self.agents = Agents(services)
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
            services.places,
        )
        self._actors: dict[ConversationKey, ConversationActor] = {}
        self._last_used: dict[ConversationKey, MonoTime] = {}
        self._sinks: dict[ConversationKey, list[EventSink]] = {}
        self._question_watch: asyncio.Task[None] | None = None
        self._taking_up: dict[ConversationKey, asyncio.Task[None]] = {}

    async def recover(self) -> None:
        """Take up what an earlier daemon left: unfinished turns go on, the queue moves, questions are shown again."""
        now = self._services.clock.wall()
        left_over = await self._database.write(lambda connection: recovery.put_in_order(connection, now))
        if await self._services.questions.load():
            self._watch_questions()
        await self._announce_ends()
        for left in left_over:
            try:
                await self._resume(left)
            except Exception:
                # One conversation that cannot be taken up must not keep the others from going on.
                logger.exception("the open turn of %s cannot be taken up", left.turn.conversation)
        for key in await self._database.read(inbox_rows.keys_with_work):
            (await self.actor(key)).pump()

    async def aclose(self, let_go_of_boxes: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stop without ending what runs in boxes: it is collected by the next daemon.

        Args:
            let_go_of_boxes: closes the connections to boxes; called after everything here has stopped recording and
                before tasks are cancelled, since cancelling a call on an open connection would end its processes.
        """
        for actor in self._actors.values():
            actor.desk.stopping = True
        if let_go_of_boxes is not None:
            await let_go_of_boxes()
        if self._question_watch is not None:
            self._question_watch.cancel()
            await asyncio.wait({self._question_watch})
        if self._taking_up:
            await asyncio.wait(set(self._taking_up.values()))
        await asyncio.gather(*(actor.aclose() for actor in self._actors.values()))
        await self.agents.aclose()

    async def actor(self, key: ConversationKey) -> ConversationActor:
        """Raises: ConversationError for an agent that does not exist."""
        taking_up = self._taking_up.get(key)
        if taking_up is not None and taking_up is not asyncio.current_task():
            # Opened before what an earlier turn left is in order, it would meet a turn that is still active.
            await asyncio.wait({taking_up})
        actor = self._actors.get(key)
        if actor is None:
            self._forget_idle()
            now = self._services.clock.wall()
            loaded = await self._database.write(lambda connection: load(connection, key, now))
            if loaded is None:
                raise ConversationError(f"There is no agent {key.agent_id} on this machine.")
            # Of two that opened it at once the first made it; what the second read is thrown away.
            actor = self._actors.get(key) or self._open(key, loaded)
            self._actors[key] = actor
        self._last_used[key] = self._services.clock.mono()
        return actor

    async def known(self, key: ConversationKey) -> bool:
        if key in self._actors:
            return True
        number = await self._database.read(lambda connection: conversation_rows.number_of(connection, key))
        return number is not None

    def in_use(self, key: ConversationKey) -> ConversationActor | None:
        return self._actors.get(key)

    def of_agent(self, agent_id: AgentId) -> tuple[ConversationActor, ...]:
        return tuple(actor for key, actor in self._actors.items() if key.agent_id == agent_id)

    async def take_up_again(self, stuck: ConversationActor) -> ConversationActor:
        """The end of a turn could not be written: let go of what is in memory and go on from what is stored, as after
        a restart. Raises: ConversationError, StoreError."""
        key = stuck.desk.key
        if self._actors.get(key) is stuck and key not in self._taking_up:
            task = self._taking_up[key] = asyncio.create_task(self._take_up(stuck), name=f"taking up {key}")
            task.add_done_callback(lambda _: self._taking_up.pop(key, None))
        taking_up = self._taking_up.get(key)
        if taking_up is not None:
            # Whoever asked first may go away; the others still need it done.
            await asyncio.shield(taking_up)
        return await self.actor(key)

    async def _take_up(self, stuck: ConversationActor) -> None:
        key = stuck.desk.key
        del self._actors[key]
        stuck.desk.stopping = True
        await stuck.aclose()
        now = self._services.clock.wall()
        left_over = await self._database.write(lambda connection: recovery.put_in_order(connection, now, key))
        for left in left_over:
            await self._resume(left)

    async def forget(self, agent_id: AgentId) -> None:
        """The agent is no more: whoever asks for its conversations from now on hears so."""
        gone = [key for key in self._actors if key.agent_id == agent_id]
        actors = [self._actors.pop(key) for key in gone]
        for key in gone:
            self._last_used.pop(key, None)
        await asyncio.gather(*(actor.aclose() for actor in actors))

    def all_in_use(self) -> tuple[ConversationActor, ...]:
        return tuple(self._actors.values())

    def subscribe(self, key: ConversationKey, sink: EventSink) -> Callable[[], None]:
        sinks = self._sinks.setdefault(key, [])
        sinks.append(sink)

        def end() -> None:
            if sink in sinks:
                sinks.remove(sink)
            if not sinks:
                self._sinks.pop(key, None)

        return end

    def _open(self, key: ConversationKey, loaded: Loaded) -> ConversationActor:
        live = LiveConversation(
            key=key,
            agent=loaded.agent,
            model=loaded.model,
            state=loaded.state,
            transcript=LocalConversation(loaded.in_context),
            runs=dict(loaded.runs),
            worked_in=loaded.worked_in,
        )
        reserved = loaded.numbers_reserved
        log = EventLog(key, self._database, self._services.clock, reserved - NUMBER_BLOCK, reserved)
        log.subscribe(lambda numbered: self._fan_out(key, numbered))

        def feed(event: MachineEvent) -> None:
            actor.feed(event)

        def spawn(lease: Lease, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            return actor.spawn(lease, work)

        desk = Desk(
            self._services, self._backend, live, log, feed, spawn, self.agents.memory_ready, self._watch_questions
        )
        actor = ConversationActor(desk)
        return actor

    def _forget_idle(self) -> None:
        """Let conversations leave memory that nobody uses; all of each is on disk."""
        now = self._services.clock.mono()
        for key, actor in tuple(self._actors.items()):
            unused_s = now - self._last_used.get(key, now)
            if unused_s > FORGET_AFTER_S and actor.quiet and key not in self._sinks:
                actor.desk.log.flush()
                del self._actors[key], self._last_used[key]

    def _fan_out(self, key: ConversationKey, numbered: NumberedEvent) -> None:
        for sink in tuple(self._sinks.get(key, ())):
            sink(numbered)

    async def _resume(self, left: recovery.LeftOver) -> None:
        try:
            actor = await self.actor(left.turn.conversation)
        except ConversationError:
            return
        desk = actor.desk
        await retelling.tell_last_step(desk)
        work = TurnWork(actor.next_lease(), left.turn.turn_id, desk.live.place(self._services.options))
        event, collecting = recovery.resume(desk, left, work)
        if left.aborted:
            collecting = ()
        recovery.tell_what_is_void(desk, left)
        actor.recover(work, event, collecting)
        if left.aborted:
            actor.interrupt()

    async def _announce_ends(self) -> None:
        """Tell of turns that ended on paper just before the daemon stopped."""
        while owed := await self._database.read(records.unannounced):
            for key, finished in owed:
                desk = (await self.actor(key)).desk
                await retelling.tell_last_step(desk)
                desk.publish(finished)
                await desk.log.store_held()

    def _watch_questions(self) -> None:
        if self._question_watch is None or self._question_watch.done():
            self._question_watch = asyncio.get_running_loop().create_task(self._expire_questions())

    async def _expire_questions(self) -> None:
        """Runs while a question is open."""
        book = self._services.questions
        while (wait_s := book.next_expiry_s()) is not None:
            # Not longer: a question that is asked meanwhile may end earlier.
            await self._services.clock.sleep(min(wait_s, EXPIRY_LOOK_S))
            try:
                expired = await book.expire_due()
            except OwnershipLost:
                return  # another daemon has the questions now
            except StoreError:
                await self._services.clock.sleep(STORE_RETRY_S)
                continue
            for settled in expired:
                actor = await self.actor(settled.question.conversation)
                question_id = settled.question.asked.question_id
                actor.desk.publish(QuestionSettled(question_id, "expired"))
                actor.lapse(question_id)
