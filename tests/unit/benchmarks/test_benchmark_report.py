"""How rows are judged, and what the last line says of them."""

import pytest

from benchmarks.figures import Better, Figure
from benchmarks.report import Verdict, compare, rows_of, table, verdict_line
from benchmarks.samples import Samples, Summary

LATENCY = Figure("x", "ms", "some wait")
RATE = Figure("y", "chunks/s", "some rate", Better.HIGHER)
IDLE = Figure("z", "%", "some idling", floor=0.05)


def of(median: float) -> Summary:
    return Summary(median, median, median, 1)


@pytest.mark.parametrize(
    ("figure", "peer", "lodger", "times", "verdict"),
    [
        (LATENCY, 50.0, 10.0, 5.0, Verdict.GOAL),
        (LATENCY, 40.0, 10.0, 4.0, Verdict.BETTER),
        (LATENCY, 10.0, 20.0, 0.5, Verdict.WORSE),
        (LATENCY, 10.0, 10.0, None, Verdict.EQUAL),
        (RATE, 100.0, 800.0, 8.0, Verdict.GOAL),
        (RATE, 100.0, 50.0, 0.5, Verdict.WORSE),
        (IDLE, 0.0, 0.04, None, Verdict.EQUAL),
        (IDLE, 0.0, 0.5, 0.0, Verdict.WORSE),
        (IDLE, 0.5, 0.0, float("inf"), Verdict.GOAL),
    ],
)
def test_a_row_is_judged_by_its_medians(
    figure: Figure, peer: float, lodger: float, times: float | None, verdict: Verdict
) -> None:
    row = compare(figure, of(peer), of(lodger))
    assert (row.times, row.verdict) == (times, verdict)


def test_a_row_with_one_side_is_not_compared() -> None:
    assert compare(LATENCY, of(1.0), None).verdict is Verdict.UNKNOWN


def test_a_summary_is_the_median_of_round_medians_with_their_spread() -> None:
    samples = Samples()
    for values in ([1.0, 2.0, 30.0], [5.0], [4.0, 4.0]):
        samples.next_round()
        samples.add("stop", *values)
    assert samples.summary("stop") == Summary(median=4.0, smallest=2.0, largest=5.0, count=6)
    assert samples.summary("never") is None


def test_the_table_marks_worse_rows_and_the_last_line_counts_them() -> None:
    peer, lodger = Samples(), Samples()
    for samples, stop, shell in ((peer, 10.0, 100.0), (lodger, 20.0, 10.0)):
        samples.next_round()
        samples.add("stop", stop)
        samples.add("shell.step", shell)
    peer.add("idle", 0.0)
    rows = rows_of(peer, lodger)
    marked = [line for line in table(rows).splitlines() if "WORSE" in line]
    assert [line.split("|")[1].strip() for line in marked] == ["SIGTERM to exit"]
    assert verdict_line(rows) == (
        "2 rows compared: Lodger is worse in 1, at least 5 times better in 1, better in 0, equal in 0."
        " 1 rows have only one side."
    )
