"""The turn machine's rules of how a step ends: retries, stop reasons, overflow, limits (BEHAVIOUR.md section I)."""

import pytest

from lodger_daemon.models.contract import FailureKind, FinishReason
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.machine_events import MachineEvent
from lodger_daemon.turns.core.states import (
    Finishing,
    Idle,
)
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.turn_machine import LEASE, RUN, TURN, Machine, allowed, call, calling, completed, started


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
