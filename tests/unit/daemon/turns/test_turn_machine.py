"""The turn machine's rules: ownership, approvals, interruption, retries, scheduling (BEHAVIOUR.md section I)."""

from dataclasses import replace

import pytest

from lodger_daemon.identity import MessageId, QuestionId, RunId, ToolCallId, TurnId
from lodger_daemon.models.contract import FailureKind, FinishReason
from lodger_daemon.turns.contract import Allow, Deny
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Batch, Call, Done, MustAsk, Permitted, Refused, Undecided
from lodger_daemon.turns.core.machine import advance
from lodger_daemon.turns.core.machine_events import MachineEvent
from lodger_daemon.turns.core.states import (
    Active,
    Asking,
    Cancelling,
    Executing,
    Finishing,
    Idle,
    Lease,
    State,
    Turn,
)
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.permissions.core.verdicts import Suggestion
from lodger_tools.toolbox_contract import Scheduling

LEASE = Lease(1)
RUN = RunId("run-1")
TURN = TurnId("turn-1")


class Machine:
    """Drives `advance` and keeps what it asked for."""

    def __init__(self) -> None:
        self.state: State = Idle()
        self.actions: list[do.Action] = []

    def tell(self, *events: MachineEvent) -> list[do.Action]:
        """The actions of the last of these events."""
        last: tuple[do.Action, ...] = ()
        for event in events:
            self.state, last = advance(self.state, event)
            self.actions.extend(last)
        return list(last)

    def published(self) -> list[object]:
        return [action.event for action in self.actions if isinstance(action, do.Publish)]

    def performed(self, kind: type) -> list[object]:
        return [action for action in self.actions if isinstance(action, kind)]

    @property
    def phase(self) -> object:
        assert isinstance(self.state, Active)
        return self.state.phase


def call(name: str, scheduling: Scheduling = Scheduling.BARRIER) -> Call:
    return Call(ToolCallId(name), "Bash", "{}", {"command": name}, scheduling)


def batch(*calls: Call) -> Batch:
    return Batch(RUN, MessageId("message-1"), calls)


def started(max_steps: int = 200) -> Machine:
    machine = Machine()
    machine.tell(told.InputWaits(LEASE, TURN, True, max_steps), told.Prepared(LEASE, RUN, can_ask=True))
    return machine


def completed(
    finish: FinishReason = FinishReason.STOP, calls: Batch | None = None, empty: bool = False
) -> MachineEvent:
    return told.StepCompleted(LEASE, RUN, finish, calls, empty)


def calling(*calls: Call, max_steps: int = 200) -> Machine:
    """A machine that waits for the verdicts on these calls."""
    machine = started(max_steps)
    machine.tell(
        told.StepAdmitted(LEASE, RUN),
        completed(FinishReason.TOOL_CALLS, batch(*calls)),
        told.StepRecorded(LEASE, RUN),
    )
    return machine


def allowed(*calls: Call) -> MachineEvent:
    return told.CallsJudged(LEASE, {c.tool_call_id: Permitted(c.arguments or {}) for c in calls})


def asked(*calls: Call) -> MachineEvent:
    suggestion = Suggestion("save-default", "Bash", "Bash")
    return told.CallsJudged(LEASE, {c.tool_call_id: MustAsk("leaves the box", (suggestion,)) for c in calls})


def running(actions: list[do.Action]) -> list[str]:
    return [action.call.tool_call_id for action in actions if isinstance(action, do.RunCall)]


def test_a_text_turn_ends_once_and_only_after_its_end_is_written() -> None:
    machine = started()
    machine.tell(told.StepAdmitted(LEASE, RUN))
    ending = machine.tell(completed())
    turn = Turn(TURN, True, 1, RUN)
    assert ending == [do.CloseTurn(LEASE, turn, StopReason.END_TURN, None, RUN)]
    assert machine.tell(told.TurnClosed(LEASE)) == [
        do.Publish(seen.LoopStatusChanged(seen.LoopStatus.WAITING_ON_INPUT)),
        do.Publish(seen.DeviceStateChanged()),
        do.Publish(seen.TurnFinished(TURN, StopReason.END_TURN, RUN)),
        do.Publish(seen.DeviceStateChanged()),
        do.TurnIsOver(turn),
        do.Pump(),
    ]
    assert machine.state == Idle()
    assert machine.tell(told.TurnClosed(LEASE)) == []


def test_begin_is_refused_while_active_and_while_cancelling() -> None:
    machine = started()
    before = machine.state
    assert machine.tell(told.InputWaits(Lease(2), TurnId("turn-2"), direct=True)) == []
    assert machine.state == before
    machine.tell(told.AbortAsked())
    assert machine.tell(told.InputWaits(Lease(2), TurnId("turn-2"), direct=True)) == []
    assert isinstance(machine.state, Cancelling)


def test_a_stale_lease_says_nothing() -> None:
    machine = started()
    stale = Lease(0)
    silent: tuple[MachineEvent, ...] = (
        told.StepAdmitted(stale, RUN),
        told.StepCompleted(stale, RUN, FinishReason.STOP, None, False),
        told.StepFailed(stale, RUN, FailureKind.NETWORK, "gone", None, None, 0.0),
        told.CallEnded(stale, ToolCallId("c1")),
        told.TurnClosed(stale),
        told.Unwound(stale),
        told.WorkFailed(stale, "late"),
    )
    before = machine.state
    for event in silent:
        assert machine.tell(event) == []
    assert machine.state == before


def test_a_report_of_an_earlier_run_of_the_same_lease_says_nothing() -> None:
    machine = started()
    old = RunId("run-0")
    assert machine.tell(told.StepAdmitted(LEASE, old)) == []
    assert machine.tell(told.StepCompleted(LEASE, old, FinishReason.STOP, None, False)) == []
    assert machine.tell(told.StepFailed(LEASE, old, FailureKind.NETWORK, "x", None, None, 0.0)) == []


def test_a_command_blocks_the_queue_until_it_ends() -> None:
    machine = Machine()
    machine.tell(told.CommandBegun(LEASE, "compact"))
    assert machine.tell(told.InputWaits(Lease(2), TURN, direct=False)) == []
    assert machine.tell(told.CommandEnded(LEASE))[-1] == do.Pump()
    assert machine.state == Idle()


def test_questions_are_asked_one_at_a_time() -> None:
    one, two = call("c1"), call("c2")
    machine = calling(one, two)
    machine.tell(asked(one, two))
    assert [a.question_id for a in machine.actions if isinstance(a, do.AskPerson)] == ["perm-c1"]
    machine.tell(told.AnswerGiven(QuestionId("perm-c1"), Deny("no")))
    assert [a.question_id for a in machine.actions if isinstance(a, do.AskPerson)] == ["perm-c1", "perm-c2"]
    actions = machine.tell(told.AnswerGiven(QuestionId("perm-c2"), Allow()))
    assert running(actions) == ["c2"]
    assert [(a.call.tool_call_id, a.text) for a in actions if isinstance(a, do.RefuseCall)] == [("c1", "no")]


def together(*calls: Call) -> Machine:
    """A machine whose client can show several questions; all of these calls were asked about."""
    machine = Machine()
    machine.tell(
        told.InputWaits(LEASE, TURN, True),
        told.Prepared(LEASE, RUN, can_ask=True, ask_together=True),
        told.StepAdmitted(LEASE, RUN),
        completed(FinishReason.TOOL_CALLS, batch(*calls)),
        told.StepRecorded(LEASE, RUN),
        asked(*calls),
    )
    return machine


def test_questions_are_asked_together_where_the_client_can_show_them() -> None:
    one, two, three = call("c1"), call("c2"), call("c3")
    machine = together(one, two, three)
    assert [a.question_id for a in machine.actions if isinstance(a, do.AskPerson)] == ["perm-c1", "perm-c2", "perm-c3"]
    assert running(machine.tell(told.AnswerGiven(QuestionId("perm-c3"), Allow()))) == []
    assert running(machine.tell(told.QuestionLapsed(QuestionId("perm-c1")))) == []
    assert len(machine.performed(do.AskPerson)) == 3
    actions = machine.tell(told.AnswerGiven(QuestionId("perm-c2"), Allow()))
    assert running(actions) == ["c2"]
    assert [a.call.tool_call_id for a in actions if isinstance(a, do.RefuseCall)] == ["c1"]


def test_an_answer_that_comes_while_a_rule_is_saved_or_judged_is_kept() -> None:
    one, two, three = call("c1"), call("c2"), call("c3")
    for moment in ("saving", "judging"):
        machine = together(one, two, three)
        machine.tell(told.AnswerGiven(QuestionId("perm-c1"), Allow(suggestion_ids=("save-default",))))
        if moment == "judging":
            machine.tell(told.RulesSaved(LEASE))
        machine.tell(told.AnswerGiven(QuestionId("perm-c2"), Deny("no")))
        if moment == "saving":
            machine.tell(told.RulesSaved(LEASE))
        actions = machine.tell(allowed(two, three))
        assert [a.text for a in actions if isinstance(a, do.RefuseCall)] == ["no"], moment
        assert running(actions) == ["c1"]


def test_two_answers_that_bring_rules_wait_for_both() -> None:
    one, two = call("c1"), call("c2")
    machine = together(one, two)
    answer = Allow(suggestion_ids=("save-default",))
    machine.tell(told.AnswerGiven(QuestionId("perm-c1"), answer), told.AnswerGiven(QuestionId("perm-c2"), answer))
    assert machine.tell(told.RulesSaved(LEASE)) == []
    assert running(machine.tell(told.RulesSaved(LEASE))) == ["c1"]


def test_an_answer_has_one_effect() -> None:
    one = call("c1")
    machine = calling(one)
    machine.tell(asked(one))
    answer = told.AnswerGiven(QuestionId("perm-c1"), Allow())
    assert running(machine.tell(answer)) == ["c1"]
    assert machine.tell(answer) == []


def test_a_late_answer_does_not_undo_a_cancellation() -> None:
    one = call("c1")
    machine = calling(one)
    machine.tell(asked(one))
    unwind = machine.tell(told.AbortAsked())[-1]
    assert isinstance(unwind, do.Unwind)
    assert unwind.stop_reason is StopReason.CANCELLED
    assert machine.tell(told.AnswerGiven(QuestionId("perm-c1"), Allow())) == []
    machine.tell(told.Unwound(LEASE))
    assert machine.tell(told.AnswerGiven(QuestionId("perm-c1"), Allow())) == []
    assert machine.performed(do.RunCall) == []


def test_a_saved_rule_has_the_rest_judged_again() -> None:
    one, two = call("c1"), call("c2")
    machine = calling(one, two)
    machine.tell(asked(one, two))
    answer = told.AnswerGiven(QuestionId("perm-c1"), Allow(suggestion_ids=("save-default",)))
    assert isinstance(machine.tell(answer)[-1], do.SaveRules)
    judging = machine.tell(told.RulesSaved(LEASE))[-1]
    assert isinstance(judging, do.JudgeCalls)
    assert [c.tool_call_id for c in judging.calls] == ["c2"]
    machine.tell(allowed(two))
    assert len(machine.performed(do.AskPerson)) == 1


def test_changed_input_runs_as_changed() -> None:
    one = call("c1")
    changed = {"command": "safe"}
    machine = calling(one)
    machine.tell(asked(one))
    machine.tell(told.AnswerGiven(QuestionId("perm-c1"), Allow(updated_input=changed)))
    [run] = machine.performed(do.RunCall)
    assert isinstance(run, do.RunCall)
    assert (run.arguments, run.by_person) == (changed, True)


def test_a_question_nobody_answers_is_denied_and_the_turn_goes_on() -> None:
    one = call("c1")
    machine = calling(one)
    machine.tell(asked(one))
    [refusal] = [a for a in machine.tell(told.QuestionLapsed(QuestionId("perm-c1"))) if isinstance(a, do.RefuseCall)]
    assert "Nobody answered" in refusal.text
    assert isinstance(machine.tell(told.CallEnded(LEASE, one.tool_call_id))[-1], do.PrepareStep)


def test_a_client_that_cannot_answer_is_not_asked() -> None:
    one = call("c1")
    machine = Machine()
    machine.tell(
        told.InputWaits(LEASE, TURN, direct=True),
        told.Prepared(LEASE, RUN, can_ask=False),
        told.StepAdmitted(LEASE, RUN),
        completed(FinishReason.TOOL_CALLS, batch(one)),
        told.StepRecorded(LEASE, RUN),
        asked(one),
    )
    assert machine.performed(do.AskPerson) == []
    [refusal] = machine.performed(do.RefuseCall)
    assert isinstance(refusal, do.RefuseCall)
    assert "cannot answer" in refusal.text


def test_readers_overlap_and_a_writer_is_a_barrier_in_call_order() -> None:
    read1, read2 = call("r1", Scheduling.PARALLEL), call("r2", Scheduling.PARALLEL)
    write, read3 = call("w"), call("r3", Scheduling.PARALLEL)
    machine = calling(read1, read2, write, read3)
    assert running(machine.tell(allowed(read1, read2, write, read3))) == ["r1", "r2"]
    assert running(machine.tell(told.CallEnded(LEASE, ToolCallId("r2")))) == []
    assert running(machine.tell(told.CallEnded(LEASE, ToolCallId("r1")))) == ["w"]
    assert running(machine.tell(told.CallEnded(LEASE, ToolCallId("w")))) == ["r3"]


def test_a_refused_writer_holds_nobody() -> None:
    write, read = call("w"), call("r", Scheduling.PARALLEL)
    machine = calling(write, read)
    progress = {write.tool_call_id: Refused("no"), read.tool_call_id: Permitted({})}
    assert running(machine.tell(told.CallsJudged(LEASE, progress))) == ["r"]


def test_a_repeated_call_end_counts_once() -> None:
    one, two = call("c1", Scheduling.PARALLEL), call("c2", Scheduling.PARALLEL)
    machine = calling(one, two)
    machine.tell(allowed(one, two), told.CallEnded(LEASE, one.tool_call_id))
    assert machine.tell(told.CallEnded(LEASE, one.tool_call_id)) == []
    assert isinstance(machine.phase, Executing)


@pytest.mark.parametrize("where", ["preparing", "stepping", "waiting", "compacting", "recording", "judging", "asking",
                                   "saving", "executing"])  # fmt: skip
def test_an_abort_in_each_phase_unwinds_once_and_ends_cancelled(where: str) -> None:
    machine = reach(where)
    turn = machine.state.turn if isinstance(machine.state, Active) else None
    assert turn is not None
    actions = machine.tell(told.AbortAsked())
    shown = [a.event for a in actions if isinstance(a, do.Publish)]
    assert (shown[2:] if where == "asking" else shown) == [
        seen.LoopStatusChanged(seen.LoopStatus.WAITING_ON_INPUT),
        seen.DeviceStateChanged(),
        seen.StatusNote("Interrupted", "warning", turn.run_id),
    ]
    assert len([a for a in actions if isinstance(a, do.Unwind)]) == 1
    assert machine.tell(told.AbortAsked()) == []
    ended = machine.tell(told.Unwound(LEASE))
    finished = [a.event for a in ended if isinstance(a, do.Publish) and isinstance(a.event, seen.TurnFinished)]
    assert finished == [seen.TurnFinished(TURN, StopReason.CANCELLED, turn.run_id)]
    assert machine.state == Idle()


def reach(where: str) -> Machine:
    one = call("c1")
    failed = told.StepFailed(LEASE, RUN, FailureKind.NETWORK, "gone", None, None, 0.0)
    overflow = replace(failed, kind=FailureKind.CONTEXT_OVERFLOW)
    match where:
        case "preparing":
            machine = Machine()
            machine.tell(told.InputWaits(LEASE, TURN, direct=True))
            return machine
        case "stepping":
            return started()
        case "waiting" | "compacting":
            machine = started()
            machine.tell(failed if where == "waiting" else overflow)
            return machine
        case "recording":
            machine = started()
            machine.tell(completed(FinishReason.TOOL_CALLS, batch(one)))
            return machine
        case "judging":
            return calling(one)
    machine = calling(one)
    machine.tell(allowed(one) if where == "executing" else asked(one))
    if where == "saving":
        machine.tell(told.AnswerGiven(QuestionId("perm-c1"), Allow(suggestion_ids=("save-default",))))
    return machine


def test_an_abort_while_finishing_comes_too_late() -> None:
    machine = started()
    machine.tell(told.StepAdmitted(LEASE, RUN), completed())
    assert machine.tell(told.AbortAsked()) == []
    assert machine.phase == Finishing(StopReason.END_TURN)


def failing(kind: FailureKind, retry_after_s: float | None = None, status: int | None = None) -> MachineEvent:
    return told.StepFailed(LEASE, RUN, kind, "trouble", status, retry_after_s, 0.0)


def waits(machine: Machine, event: MachineEvent) -> list[float]:
    """The waits until the machine gives up on this repeated failure."""
    delays: list[float] = []
    while True:
        pauses = [a.delay_s for a in machine.tell(event) if isinstance(a, do.Wait)]
        if not pauses:
            return delays
        delays.extend(pauses)
        machine.tell(told.WaitEnded(LEASE), told.Prepared(LEASE, RUN, can_ask=True))


@pytest.mark.parametrize(
    ("event", "delays"),
    [
        (failing(FailureKind.RATE_LIMIT), [1, 2, 4]),
        (failing(FailureKind.SERVER, status=522), [5, 10, 20]),
        (failing(FailureKind.SERVER, status=409), [10, 20, 40]),
        (failing(FailureKind.OVERLOADED, retry_after_s=7), [7, 7, 7]),
        (failing(FailureKind.RATE_LIMIT, retry_after_s=3600), [60, 60, 60]),
        (failing(FailureKind.AUTHENTICATION), []),
        (failing(FailureKind.QUOTA), []),
        (failing(FailureKind.BAD_REQUEST), []),
        (failing(FailureKind.UNKNOWN_MODEL), []),
        (completed(empty=True), [0.5, 1.0]),
    ],
)
def test_retries_follow_the_one_table(event: MachineEvent, delays: list[float]) -> None:
    machine = started()
    assert waits(machine, event) == delays
    announced = [e for e in machine.published() if isinstance(e, seen.RetryAnnounced)]
    assert [e.delay_ms for e in announced] == [d * 1000 for d in delays]
    assert isinstance(machine.phase, Finishing)


def test_jitter_only_lengthens_a_wait_and_never_beyond_the_cap() -> None:
    machine = started()
    event = told.StepFailed(LEASE, RUN, FailureKind.NETWORK, "x", None, None, 0.999)
    assert [1 < d < 1.25 * 2**n for n, d in enumerate(waits(machine, event))] == [True, True, True]
    capped = told.StepFailed(LEASE, RUN, FailureKind.NETWORK, "x", None, 59.0, 0.999)
    assert waits(started(), capped) == [60, 60, 60]


def test_the_last_try_after_empty_answers_carries_a_reminder() -> None:
    machine = started()
    waits(machine, completed(empty=True))
    prepares = [a.remind_of_empty for a in machine.actions if isinstance(a, do.PrepareStep)]
    assert prepares == [False, False, True]


def test_a_failed_run_that_was_seen_is_stopped_before_the_next_try() -> None:
    machine = started()
    machine.tell(told.StepAdmitted(LEASE, RUN), failing(FailureKind.CUT_SHORT))
    published = machine.published()
    stopped = published.index(seen.RunStopped(RUN, StopReason.LLM_API_ERROR))
    assert published[stopped + 1] == seen.RunVoided(RUN)
    assert machine.performed(do.DropRun) == [do.DropRun(LEASE, RUN, StopReason.LLM_API_ERROR)]


@pytest.mark.parametrize(
    ("kind", "stop_reason"),
    [
        (FailureKind.QUOTA, StopReason.INSUFFICIENT_CREDITS),
        (FailureKind.AUTHENTICATION, StopReason.ERROR),
        (FailureKind.BAD_REQUEST, StopReason.ERROR),
    ],
)
def test_a_failure_that_cannot_be_mended_ends_the_turn_with_its_text(
    kind: FailureKind, stop_reason: StopReason
) -> None:
    machine = started()
    machine.tell(failing(kind))
    shown = [type(e) for e in machine.published()][-2:]
    assert shown == [seen.LoopFailed, seen.RunFailed]
    ended = [a.event for a in machine.tell(told.TurnClosed(LEASE)) if isinstance(a, do.Publish)]
    assert seen.TurnFinished(TURN, stop_reason, RUN, "trouble") in ended
    assert seen.LoopFailed("trouble", stop_reason, terminal=True, run_id=RUN) in ended


@pytest.mark.parametrize(
    ("finish", "stop_reason"),
    [
        (FinishReason.LENGTH, StopReason.MAX_TOKENS_EXCEEDED),
        (FinishReason.CONTENT_FILTER, StopReason.ERROR),
        (FinishReason.UNKNOWN, StopReason.END_TURN),
    ],
)
def test_every_step_ends_with_one_stop_reason(finish: FinishReason, stop_reason: StopReason) -> None:
    machine = started()
    [action] = machine.tell(completed(finish))
    assert isinstance(action, do.CloseTurn)
    assert action.stop_reason is stop_reason


def test_an_overflow_compacts_and_gives_up_when_that_does_not_help() -> None:
    machine = started()
    assert machine.tell(failing(FailureKind.CONTEXT_OVERFLOW))[-1] == do.CompactNow(LEASE)
    assert isinstance(machine.tell(told.Compacted(LEASE, shrunk=True))[-1], do.PrepareStep)
    machine.tell(told.Prepared(LEASE, RUN, can_ask=True), failing(FailureKind.CONTEXT_OVERFLOW))
    machine.tell(told.Compacted(LEASE, shrunk=False))
    assert isinstance(machine.phase, Finishing)
    assert machine.phase.stop_reason is StopReason.CONTEXT_WINDOW_OVERFLOW


def test_a_request_that_leaves_its_answer_no_room_ends_the_turn_with_the_reason() -> None:
    machine = started()
    machine.tell(failing(FailureKind.CONTEXT_OVERFLOW), told.Compacted(LEASE, shrunk=True))
    machine.tell(told.TooLarge(LEASE, "no room"), told.TurnClosed(LEASE))
    assert isinstance(machine.state, Idle)
    assert seen.TurnFinished(TURN, StopReason.CONTEXT_WINDOW_OVERFLOW, RUN, "no room") in machine.published()


def test_the_step_limit_ends_the_turn_after_the_results() -> None:
    one = call("c1")
    machine = calling(one, max_steps=1)
    machine.tell(allowed(one), told.CallEnded(LEASE, one.tool_call_id))
    assert isinstance(machine.phase, Finishing)
    assert machine.phase.stop_reason is StopReason.MAX_STEPS


def test_something_broken_unwinds_and_ends_as_an_error() -> None:
    one = call("c1")
    machine = calling(one)
    machine.tell(allowed(one))
    unwind = machine.tell(told.WorkFailed(LEASE, "the disk broke"))[-1]
    assert isinstance(unwind, do.Unwind)
    assert (unwind.stop_reason, unwind.error) == (StopReason.ERROR, "the disk broke")
    machine.tell(told.Unwound(LEASE))
    assert seen.TurnFinished(TURN, StopReason.ERROR, RUN, "the disk broke") in machine.published()


def test_a_recovered_turn_goes_on_where_it_was() -> None:
    turn = Turn(TURN, True, 1, RUN)
    one, two = call("c1"), call("c2")
    half = batch(replace(one, progress=Done()), replace(two, progress=Undecided()))
    machine = Machine()
    judging = machine.tell(told.TurnRecovered(LEASE, turn, half))[-1]
    assert isinstance(judging, do.JudgeCalls)
    assert [c.tool_call_id for c in judging.calls] == ["c2"]

    machine = Machine()
    assert isinstance(machine.tell(told.TurnRecovered(LEASE, turn, None))[-1], do.PrepareStep)

    machine = Machine()
    all_done = batch(replace(one, progress=Done()))
    assert isinstance(machine.tell(told.TurnRecovered(LEASE, turn, all_done))[-1], do.PrepareStep)


def test_the_question_on_screen_belongs_to_the_state() -> None:
    one = call("c1")
    machine = calling(one)
    machine.tell(asked(one))
    assert isinstance(machine.phase, Asking)
    assert machine.tell(told.AnswerGiven(QuestionId("perm-other"), Allow())) == []


def test_while_a_cancelled_turn_unwinds_nothing_else_is_heard() -> None:
    one = call("c1")
    late: tuple[MachineEvent, ...] = (
        told.Prepared(LEASE, RUN, True),
        told.NothingWaits(LEASE),
        told.StepAdmitted(LEASE, RUN),
        completed(),
        told.StepFailed(LEASE, RUN, FailureKind.NETWORK, "x", None, None, 0.0),
        told.StepRecorded(LEASE, RUN),
        told.WaitEnded(LEASE),
        told.Compacted(LEASE, shrunk=True),
        allowed(one),
        told.RulesSaved(LEASE),
        told.CallEnded(LEASE, one.tool_call_id),
        told.TurnClosed(LEASE),
    )
    for where in ("preparing", "stepping", "waiting", "recording", "judging", "asking", "executing"):
        machine = reach(where)
        machine.tell(told.AbortAsked())
        before = machine.state
        for event in late:
            assert machine.tell(event) == []
        assert machine.state == before


def test_an_end_that_could_not_be_written_is_not_announced() -> None:
    machine = started()
    machine.tell(told.StepAdmitted(LEASE, RUN), completed(), told.WorkFailed(LEASE, "the store closed"))
    assert machine.state == Idle()
    assert [e for e in machine.published() if isinstance(e, seen.TurnFinished)] == []
    assert seen.LoopFailed("the store closed", StopReason.ERROR, terminal=True, run_id=RUN) in machine.published()
