"""The table of what the egress broker costs: measured once in small, and worked out from given samples."""

import pytest

from benchmarks.egress_cost import ROWS, STRAIGHT, THROUGH, EgressCost, table


def cells(cost: EgressCost) -> list[list[str]]:
    """Of the rows below the head."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table(cost).splitlines()[2:]]


@pytest.mark.timeout(120)
async def test_a_round_fills_every_row() -> None:
    cost = EgressCost(requests=5, body_mib=1)
    await cost.round()
    rows = cells(cost)
    assert len(rows) == len(ROWS) * len(THROUGH)
    for words, _, straight, through, ratio, _ in rows:
        assert "-" not in (straight, through), words
        assert float(ratio) > 0, words


def test_a_delay_is_told_as_a_ratio_and_what_is_added_and_a_rate_as_what_is_left() -> None:
    cost = EgressCost()
    for way, samples in cost.ways.items():
        factor = 1.0 if way == STRAIGHT else 4.0
        samples.next_round()
        samples.add("small.p50", 0.5 * factor)
        samples.add("small.p99", 1.0 * factor)
        samples.add("body", 400.0 / factor)
    small, slowest, body, *_ = cells(cost)
    assert small == [
        "plain http: small request",
        "ms",
        "0.50 (0.50 to 0.50)",
        "2.00 (2.00 to 2.00)",
        "4.00",
        "+1.50 ms",
    ]
    assert slowest[4:] == ["4.00", "+3.00 ms"]
    assert body[1:] == ["MiB/s", "400 (400 to 400)", "100 (100 to 100)", "0.25", ""]


def test_what_was_not_measured_has_a_dash() -> None:
    assert {tuple(row[2:]) for row in cells(EgressCost())} == {("-", "-", "", "")}
