"""How much of a model's window a request may take up, in tokens as they are estimated here.

The whole request counts: system prompt, tool schemas, messages and room for the answer. What providers report
afterwards corrects the estimate, and only ever towards more tokens: the larger of estimate and report is believed.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lodger_daemon.backends.core.request_view import user_parts
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, calls_of, text_of
from lodger_daemon.models.contract import ToolSchema
from lodger_tools.json_value import JsonObject

BYTES_PER_TOKEN: Final = 4
"""Of UTF-8: English comes to about four letters a token, Cyrillic to two, a Chinese sign to somewhat less than one."""
MESSAGE_TOKENS: Final = 4
"""What a message costs beside its text."""
IMAGE_TOKENS: Final = 1200
OUTPUT_RESERVE_CAP: Final = 16_384
OUTPUT_RESERVE_SHARE: Final = 0.2
SMALLEST_ANSWER: Final = 512
"""With less room than this for its answer no request is sent: it would be cut off in mid-sentence, over and over."""
PREPARE_AHEAD: Final = 0.98
"""Compact before a request that fills this much of its budget: the estimate is rough."""
TARGET_SHARE: Final = 0.7
"""A compaction that leaves more than this of the budget would be due again too soon."""
SUMMARY_TOKENS: Final = 1_000
"""What a summary of 500 words is counted as before it exists."""
SMALLEST_SUMMARY: Final = 120
SUMMARY_SHARE: Final = 0.25
"""Of what there is for messages; less than that in small windows, or the summary itself would be too long."""
SCALE_CAP: Final = 4.0
"""A report beyond this many times the estimate is taken for an error of the provider's."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a provider's own figures say about the estimates in one conversation with one model."""

    scale: float = 1.0
    """Real tokens for each estimated one, never below 1."""
    refused_at: int | None = None
    """The estimate of a request that was refused as too long."""

    def reported(self, estimated: int, prompt_tokens: int) -> "Calibration":
        """After an answer. A provider that reports nothing, or nonsense, changes nothing."""
        if prompt_tokens <= 0 or estimated <= 0 or prompt_tokens > estimated * SCALE_CAP:
            return self
        disproved = self.refused_at is not None and estimated >= self.refused_at
        return Calibration(max(1.0, prompt_tokens / estimated), None if disproved else self.refused_at)

    def refused(self, estimated: int) -> "Calibration":
        """After a refusal for length: nothing as long as this is tried again."""
        known = self.refused_at
        return replace(self, refused_at=estimated if known is None else min(known, estimated))

    def window(self, tokens: int) -> int:
        """A window of so many real tokens, in estimated ones."""
        estimated = int(tokens / self.scale)
        return estimated if self.refused_at is None else min(estimated, self.refused_at)


@dataclass(frozen=True, slots=True)
class Budget:
    """Where the tokens of a window go."""

    window: int
    floor: int
    """System prompt and tool schemas: in every request, whatever is compacted."""
    reserve: int
    """Kept for the answer."""

    @property
    def messages(self) -> int:
        return self.window - self.floor - self.reserve

    @property
    def target(self) -> int:
        """What a compaction should leave at most, its summary included."""
        return int(self.messages * TARGET_SHARE)

    @property
    def summary(self) -> int:
        return max(SMALLEST_SUMMARY, min(SUMMARY_TOKENS, int(self.messages * SUMMARY_SHARE)))

    def is_tight(self, messages: int) -> bool:
        """Whether messages of so many tokens should be compacted first."""
        return messages > self.messages * PREPARE_AHEAD

    def can_be_sent(self, messages: int) -> bool:
        """Whether an answer would have any room beside messages of so many tokens."""
        return self.floor + messages + min(SMALLEST_ANSWER, self.reserve) <= self.window


def budget_of(window: int, floor: int, max_output: int | None) -> Budget:
    reserve = max(min(OUTPUT_RESERVE_CAP, int(window * OUTPUT_RESERVE_SHARE)), SMALLEST_ANSWER)
    if max_output is not None:
        reserve = min(reserve, max_output)
    return Budget(window, floor, reserve)


def floor_of(system_prompt: str, tools: Sequence[ToolSchema]) -> int:
    schemas = sum(size_of(tool.name) + size_of(tool.description) + len(json.dumps(tool.parameters)) for tool in tools)
    return (size_of(system_prompt) + schemas) // BYTES_PER_TOKEN


def estimate(message: TranscriptMessage) -> int:
    """Tokens of one message, roughly. Reasoning is not among them: it is given back within its turn only."""
    if message.kind in (MessageKind.USER, MessageKind.SUMMARY):
        return sum(_part_tokens(part) for part in user_parts(message)) + MESSAGE_TOKENS
    size = size_of(text_of(message.content, "text"))
    size += sum(size_of(call.name) + size_of(call.arguments_json) for call in calls_of(message))
    return size // BYTES_PER_TOKEN + MESSAGE_TOKENS


def reasoning_tokens(message: TranscriptMessage) -> int:
    """What a step's reasoning costs until its turn ends."""
    return size_of(text_of(message.content, "reasoning")) // BYTES_PER_TOKEN


def estimate_all(messages: Iterable[TranscriptMessage]) -> int:
    return sum(estimate(message) for message in messages)


def size_of(text: str) -> int:
    """Bytes of UTF-8; a lone surrogate, which a model may produce, counts as the sign it is replaced by."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _part_tokens(part: JsonObject) -> int:
    if part.get("type") == "image":
        return IMAGE_TOKENS
    return size_of(text_of(part, "text")) // BYTES_PER_TOKEN
