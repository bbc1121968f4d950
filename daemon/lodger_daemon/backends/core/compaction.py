"""What of a conversation is replaced by a summary, and what the model is told in its place.

A call is never parted from its result, the newest user message always stays, and nothing is destroyed: the transcript
keeps every message, only the list of those the model sees is replaced.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from lodger_daemon.backends.core.budget import Budget, estimate, estimate_all
from lodger_daemon.backends.core.elision import Elision, elide
from lodger_daemon.backends.core.request_view import user_parts
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, calls_of, text_of

FIRST_CUT_SHARE: Final = 0.4
CUT_STEP: Final = 0.1
SMALLEST_HISTORY: Final = 4
RESULT_EXCERPT_CHARACTERS: Final = 2_000
SUMMARY_LIMIT_CHARACTERS: Final = 50_000
WORDS_PER_TOKEN: Final = 0.5
"""A summary of 500 words is counted as 1,000 tokens."""
INSTRUCTIONS_LIMIT_CHARACTERS: Final = 8_000

_REQUEST: Final = """\
Write a summary of the conversation above for the agent itself, which will go on with only this summary and the \
newest messages. In at most {words} words: what the person asked for, in their own words where they matter; what was \
done, with names of files and commands; what was found out; decisions and why; what is left to do. No preamble."""


_WORDS_TO_SEARCH: Final = (
    " End with one line that begins with `Look up:` and names a few words by which passages whose exact words may "
    "matter can be found."
)


class Mode(StrEnum):
    """How much is hidden. The wire's names."""

    SLIDING_WINDOW = "sliding_window"
    """The older part, as little as reaches the target; if that is not enough, all before the newest user message."""
    ALL = "all"
    """Everything but the newest user message and the newest step."""


@dataclass(frozen=True, slots=True)
class Options:
    """What whoever asks for a compaction may say about it."""

    mode: Mode = Mode.SLIDING_WINDOW
    hidden_share: float = FIRST_CUT_SHARE
    """Of the messages: the first try of a sliding window."""
    instructions: str = ""
    """What the summary should look at above all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a summary takes the place of, and what follows it."""

    hidden: tuple[TranscriptMessage, ...]
    kept: tuple[TranscriptMessage, ...]
    """As the model will be shown them."""
    elision: Elision = field(default_factory=Elision)


def plan(
    transcript: Sequence[TranscriptMessage],
    budget: Budget,
    waiting: int | None = None,
    options: Options | None = None,
    so_far: Elision | None = None,
) -> Plan | None:
    """None when nothing can be hidden or left out.

    Sliding first, in growing steps; then everything before the newest user message; then, in a turn that is too long by
    itself, also its older steps; then what is kept loses old images and the middle of long results.
    Args:
        transcript: as the model is shown it.
        waiting: tokens of a user message that will follow; None without one. Then the older ones may all be hidden.
        so_far: what an earlier compaction left out of these messages.
    """
    options, so_far = options or Options(), so_far or Elision()
    messages = tuple(transcript)
    room = budget.target - budget.summary - (waiting or 0)
    hidden, kept = _divide(messages, room, waiting is not None, options)
    if _is_summary_alone(hidden, budget):
        hidden, kept = (), messages
    before = so_far.within(kept)
    shown, elision = elide(kept, room, before)
    return Plan(hidden, shown, elision) if hidden or elision != before else None


def _is_summary_alone(hidden: tuple[TranscriptMessage, ...], budget: Budget) -> bool:
    """A summary of a summary is no shorter, unless a larger window allowed a much longer one."""
    only = all(message.kind is MessageKind.SUMMARY for message in hidden)
    return only and estimate_all(hidden) <= 2 * budget.summary


def _divide(
    messages: tuple[TranscriptMessage, ...], room: int, may_hide_all: bool, options: Options
) -> tuple[tuple[TranscriptMessage, ...], tuple[TranscriptMessage, ...]]:
    newest_user = len(messages) if may_hide_all else _newest_user(messages)
    tokens_from = _suffix_sums(messages)
    if options.mode is Mode.SLIDING_WINDOW:
        cut = _sliding_cut(messages, tokens_from, newest_user, room, options.hidden_share)
        if cut is not None:
            return messages[:cut], messages[cut:]
    else:
        room = 0
    question = messages[newest_user : newest_user + 1]
    room -= estimate_all(question)
    steps = [i for i in range(newest_user + 1, len(messages)) if messages[i].kind is MessageKind.ASSISTANT]
    if len(steps) < 2 or tokens_from[newest_user + 1] <= room:
        return messages[:newest_user], messages[newest_user:]
    start = next((i for i in steps if tokens_from[i] <= room), steps[-1])
    return messages[:newest_user] + messages[newest_user + 1 : start], (*question, *messages[start:])


def _suffix_sums(messages: tuple[TranscriptMessage, ...]) -> list[int]:
    """Tokens from each message to the end; the last entry is 0."""
    sums = [0]
    for message in reversed(messages):
        sums.append(sums[-1] + estimate(message))
    return sums[::-1]


def _sliding_cut(
    messages: tuple[TranscriptMessage, ...],
    tokens_from: Sequence[int],
    newest_user: int,
    room: int,
    first_share: float,
) -> int | None:
    if len(messages) < SMALLEST_HISTORY:
        return None
    cuts = [index for index in range(1, min(newest_user + 1, len(messages))) if _may_begin_at(messages[index])]
    share = first_share
    while share < 1.0:
        wanted = int(len(messages) * share)
        cut = next((index for index in cuts if index >= wanted), None)
        if cut is not None and tokens_from[cut] <= room:
            return cut
        share += CUT_STEP
    return None


def summary_request(budget: Budget, instructions: str, can_search: bool = False) -> str:
    """What is asked of the summariser, after the conversation.

    Args:
        can_search: whether the agent has a tool to look up what is hidden.
    """
    asked = _REQUEST.format(words=max(50, int(budget.summary * WORDS_PER_TOKEN)))
    asked += _WORDS_TO_SEARCH if can_search else ""
    wish = instructions.strip()[:INSTRUCTIONS_LIMIT_CHARACTERS]
    return f"{asked}\n\nThe person says about this summary: {wish}" if wish else asked


def summary_text(summary: str, hidden: Sequence[TranscriptMessage], search_tool: str | None = None) -> str:
    """As the model sees it, in the user's role: the summary, and where the rest can be looked up."""
    if not hidden:
        return _reminder("Long results and old images of this conversation were cut down to save room.")
    body = summary.strip()[:SUMMARY_LIMIT_CHARACTERS]
    head = f"{len(hidden)} earlier messages of this conversation were replaced by this summary to save room."
    return _reminder(f"{head}\n\n{body}\n\n{_lookup(hidden, search_tool)}")


def _lookup(hidden: Sequence[TranscriptMessage], search_tool: str | None) -> str:
    first, last = hidden[0], hidden[-1]
    kept = f"They are kept: {first.message_id} ({_day(first)}) to {last.message_id} ({_day(last)})."
    if search_tool is None:
        return kept
    return f"{kept} When you need exact words of them, look them up with {search_tool}; do not guess."


def _reminder(text: str) -> str:
    return f'<reminder about="compaction">\n{text}\n</reminder>'


def _day(message: TranscriptMessage) -> str:
    return datetime.fromtimestamp(message.created_at, UTC).date().isoformat()


def render_for_summary(transcript: Sequence[TranscriptMessage], limit_characters: int) -> str:
    """The messages as plain text for the summariser, cut in the middle when they are too long for it."""
    text = "\n\n".join(_render(message) for message in transcript)
    if len(text) <= limit_characters:
        return text
    half = limit_characters // 2
    return f"{text[:half]}\n\n[{len(text) - 2 * half} characters left out]\n\n{text[-half:]}"


def _newest_user(transcript: Sequence[TranscriptMessage]) -> int:
    return next(
        (index for index in range(len(transcript) - 1, -1, -1) if transcript[index].kind is MessageKind.USER),
        len(transcript),
    )


def _may_begin_at(message: TranscriptMessage) -> bool:
    """A result may not be parted from its call."""
    return message.kind in (MessageKind.USER, MessageKind.ASSISTANT)


def _render(message: TranscriptMessage) -> str:
    match message.kind:
        case MessageKind.USER | MessageKind.SUMMARY:
            texts = (text_of(part, "text") or "[image]" for part in user_parts(message))
            return f"{message.kind.value}: " + "\n".join(texts)
        case MessageKind.ASSISTANT:
            calls = "".join(f"\n[calls {call.name} {call.arguments_json}]" for call in calls_of(message))
            return f"assistant: {text_of(message.content, 'text')}{calls}"
        case MessageKind.TOOL:
            return f"result: {text_of(message.content, 'text')[:RESULT_EXCERPT_CHARACTERS]}"
