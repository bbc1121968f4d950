"""What is remembered of each model's latest steps."""

from lodger_daemon.models.contract import FailureKind, ModelFailure
from lodger_daemon.models.outcomes import KEPT, SHOWN_CHARACTERS, ModelOutcome, Outcomes
from support.store_rows import HandClock


def test_the_latest_success_and_the_latest_failure_stand_beside_each_other() -> None:
    clock = HandClock()
    outcomes = Outcomes(clock)
    outcomes.succeeded("a/one")
    first = clock.wall()
    clock.pass_time(5)
    outcomes.failed("b/two", ModelFailure(FailureKind.QUOTA, "x" * 1000))
    outcomes.failed("a/one", ModelFailure(FailureKind.TIMEOUT, "too slow"))
    now = clock.wall()
    assert outcomes.all() == (
        ModelOutcome("a/one", first, now, FailureKind.TIMEOUT, "too slow"),
        ModelOutcome("b/two", None, now, FailureKind.QUOTA, "x" * SHOWN_CHARACTERS),
    )


def test_handles_that_somebody_makes_up_take_no_room() -> None:
    outcomes = Outcomes(HandClock())
    for number in range(KEPT + 5):
        outcomes.succeeded(f"made/{number}")
    assert [one.handle for one in outcomes.all()] == [f"made/{number}" for number in range(KEPT + 4, 4, -1)]
