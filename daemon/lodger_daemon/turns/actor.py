"""One conversation at work: feeds events to the machine, has its actions performed, owns the tasks."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, assert_never

from lodger_daemon.identity import QuestionId, TurnId
from lodger_daemon.inbox.core.items import InboxItem
from lodger_daemon.inbox.core.rules import Moment, next_batch
from lodger_daemon.turns import (
    call_work,
    closing_work,
    judge_work,
    preparing,
    question_work,
    recording,
    side_questions,
    spend_work,
    step_work,
    streaming,
)
from lodger_daemon.turns.contract import Answer, ConversationError
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Call
from lodger_daemon.turns.core.events import BlockedBy, LoopStatus, LoopStatusChanged, MemorySynced, QueueBlocked
from lodger_daemon.turns.core.machine import advance
from lodger_daemon.turns.core.states import (
    Active,
    Cancelling,
    Command,
    Idle,
    Lease,
    State,
    blocked_by,
)
from lodger_daemon.turns.desk import Desk, TurnWork

logger = logging.getLogger(__name__)

BROKEN: Final = "Something inside Lodger broke: {error}. The turn was ended."


class ConversationActor:
    """Event loop only. `feed` never waits: what takes time runs in tasks that report back by events."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._state: State = Idle()
        self._lease = Lease(0)
        self._claimed = False
        self._blocked: BlockedBy | None = None
        """As told last."""
        self.left_open = False
        """The end of the latest turn could not be written: only the store knows how far it is."""
        self._command: asyncio.Future[Any] | None = None
        self._told: deque[told.MachineEvent] = deque()
        self._performing = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In the order they were begun, so that they are stopped in it."""
        self._sync_report: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    # -- what others see and ask --

    @property
    def state(self) -> State:
        return self._state

    @property
    def processing(self) -> bool:
        """True from acceptance to the end, but not while an abort unwinds (PROTOCOL.md 5.1)."""
        return self._claimed or isinstance(self._state, Active | Command)

    @property
    def quiet(self) -> bool:
        """Nothing runs here and nothing is promised."""
        return isinstance(self._state, Idle) and not self._claimed and not self._tasks and not self._told

    def claim(self) -> TurnId | None:
        """Promise the next turn to an input that is about to be stored; None when it has to queue."""
        if self._claimed or not isinstance(self._state, Idle) or self.desk.stopping:
            return None
        if self.desk.waiting():
            # Parked messages go on with the new one, and before it.
            return None
        self._claimed = True
        self._idle.clear()
        return TurnId(f"turn-{self.desk.services.rng.uuid()}")

    def give_back_claim(self) -> None:
        self._claimed = False
        self.pump()

    def begin(self, turn_id: TurnId, item: InboxItem) -> None:
        """Start the turn whose input was reserved as it was accepted."""
        self._claimed = False
        work = self._new_work(turn_id)
        work.reserved = True
        self.desk.take_input(work, (item,), first=True)
        self.feed(told.InputWaits(work.lease, turn_id, True, self.desk.services.options.max_steps))

    def expect(self) -> None:
        """Something was queued; a pump follows."""
        self._idle.clear()

    def pump(self) -> None:
        """Start the head of the queue if nothing else owns the conversation."""
        self._tell_blocked()
        if self._claimed or not isinstance(self._state, Idle) or self.desk.stopping:
            return
        if not next_batch(self.desk.waiting(), Moment.TURN_START):
            self._idle.set()
            return
        self._idle.clear()
        work = self._new_work(TurnId(f"turn-{self.desk.services.rng.uuid()}"))
        self.feed(told.InputWaits(work.lease, work.turn_id, False, self.desk.services.options.max_steps))

    def recover(self, work: TurnWork, event: told.TurnRecovered, collecting: tuple[Call, ...]) -> None:
        self._idle.clear()
        self.desk.work = work
        self.feed(event)
        for call in collecting:
            assert event.batch is not None
            arguments = work.collecting[call.tool_call_id]
            self.spawn(work.lease, call_work.collect_call(self.desk, work, event.batch, call, arguments))

    def next_lease(self) -> Lease:
        self._lease = Lease(self._lease + 1)
        return self._lease

    def abort(self) -> asyncio.Task[None] | None:
        """Interrupt the turn for a person; None when there is nothing (more) to interrupt.

        What is returned ends once a crash can no longer undo it and the messages that wait are parked.
        """
        work = self.desk.work
        if not self.interrupt() or work is None:
            return None
        # Seen by the unwinding before it takes its first step: it writes nothing before this is written.
        work.interruption = self.spawn(None, closing_work.keep_interruption(self.desk, work.turn_id))
        return work.interruption

    def interrupt(self) -> bool:
        """Whether a turn is being interrupted now."""
        before = self._state
        if isinstance(before, Active):
            # Taken off the screen before anybody is shown the idle conversation.
            self.desk.questions.clear()
        self.feed(told.AbortAsked())
        return isinstance(before, Active) and isinstance(self._state, Cancelling)

    def answer(self, question_id: QuestionId, answer: Answer) -> None:
        self.desk.questions.pop(question_id, None)
        if side_questions.is_beside(question_id):
            side_questions.answered(self.desk, question_id, answer)
            return
        self.feed(told.AnswerGiven(question_id, answer))

    def lapse(self, question_id: QuestionId) -> None:
        self.desk.questions.pop(question_id, None)
        self.desk.tell_asker(question_id, None)
        self.feed(told.QuestionLapsed(question_id))

    def own(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the turns; it ends with the conversation."""
        self.spawn(None, work)

    async def settled(self) -> None:
        """Wait until nothing runs and nothing waits."""
        await self._idle.wait()

    async def run_command(self, name: str, work: Coroutine[Any, Any, Any]) -> Any:
        """Raises: ConversationError when the conversation is busy, or when a person stopped the command."""
        if self._claimed or not isinstance(self._state, Idle):
            work.close()
            raise ConversationError("The conversation is busy. Wait for its turn to end, or abort it.")
        lease = self.next_lease()
        self.feed(told.CommandBegun(lease, name))
        self._idle.clear()
        command = self._command = asyncio.ensure_future(work)
        try:
            await asyncio.wait({command})
        except asyncio.CancelledError:
            # Whoever asked for it has left. It is over when it has stopped, and not before.
            command.cancel()
            while not command.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({command})
            raise
        finally:
            self._command = None
            self.feed(told.CommandEnded(lease))
        if command.cancelled():
            raise ConversationError("The command was stopped.")
        return command.result()

    def stop_command(self) -> bool:
        """Whether a command is being stopped now."""
        return self._command is not None and self._command.cancel()

    async def aclose(self) -> None:
        """Stop all tasks. What they were at is on paper as far as it came; the next daemon goes on from there."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.desk.log.aclose()

    # -- the machine and its actions --

    def feed(self, event: told.MachineEvent) -> None:
        """Tell the machine; an event that comes up while actions are performed waits for its turn."""
        self._told.append(event)
        if self._performing:
            return
        self._performing = True
        try:
            while self._told:
                before, event = self._state, self._told.popleft()
                self._state, actions = advance(before, event)
                if isinstance(event, told.WorkFailed) and isinstance(before, Active | Cancelling):
                    self.left_open = isinstance(self._state, Idle)
                for action in actions:
                    self._perform(action)
                self._tell_blocked()
        finally:
            self._performing = False

    def _tell_blocked(self) -> None:
        reason = blocked_by(self._state) if self.desk.anything_queued else None
        if reason is not self._blocked:
            self._blocked = reason
            self.desk.publish(QueueBlocked(reason))

    def _perform(self, action: do.Action) -> None:
        desk = self.desk
        match action:
            case do.Publish(event):
                desk.publish(event)
            case do.PrepareStep():
                self.spawn(action.lease, preparing.prepare(desk, action))
            case do.RunStep():
                self.spawn(action.lease, streaming.run(desk, action))
            case do.RecordStep():
                self.spawn(action.lease, recording.record(desk, action))
            case do.DropRun():
                dropping = self.spawn(action.lease, step_work.drop_run(desk, action))
                if desk.work is not None:
                    desk.work.dropping = dropping
            case do.Wait():
                self.spawn(action.lease, self._wait(action))
            case do.CompactNow():
                self.spawn(action.lease, step_work.compact_now(desk, action))
            case do.JudgeCalls():
                self.spawn(action.lease, judge_work.judge_calls(desk, action))
            case do.AskPerson():
                self.spawn(action.lease, call_work.ask_person(desk, action))
            case do.AskAboutSpend():
                self.spawn(action.lease, spend_work.ask(desk, action))
            case do.SaveRules():
                self.spawn(action.lease, question_work.save_rules(desk, action))
            case do.RefuseCall():
                self.spawn(action.lease, call_work.refuse_call(desk, action))
            case do.RunCall():
                self.spawn(action.lease, call_work.run_call(desk, action))
            case do.CloseTurn():
                self.spawn(action.lease, closing_work.close(desk, action))
            case do.Unwind():
                self.spawn(action.lease, closing_work.unwind(desk, action))
            case do.TurnIsOver():
                self._turn_is_over()
            case do.Pump():
                # After the events of the turn that ended have reached everybody.
                asyncio.get_running_loop().call_soon(self.pump)
            case _:
                assert_never(action)

    async def _wait(self, action: do.Wait) -> None:
        await self.desk.services.clock.sleep(action.delay_s)
        self.desk.work_of(action.lease)
        self.feed(told.WaitEnded(action.lease))

    def _turn_is_over(self) -> None:
        desk = self.desk
        if desk.stopping:
            return
        if desk.last_was_queued:
            # PROTOCOL.md 5.3: a snapshot follows each queued turn.
            desk.publish_queue()
            desk.publish(LoopStatusChanged(LoopStatus.WAITING_ON_INPUT))
        desk.log.flush()
        desk.forget_old()
        desk.services.memory.turn_ended(desk.key.agent_id, desk.last_box)
        if self._sync_report is None or self._sync_report.done():
            self._sync_report = self.spawn(None, self._report_sync())

    async def _report_sync(self) -> None:
        """Tell clients how the sync that was just started ended. A later turn does not wait for it."""
        desk = self.desk
        status = await desk.services.memory.settled(desk.key.agent_id, desk.services.options.memory_sync_wait_s)
        told_before = desk.last_sync
        desk.last_sync = (status.outcome.value, status.head)
        if desk.last_sync != told_before:
            desk.publish(MemorySynced(status.outcome.value, status.head, status.detail))

    def _new_work(self, turn_id: TurnId) -> TurnWork:
        work = TurnWork(self.next_lease(), turn_id, self.desk.live.place(self.desk.services.options))
        self.desk.work = work
        return work

    def spawn(self, lease: Lease | None, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something for the turn of this lease: it is stopped with it."""
        task = asyncio.get_running_loop().create_task(self._guarded(lease, work))
        owner = self.desk.work
        if lease is not None and owner is not None and owner.lease == lease:
            owner.tasks[task] = None
            task.add_done_callback(lambda ended: owner.tasks.pop(ended, None))
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))
        # Work that was cancelled before its first step is closed without having run.
        task.add_done_callback(lambda _: work.close())
        return task

    def _follows_from_another(self, error: Exception) -> bool:
        """Several tasks of a turn stumble over one commit that failed; the first has told of it."""
        work = self.desk.work
        return isinstance(self._state, Cancelling) and work is not None and error is work.unstored

    async def _guarded(self, lease: Lease | None, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            # The one place where an unforeseen fault ends the turn instead of the daemon.
            logger.exception("work for %s failed", self.desk.key)
            if lease is not None and not self.desk.stopping and not self._follows_from_another(error):
                self.feed(told.WorkFailed(lease, BROKEN.format(error=error)))
