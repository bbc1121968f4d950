"""The one model call of a compaction."""

import asyncio
from collections.abc import Sequence
from typing import Final

from lodger_daemon.backends.core.compaction import SUMMARY_REQUEST, render_for_summary
from lodger_daemon.backends.core.transcript import TranscriptMessage
from lodger_daemon.models.contract import (
    FailureKind,
    ModelFailure,
    ModelGateway,
    ModelRequest,
    SystemMessage,
    TextChunk,
    UserMessage,
)

SUMMARISER: Final = "You summarise conversations between a person and an agent, truly and briefly."
INPUT_LIMITS_CHARACTERS: Final = (120_000, 40_000, 10_000)
"""Each used when the model found the one before too long."""
SUMMARY_OUTPUT_TOKENS: Final = 2_000
SUMMARY_LIMIT_S: Final = 600.0
"""For the whole answer; what stands between two pieces of it is the model worker's to limit. A slow model on this
machine's own processor needs minutes for 2,000 tokens."""


async def summarise(models: ModelGateway, handle: str, hidden: Sequence[TranscriptMessage], cache_key: str) -> str:
    """Raises: ModelFailure."""
    failure = ModelFailure(FailureKind.CONTEXT_OVERFLOW, "no summary could be made")
    for limit in INPUT_LIMITS_CHARACTERS:
        text = f"<conversation>\n{render_for_summary(hidden, limit)}\n</conversation>\n\n{SUMMARY_REQUEST}"
        request = ModelRequest(
            handle=handle,
            messages=(SystemMessage(SUMMARISER), UserMessage(({"type": "text", "text": text},))),
            tools=(),
            max_output_tokens=SUMMARY_OUTPUT_TOKENS,
            cache_key=cache_key,
        )
        try:
            return await _collect(models, request)
        except ModelFailure as error:
            if error.kind is not FailureKind.CONTEXT_OVERFLOW:
                raise
            failure = error
    raise failure


async def _collect(models: ModelGateway, request: ModelRequest) -> str:
    try:
        async with asyncio.timeout(SUMMARY_LIMIT_S):
            return "".join([chunk.text async for chunk in models.stream(request) if isinstance(chunk, TextChunk)])
    except TimeoutError:
        raise ModelFailure(FailureKind.TIMEOUT, f"no summary within {SUMMARY_LIMIT_S:.0f} s") from None
