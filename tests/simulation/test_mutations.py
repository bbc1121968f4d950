"""Each fault that is put into the product on purpose is caught (the table is in README.md)."""

from pathlib import Path

import pytest

from simulation.mutations import ELSEWHERE, MUTATIONS, Mutation, caught_by
from simulation.run import be_quiet
from simulation.run_seed import play_seed

SEARCHED = range(1, 301)

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
"""Of processes that were killed in the middle."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_is_caught(mutation: Mutation) -> None:
    be_quiet()
    with mutation.applied():
        fault = play_seed(mutation.seed).fault
    # The product moves on and a seed plays out otherwise then; the rest of the fixed ones must still catch it.
    assert fault or caught_by(mutation, SEARCHED), f"{mutation.name} is caught by no fixed seed"


def test_what_no_seed_catches_is_caught_by_a_test_that_is_there() -> None:
    root = Path(__file__).resolve().parents[2]
    assert [test for _, test in ELSEWHERE if not (root / test).is_file()] == []
