"""Requests to every other provider, through litellm. Imported by its own worker only: it takes seconds and 190 MB."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import litellm

from lodger_daemon.models.contract import RETRYABLE, FailureKind, ModelFailure, ReasoningChunk, StepEnded, Usage
from lodger_daemon.models.core.failures import failure_of_event
from lodger_daemon.models.core.frames import ListedModel, ListOrder, Report, StepOrder
from lodger_daemon.models.core.openai_stream import OpenAiStream
from lodger_daemon.models.core.providers import LITELLM_PREFIX, Provider
from lodger_daemon.models.core.retry_hints import retry_after
from lodger_daemon.models.core.thinking import seal
from lodger_daemon.models.keys import Key, KeyRefused, KeyStore
from lodger_daemon.models.litellm_worker.names import litellm_place
from lodger_daemon.models.worker.outbox import Outbox
from lodger_tools.json_value import Json

# More specific classes first: most of litellm's errors are subclasses of a plainer one.
_BY_CLASS: Final[tuple[tuple[str, FailureKind], ...]] = (
    ("MidStreamFallbackError", FailureKind.CUT_SHORT),
    ("ContextWindowExceededError", FailureKind.CONTEXT_OVERFLOW),
    ("AuthenticationError", FailureKind.AUTHENTICATION),
    ("PermissionDeniedError", FailureKind.AUTHENTICATION),
    ("BudgetExceededError", FailureKind.QUOTA),
    ("NotFoundError", FailureKind.UNKNOWN_MODEL),
    ("Timeout", FailureKind.TIMEOUT),
    ("ServiceUnavailableError", FailureKind.OVERLOADED),
    ("APIConnectionError", FailureKind.NETWORK),
)


class LitellmCaller:
    """Implements `Caller`."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys
        self._known = frozenset(str(getattr(name, "value", name)) for name in litellm.provider_list)
        litellm.suppress_debug_info = True
        litellm.drop_params = True
        litellm.num_retries = 0

    async def step(self, order: StepOrder, body: bytes, put: Callable[[Report], None], outbox: Outbox) -> None:
        provider = order.provider
        arguments: dict[str, Any] = json.loads(body)
        plain_name = provider.name.removeprefix(LITELLM_PREFIX)
        key = await asyncio.to_thread(self._key, provider, plain_name)
        model, base_url = litellm_place(provider, order.model, self._known)
        arguments |= {"model": model, "max_retries": 0, "num_retries": 0}
        arguments |= {"timeout": provider.read_timeout_s, "stream_timeout": provider.read_timeout_s}
        if base_url:
            arguments["api_base"] = base_url
        if key is not None:
            arguments["api_key"] = key.value
        seen = False

        def put_seen(report: Report) -> None:
            nonlocal seen
            seen = True
            put(report)

        try:
            await _pass_on(await litellm.acompletion(**arguments), provider, put_seen, outbox)
        except ModelFailure:
            raise
        except Exception as fault:  # noqa: BLE001 - litellm lets errors of a hundred client libraries through
            raise _failure(fault, seen, key) from None

    async def list_models(self, order: ListOrder) -> tuple[ListedModel, ...]:
        """Only what the settings name: litellm asks no provider."""
        return tuple(ListedModel(name) for name in order.provider.models)

    def forget(self, provider_name: str) -> None:
        """Nothing is kept."""

    async def aclose(self) -> None:
        """Connections end with the process."""

    def _key(self, provider: Provider, name: str) -> Key | None:
        """Blocking: a keyring may take seconds."""
        try:
            key = self._keys.read(name, provider.key_variables)
        except (KeyRefused, OSError) as refused:
            raise ModelFailure(FailureKind.AUTHENTICATION, str(refused)) from None
        # What stands in the environment litellm reads by itself, in the way each provider needs.
        return None if key is None or (key.source == "environment" and not provider.base_url) else key


async def _pass_on(stream: Any, provider: Provider, put: Callable[[Report], None], outbox: Outbox) -> None:
    """litellm turns every dialect into OpenAI's; our decoder for that reads its chunks as if they came by wire."""
    decoder = OpenAiStream(provider.name, f"{time.time_ns():x}")
    said = False
    thinking = _Thinking(provider.name)
    chunks: AsyncIterator[Any] = stream
    try:
        async for chunk in chunks:
            fields = chunk.model_dump(mode="json", exclude_none=True)
            signature = thinking.take(fields)
            for piece in decoder.feed(b"data: " + json.dumps(fields).encode() + b"\n\n"):
                said = True
                # The dialect's own seal says "give the text back"; signed blocks replace it.
                put(ReasoningChunk(piece.text) if isinstance(piece, ReasoningChunk) else piece)
            if signature:
                put(ReasoningChunk("", signature))
            await outbox.drain()
        for piece in decoder.finish():
            if isinstance(piece, StepEnded) and not said and piece.usage == Usage():
                # What litellm makes of a web page, and of anything else that is no answer at all.
                raise ModelFailure(
                    FailureKind.CUT_SHORT, f"{provider.name} sent no answer; check its address if that goes on."
                )
            put(piece)
    finally:
        # Without this the request stays open and goes on generating.
        await stream.aclose()


class _Thinking:
    """Anthropic's signed blocks, put together from litellm's fragments."""

    def __init__(self, provider_name: str) -> None:
        self._provider_name = provider_name
        self._text = ""
        self._blocks: list[Json] = []

    def take(self, fields: dict[str, Any]) -> str | None:
        """The seal over all blocks so far, when a block became complete."""
        complete = False
        for choice in fields.get("choices") or []:
            for block in (choice.get("delta") or {}).get("thinking_blocks") or []:
                self._text += block.get("thinking") or ""
                if block.get("type") == "redacted_thinking":
                    self._blocks.append({"type": "redacted_thinking", "data": block.get("data") or ""})
                    complete = True
                elif signature := block.get("signature"):
                    self._blocks.append({"type": "thinking", "thinking": self._text, "signature": signature})
                    self._text, complete = "", True
        return seal(self._provider_name, list(self._blocks)) if complete else None


def _failure(fault: Exception, output_seen: bool, key: Key | None) -> ModelFailure:
    words = str(getattr(fault, "message", "") or fault)
    if key is not None:
        words = words.replace(key.value, "***")
    status = getattr(fault, "status_code", None)
    status = status if isinstance(status, int) else None
    guess = failure_of_event({"error": {"message": words, "code": status}}, output_seen)
    names = {cls.__name__ for cls in type(fault).__mro__}
    kind = next((kind for name, kind in _BY_CLASS if name in names), guess.kind)
    # A request that is being answered was a good one, whatever litellm makes of what came then.
    if output_seen and kind in (FailureKind.NETWORK, FailureKind.SERVER, FailureKind.BAD_REQUEST):
        kind = FailureKind.CUT_SHORT
    elif kind is FailureKind.SERVER and "overloaded" in words.lower():
        # litellm reports Anthropic's 529 as 500; the words are all that is left of it (ECOSYSTEM.md section 2).
        kind = FailureKind.OVERLOADED
    wait_s = retry_after(_headers_of(fault), time.time()) or guess.retry_after_s
    return ModelFailure(
        kind,
        guess.message,
        status=status,
        retry_after_s=wait_s if kind in RETRYABLE else None,
        output_seen=output_seen,
        context_window=guess.context_window if kind is FailureKind.CONTEXT_OVERFLOW else None,
    )


def _headers_of(fault: Exception) -> dict[str, str]:
    """Some errors carry the answer's headers in one place, some in another."""
    merged: dict[str, str] = {}
    for headers in (
        getattr(getattr(fault, "response", None), "headers", None),
        getattr(fault, "litellm_response_headers", None),
    ):
        if headers:
            merged |= {str(name).lower(): str(value) for name, value in dict(headers).items()}
    return merged
