"""The model call of a compaction: with less to read when the model finds it too long, again when it stumbles."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from lodger_daemon.backends.core.budget import BYTES_PER_TOKEN, Budget
from lodger_daemon.backends.core.compaction import render_for_summary, summary_request
from lodger_daemon.backends.core.transcript import TranscriptMessage
from lodger_daemon.clock import Clock
from lodger_daemon.models.contract import (
    FailureKind,
    ModelFailure,
    ModelGateway,
    ModelRequest,
    StepEnded,
    SystemMessage,
    TextChunk,
    Usage,
    UserMessage,
)
from lodger_daemon.randomness import Rng
from lodger_daemon.turns.core.retry_policy import retry_transient

Spent: TypeAlias = Callable[[ModelRequest, Usage, int], None]
"""A request that was made, the tokens the provider told, and the characters that came."""

SUMMARISER: Final = "You summarise conversations between a person and an agent, truly and briefly."
INPUT_LIMITS_CHARACTERS: Final = (120_000, 60_000, 25_000, 10_000, 4_000, 2_000)
"""Each used when the model found the one before too long."""
SMALLEST_INPUT_CHARACTERS: Final = 1_000
OUTPUT_PER_SUMMARY: Final = 2
"""Tokens a summary may take for each one it is counted as: a count of words is only a wish to a model."""
SUMMARY_LIMIT_S: Final = 600.0
"""For the whole answer; what stands between two pieces of it is the model worker's to limit. A slow model on this
machine's own processor needs minutes for 2,000 tokens."""


@dataclass(frozen=True, slots=True)
class Summariser:
    """Asks one model. Waits between tries on the clock it is given, so that an abort ends them at once."""

    models: ModelGateway
    clock: Clock
    rng: Rng
    can_search: bool = False
    """Whether the agent has a tool to look up what is hidden."""
    spent: Spent = lambda request, usage, characters: None
    """Told of every request to the model, however it ended."""

    async def summarise(
        self, handle: str, hidden: Sequence[TranscriptMessage], budget: Budget, instructions: str, cache_key: str
    ) -> str:
        """Raises: ModelFailure."""
        failure = ModelFailure(FailureKind.CONTEXT_OVERFLOW, "no summary could be made")
        for limit in input_limits(budget):
            asked = summary_request(budget, instructions, self.can_search)
            text = f"<conversation>\n{render_for_summary(hidden, limit)}\n</conversation>\n\n{asked}"
            request = ModelRequest(
                handle=handle,
                messages=(SystemMessage(SUMMARISER), UserMessage(({"type": "text", "text": text},))),
                tools=(),
                max_output_tokens=budget.summary * OUTPUT_PER_SUMMARY,
                cache_key=cache_key,
            )
            try:
                return await self._stubbornly(request)
            except ModelFailure as error:
                if error.kind is not FailureKind.CONTEXT_OVERFLOW:
                    raise
                failure = error
        raise failure

    async def _stubbornly(self, request: ModelRequest) -> str:
        """Nobody was shown anything of a summary, so one that broke off is simply asked for again."""
        tries = 0
        while True:
            try:
                return await self._collect(request)
            except ModelFailure as error:
                retry = retry_transient(error.kind, error.status, error.retry_after_s, tries, self.rng.random())
                if retry is None:
                    raise
                tries = retry.attempt
            await self.clock.sleep(retry.delay_s)

    async def _collect(self, request: ModelRequest) -> str:
        stream = self.models.stream(request)
        texts: list[str] = []
        usage = Usage()
        try:
            async with asyncio.timeout(SUMMARY_LIMIT_S):
                async for chunk in stream:
                    match chunk:
                        case TextChunk(text):
                            texts.append(text)
                        case StepEnded(usage=told):
                            usage = told
                        case _:
                            pass
            return "".join(texts)
        except TimeoutError:
            # Not as a TIMEOUT, which is tried again: the next try would be as slow.
            raise ModelFailure(FailureKind.BAD_REQUEST, f"no summary within {SUMMARY_LIMIT_S:.0f} s") from None
        finally:
            self.spent(request, usage, sum(map(len, texts)))
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()


def input_limits(budget: Budget) -> tuple[int, ...]:
    """Beginning with what the window surely holds: many local servers cut what is too long without a word."""
    room = (budget.window - budget.summary * OUTPUT_PER_SUMMARY) * BYTES_PER_TOKEN // 2
    first = max(SMALLEST_INPUT_CHARACTERS, min(INPUT_LIMITS_CHARACTERS[0], room))
    return (first, *(limit for limit in INPUT_LIMITS_CHARACTERS if limit < first))
