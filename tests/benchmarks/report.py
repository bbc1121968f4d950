"""The table: both programs side by side, how many times better Lodger is, and a mark on every row where it is worse."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from benchmarks.figures import FIGURES, Better, Figure
from benchmarks.samples import Samples, Summary

GOAL: Final = 5.0
"""Lodger's goal on every row: five times better than the peer."""
HEAD: Final = ("figure", "unit", "peer median (min to max)", "Lodger median (min to max)", "times better", "")


class Verdict(StrEnum):
    WORSE = "WORSE"
    BETTER = "better"
    GOAL = "5x"
    EQUAL = "equal"
    UNKNOWN = "not measured"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of both programs. `times` is None where there is nothing to divide."""

    figure: Figure
    peer: Summary | None
    lodger: Summary | None
    times: float | None
    verdict: Verdict


def compare(figure: Figure, peer: Summary | None, lodger: Summary | None) -> Row:
    """Judge one row by the medians."""
    if peer is None or lodger is None:
        return Row(figure, peer, lodger, None, Verdict.UNKNOWN)
    if abs(peer.median - lodger.median) <= figure.floor:
        return Row(figure, peer, lodger, None, Verdict.EQUAL)
    better, worse = (peer.median, lodger.median) if figure.better is Better.HIGHER else (lodger.median, peer.median)
    times = worse / better if better > 0 else float("inf")
    if times < 1:
        verdict = Verdict.WORSE
    elif times >= GOAL:
        verdict = Verdict.GOAL
    else:
        verdict = Verdict.BETTER
    return Row(figure, peer, lodger, times, verdict)


def rows_of(peer: Samples, lodger: Samples) -> list[Row]:
    """Every row that at least one program has a sample for."""
    rows = [compare(figure, peer.summary(figure.key), lodger.summary(figure.key)) for figure in FIGURES]
    return [row for row in rows if row.peer is not None or row.lodger is not None]


def table(rows: list[Row], head: tuple[str, ...] = HEAD) -> str:
    """The rows as a Markdown table that also reads well as plain text."""
    return laid_out([head, *(_cells(row) for row in rows)])


def laid_out(cells: list[tuple[str, ...]]) -> str:
    """Lines of cells, the first of them the head, as such a table."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def verdict_line(rows: list[Row]) -> str:
    """The last line: how many rows are worse, and how many reach the goal."""
    count = {verdict: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    compared = len(rows) - count[Verdict.UNKNOWN]
    line = f"{compared} rows compared: Lodger is worse in {count[Verdict.WORSE]}, at least {GOAL:.0f} times better in "
    line += f"{count[Verdict.GOAL]}, better in {count[Verdict.BETTER]}, equal in {count[Verdict.EQUAL]}."
    return line + (f" {count[Verdict.UNKNOWN]} rows have only one side." if count[Verdict.UNKNOWN] else "")


def _cells(row: Row) -> tuple[str, ...]:
    times = "" if row.times is None else f"{row.times:.1f}"
    mark = "" if row.verdict is Verdict.BETTER else str(row.verdict)
    return (row.figure.words, row.figure.unit, spread(row.peer), spread(row.lodger), times, mark)


def spread(summary: Summary | None) -> str:
    """Median, smallest and largest; a dash where nothing was measured."""
    if summary is None:
        return "-"
    digits = 0 if summary.largest >= 100 else 1 if summary.largest >= 10 else 2
    return f"{summary.median:,.{digits}f} ({summary.smallest:,.{digits}f} to {summary.largest:,.{digits}f})"
