"""When a conversation must be compacted, and what is replaced by a summary.

The budget covers the whole request: system prompt, tool schemas, messages and room for the answer.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lodger_daemon.backends.core.request_view import user_parts
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, calls_of, text_of
from lodger_daemon.models.contract import ToolSchema
from lodger_tools.json_value import JsonObject

CHARACTERS_PER_TOKEN: Final = 4
IMAGE_TOKENS: Final = 1200
OUTPUT_RESERVE_CAP: Final = 16_384
OUTPUT_RESERVE_SHARE: Final = 0.2
FIRST_CUT_SHARE: Final = 0.4
CUT_STEP: Final = 0.1
TARGET_SHARE: Final = 0.7
"""A compaction that leaves more than this of the budget would be due again too soon."""
SUMMARY_TOKENS: Final = 1_000
"""What a summary of 500 words is counted as before it exists."""
SMALLEST_HISTORY: Final = 4
RESULT_EXCERPT_CHARACTERS: Final = 2_000
SUMMARY_LIMIT_CHARACTERS: Final = 50_000

SUMMARY_REQUEST: Final = """\
Write a summary of the conversation above for the agent itself, which will go on with only this summary and the \
newest messages. In at most 500 words: what the person asked for, in their own words where they matter; what was done, \
with names of files and commands; what was found out; decisions and why; what is left to do. No preamble."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens for messages: the window less system prompt, tool schemas and the answer."""

    messages: int

    @property
    def target(self) -> int:
        return int(self.messages * TARGET_SHARE)


def budget_of(context_window: int, system_prompt: str, tools: Sequence[ToolSchema], max_output: int | None) -> Budget:
    reserve = min(OUTPUT_RESERVE_CAP, int(context_window * OUTPUT_RESERVE_SHARE))
    if max_output is not None:
        reserve = min(reserve, max_output)
    schemas = sum(len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters)) for tool in tools)
    fixed = (len(system_prompt) + schemas) // CHARACTERS_PER_TOKEN
    return Budget(context_window - reserve - fixed)


def estimate(message: TranscriptMessage) -> int:
    """Tokens of one message, roughly."""
    if message.kind in (MessageKind.USER, MessageKind.SUMMARY):
        return sum(_part_tokens(part) for part in user_parts(message)) + 4
    characters = len(text_of(message.content, "text")) + len(text_of(message.content, "reasoning"))
    characters += sum(len(call.name) + len(call.arguments_json) for call in calls_of(message))
    return characters // CHARACTERS_PER_TOKEN + 4


@dataclass(frozen=True, slots=True)
class Plan:
    """What a summary takes the place of. `kept` follows the summary; it holds the newest user message."""

    hidden: tuple[TranscriptMessage, ...]
    kept: tuple[TranscriptMessage, ...]


def plan(transcript: Sequence[TranscriptMessage], budget: Budget) -> Plan | None:
    """None when nothing can be hidden.

    Sliding first, in growing steps; then everything before the newest user message; then, in a turn that is too long by
    itself, also its older steps. The newest user message and the newest step always stay.
    """
    messages = tuple(transcript)
    newest_user = _newest_user(messages)
    cut = _sliding_cut(messages, newest_user, budget)
    if cut is not None:
        return Plan(messages[:cut], messages[cut:])
    steps = [i for i in range(newest_user + 1, len(messages)) if messages[i].kind is MessageKind.ASSISTANT]
    room = budget.target - SUMMARY_TOKENS - _tokens(messages[newest_user : newest_user + 1])
    if _tokens(messages[newest_user + 1 :]) <= room or len(steps) < 2:
        return Plan(messages[:newest_user], messages[newest_user:]) if newest_user > 0 else None
    start = next((i for i in steps if _tokens(messages[i:]) <= room), steps[-1])
    hidden = messages[:newest_user] + messages[newest_user + 1 : start]
    return Plan(hidden, (messages[newest_user], *messages[start:])) if hidden else None


def _sliding_cut(messages: tuple[TranscriptMessage, ...], newest_user: int, budget: Budget) -> int | None:
    if len(messages) < SMALLEST_HISTORY:
        return None
    cuts = [index for index in range(1, newest_user + 1) if index < len(messages) and _may_begin_at(messages[index])]
    share = FIRST_CUT_SHARE
    while share < 1.0:
        wanted = int(len(messages) * share)
        cut = next((index for index in cuts if index >= wanted), None)
        if cut is not None and _tokens(messages[cut:]) + SUMMARY_TOKENS <= budget.target:
            return cut
        share += CUT_STEP
    return None


def _tokens(messages: Sequence[TranscriptMessage]) -> int:
    return sum(estimate(message) for message in messages)


def summary_text(summary: str, hidden: int) -> str:
    """As the model sees it, in the user's role."""
    body = summary.strip()[:SUMMARY_LIMIT_CHARACTERS]
    return (
        f'<reminder about="compaction">\n{hidden} earlier messages of this conversation were replaced by this summary '
        f"to save room.\n\n{body}\n</reminder>"
    )


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


def _part_tokens(part: JsonObject) -> int:
    if part.get("type") == "image":
        return IMAGE_TOKENS
    return len(text_of(part, "text")) // CHARACTERS_PER_TOKEN


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
