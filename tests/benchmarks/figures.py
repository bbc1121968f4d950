"""The rows of the table: what is measured, in which unit, and which way is better."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Better(StrEnum):
    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row. `floor` is the smallest difference that means anything: at or below it two values count as equal."""

    key: str
    unit: str
    words: str
    better: Better = Better.LOWER
    floor: float = 0.0


IDLE_FLOOR_PERCENT: Final = 0.05
"""A twentieth of a percent of one core is below what a busy machine tells apart."""

FIGURES: Final = (
    Figure("start.listening", "ms", "process start to port accepting"),
    Figure("start.usable", "ms", "process start to first agent and conversation usable"),
    Figure("stop", "ms", "SIGTERM to exit"),
    Figure("rss.listening", "MiB", "RSS of the process tree, listening"),
    Figure("rss.client", "MiB", "RSS, one idle client"),
    Figure("rss.1", "MiB", "RSS with 1 conversation"),
    Figure("rss.10", "MiB", "RSS with 10 conversations"),
    Figure("rss.50", "MiB", "RSS with 50 conversations"),
    Figure("rss.tools", "MiB", "RSS after 20 conversations at once with tools"),
    Figure("rss.boxed.10", "MiB", "RSS with 10 conversations of one workspace, each after a command"),
    Figure("rss.boxed.50", "MiB", "RSS with 50 conversations of one workspace, each after a command"),
    Figure("pss.listening", "MiB", "PSS, listening (shared pages by share)"),
    Figure("pss.50", "MiB", "PSS with 50 conversations"),
    Figure("pss.boxed.50", "MiB", "PSS with 50 conversations of one workspace, each after a command"),
    Figure("idle", "% of a core", "idle CPU, no client", floor=IDLE_FLOOR_PERCENT),
    Figure("idle.50", "% of a core", "idle CPU, 50 conversations", floor=IDLE_FLOOR_PERCENT),
    Figure("create.agent", "ms", "runtime_start that creates the agent"),
    Figure("create.conversation", "ms", "runtime_start that creates a conversation"),
    Figure("process_first.to_model", "ms", "input to model request, first turn of the process"),
    Figure("process_first.wall", "ms", "whole 20-chunk turn, first of the process"),
    Figure("first.to_model", "ms", "input to model request, first turn of a conversation"),
    Figure("later.to_model", "ms", "input to model request, later turns"),
    Figure("back_to_back.to_model", "ms", "input to model request, sent right after turn_finished"),
    Figure("history.to_model", "ms", "input to model request after 150 turns"),
    Figure("later.to_accepted", "ms", "input to input_accepted"),
    Figure("later.to_delta", "ms", "first model chunk to its delta at the client"),
    Figure("later.to_finish", "ms", "last model byte to turn_finished (20 chunks)"),
    Figure("history.to_finish", "ms", "last model byte to turn_finished after 150 turns"),
    Figure("later.wall", "ms", "whole 20-chunk turn"),
    Figure("shell.cold", "ms", "Bash step, first of the process: Lodger starts the box for it"),
    Figure("shell.step", "ms", "Bash step, echo: model end to next model request"),
    Figure("asked.step", "ms", "Bash step, asked and allowed over the socket"),
    Figure("read.step", "ms", "Read step, 40-line file"),
    Figure("reads.step", "ms", "step of 4 parallel Reads"),
    Figure("write.step", "ms", "Write step"),
    Figure("history.step", "ms", "Read step after 150 turns"),
    Figure("paced.p50", "ms", "chunk to delta at 100 chunks/s, median"),
    Figure("paced.p99", "ms", "chunk to delta at 100 chunks/s, 99th percentile"),
    Figure("paced.cpu", "s", "CPU for 300 paced chunks"),
    Figure("burst.rate", "chunks/s", "2,000-chunk burst: chunks delivered", Better.HIGHER),
    Figure("burst.wall", "ms", "2,000-chunk burst: whole turn"),
    Figure("burst.cpu", "s", "2,000-chunk burst: CPU"),
    Figure("burst.bytes", "KiB", "2,000-chunk burst: bytes to the client"),
    Figure("together.wall", "ms", "20 conversations at once, 5 tool steps each: wall"),
    Figure("together.cpu", "s", "20 conversations at once, 5 tool steps each: CPU"),
)
