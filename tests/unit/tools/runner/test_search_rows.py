"""The rows of a search in one file: what grep prints, at a cost of the file's lines."""

import itertools
import time

from lodger_tools.runner.search_files import content_rows

LINES = [f"line {number}" for number in range(7)]


def as_grep(hits: tuple[int, ...], before: int, after: int) -> list[str]:
    """By the definition: every line near a hit, groups apart."""
    near = [n for n in range(len(LINES)) if any(hit - before <= n <= hit + after for hit in hits)]
    rows: list[str] = []
    for place, number in enumerate(near):
        if place and number != near[place - 1] + 1 and (before or after):
            rows.append("--")
        mark = ":" if number in hits else "-"
        rows.append(f"{number + 1}{mark}{LINES[number]}")
    return rows


def test_rows_are_those_of_grep_for_every_choice_of_hits() -> None:
    for count in range(len(LINES) + 1):
        for hits in itertools.combinations(range(len(LINES)), count):
            for before, after in itertools.product(range(3), repeat=2):
                args = {"before": before, "after": after, "line_numbers": True}
                assert content_rows("", LINES, list(hits), args) == as_grep(hits, before, after), (hits, before, after)


def test_a_hit_on_every_line_with_much_around_each_costs_no_more_than_the_lines() -> None:
    """The runner does this itself, and every other call of its box waits meanwhile."""
    lines = ["x"] * 100_000
    args = {"before": 1000, "after": 1000, "line_numbers": True}
    began_at = time.process_time()
    assert len(content_rows("", lines, list(range(len(lines))), args)) == len(lines)
    assert time.process_time() - began_at < 2.0
