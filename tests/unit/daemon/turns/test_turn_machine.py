"""The turn machine's rules: ownership, scheduling, interruption, recovery (BEHAVIOUR.md section I)."""

from dataclasses import replace

import pytest

from lodger_daemon.identity import QuestionId, RunId, ToolCallId, TurnId
from lodger_daemon.models.contract import FailureKind, FinishReason
from lodger_daemon.turns.contract import Allow
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Done, Permitted, Refused, Undecided
from lodger_daemon.turns.core.machine_events import MachineEvent
from lodger_daemon.turns.core.states import (
    Active,
    Cancelling,
    Executing,
    Finishing,
    Idle,
    Lease,
    Turn,
)
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.toolbox_contract import Scheduling
from support.turn_machine import (
    LEASE,
    RUN,
    TURN,
    Machine,
    allowed,
    asked,
    batch,
    call,
    calling,
    completed,
    running,
    started,
)


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
