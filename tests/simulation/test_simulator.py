"""The simulator over a fixed set of seeds, then over fresh ones until the time is up."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulation.run import Summary, be_quiet, course, play_all
from simulation.run_seed import play_seed

TESTS = Path(__file__).resolve().parent.parent
FIXED = range(1, 301)
BEGAN_S = time.monotonic()
UNTIL_S = BEGAN_S + float(os.environ.get("LODGER_SIM_SECONDS", "150"))
"""Until then fresh seeds are played in `make test`, which gives this suite four minutes on a busy machine."""

FRESH_AT_LEAST = 10

SOAK_SEEDS = 20_000

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
"""Of processes that were killed in the middle."""


@pytest.fixture(autouse=True)
def quiet() -> None:
    be_quiet()


@pytest.mark.timeout(600)
def test_every_fixed_seed_keeps_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    report(Summary(), FIXED, 1, capsys)


@pytest.mark.timeout(600)
def test_fresh_seeds_keep_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    first = random.SystemRandom().randrange(10**6, 10**9)
    began_s, summary = time.monotonic(), Summary()
    while not summary.faults and (summary.played < FRESH_AT_LEAST or time.monotonic() < UNTIL_S):
        summary.add(play_seed(first + summary.played))
    tell(summary, time.monotonic() - began_s, capsys)


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
def test_soak_of_fresh_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    first = random.SystemRandom().randrange(10**6, 10**9)
    report(Summary(), range(first, first + SOAK_SEEDS), os.cpu_count() or 1, capsys)


def test_a_seed_plays_the_same_in_every_process() -> None:
    code = "from simulation.run_seed import play_seed; print([play_seed(s).digest for s in range(40, 46)])"

    def digests(hash_seed: str) -> str:
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}",
        }
        argv = [sys.executable, "-W", "ignore", "-c", code]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout

    assert digests("1") == digests("2")


def report(summary: Summary, seeds: range, workers: int, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    for verdict in play_all(seeds, workers):
        summary.add(verdict)
        if summary.faults:
            break
    tell(summary, time.monotonic() - began, capsys)


def tell(summary: Summary, seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nsimulator: {summary.text(seconds)}")
    if summary.faults:
        pytest.fail(course(summary.faults[0]), pytrace=False)
