"""Requests to providers that speak one of our two dialects, by one warm client per address."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

from lodger_daemon.models.contract import FailureKind, ModelFailure
from lodger_daemon.models.core.adapting import refused_field, without
from lodger_daemon.models.core.dialects import StreamDecoder, decoder_for
from lodger_daemon.models.core.failures import BODY_LIMIT_BYTES, failure_of_response, too_much
from lodger_daemon.models.core.frames import ListedModel, ListOrder, Report, StepOrder
from lodger_daemon.models.core.json_fields import parse_object
from lodger_daemon.models.core.model_lists import listed_models
from lodger_daemon.models.core.providers import Dialect, Provider
from lodger_daemon.models.keys import KeyRefused, KeyStore
from lodger_daemon.models.worker.http_client import Answer, HttpClient, HttpFault, HttpTimeout
from lodger_daemon.models.worker.local_windows import ask_windows
from lodger_daemon.models.worker.outbox import Outbox

_LIST_LIMIT_S: Final = 5.0
_TAIL_LIMIT_S: Final = 1.0
"""How long the end of an answered request is waited for, so that its connection can be used again."""
_WHOLE_LIMIT_BYTES: Final = 32 * 1024 * 1024
_STREAM_LIMIT_BYTES: Final = 256 * 1024 * 1024
"""Of one streamed answer, with everything in it that becomes no chunk: signs of life without end, or blocks of a kind
nobody knows. A long answer comes in some 40 MB, most of it the dress of single tokens."""
_ANTHROPIC_VERSION: Final = "2023-06-01"


class HttpCaller:
    """Implements `Caller`."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys
        self._clients: dict[str, HttpClient] = {}
        self._headers: dict[str, dict[str, str]] = {}
        self._refused: dict[tuple[str, str], tuple[str, ...]] = {}
        """Fields of a request that a server, for a model, does not take."""

    async def step(self, order: StepOrder, body: bytes, put: Callable[[Report], None], outbox: Outbox) -> None:
        provider = order.provider
        headers = await self._headers_for(provider)
        tail = "/v1/messages" if provider.dialect is Dialect.ANTHROPIC else "/chat/completions"
        place = (provider.base_url, order.model)
        refused = self._refused.get(place, ())
        while True:
            fitting = _fitting(body, refused)
            try:
                await self._attempt(provider, tail, headers, fitting, put, outbox)
                return
            except ModelFailure as failure:
                field = refused_field(parse_object(fitting) or {}, failure)
                if field is None or field in refused:
                    raise _without_key(failure, headers) from None
                refused = self._refused[place] = (*refused, field)

    async def _attempt(
        self,
        provider: Provider,
        tail: str,
        headers: dict[str, str],
        body: bytes,
        put: Callable[[Report], None],
        outbox: Outbox,
    ) -> None:
        """Raises: ModelFailure."""
        seen = False

        def put_seen(report: Report) -> None:
            nonlocal seen
            seen = True
            put(report)

        try:
            answer = await self._client(provider).ask("POST", provider.base_url + tail, headers, body)
            async with aclosing(answer):
                await _pass_on(answer, decoder_for(provider, f"{time.time_ns():x}"), put_seen, outbox)
        except HttpFault as fault:
            raise _network_failure(fault, provider, seen) from None

    async def list_models(self, order: ListOrder) -> tuple[ListedModel, ...]:
        provider = order.provider
        headers = await self._headers_for(provider)
        tail = "/v1/models" if provider.dialect is Dialect.ANTHROPIC else "/models"
        try:
            client = self._client(provider)
            async with asyncio.timeout(_LIST_LIMIT_S):
                async with aclosing(await client.ask("GET", provider.base_url + tail, headers)) as answer:
                    body = await _read_limited(answer.pieces(), _WHOLE_LIMIT_BYTES)
        except (HttpFault, TimeoutError) as fault:
            raise _network_failure(fault, provider, False) from None
        if answer.status != 200:
            failure = failure_of_response(answer.status, answer.headers, body, time.time())
            raise _without_key(failure, headers)
        models = listed_models(parse_object(body) or {})
        # Providers of the world have no such routes, and the table knows their models.
        is_local = provider.is_loopback and provider.dialect is Dialect.OPENAI
        if is_local and not all(model.context_window for model in models):
            models = await ask_windows(client, provider.base_url, headers, models)
        return models

    def forget(self, provider_name: str) -> None:
        self._headers.pop(provider_name, None)

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    def _client(self, provider: Provider) -> HttpClient:
        """Raises: HttpFault."""
        client = self._clients.get(provider.base_url)
        if client is None:
            client = self._clients[provider.base_url] = HttpClient(provider.base_url, provider.read_timeout_s)
        return client

    async def _headers_for(self, provider: Provider) -> dict[str, str]:
        known = self._headers.get(provider.name)
        if known is None or provider.bearer:
            key = provider.bearer
            if not key:
                try:
                    found = await asyncio.to_thread(self._keys.read, provider.name, provider.key_variables)
                except (KeyRefused, OSError) as refused:
                    raise ModelFailure(FailureKind.AUTHENTICATION, str(refused)) from None
                key = found.value if found else ""
            known = self._headers[provider.name] = _headers(provider.dialect, key)
        return known


def _headers(dialect: Dialect, key: str) -> dict[str, str]:
    # Compressed streams arrive late, and a few bytes of one may stand for gigabytes.
    headers = {"content-type": "application/json", "user-agent": "lodger", "accept-encoding": "identity"}
    if dialect is Dialect.ANTHROPIC:
        headers["anthropic-version"] = _ANTHROPIC_VERSION
        if key:
            headers["x-api-key"] = key
    elif key:
        headers["authorization"] = f"Bearer {key}"
    return headers


async def _pass_on(answer: Answer, decoder: StreamDecoder, put: Callable[[Report], None], outbox: Outbox) -> None:
    if answer.status != 200:
        body = await _read_limited(answer.pieces(), BODY_LIMIT_BYTES)
        raise failure_of_response(answer.status, answer.headers, body, time.time())
    first, pieces = await _begun(answer.pieces())
    # What it is stands in its first character; headers say "text/html" of streams and "event-stream" of objects.
    if first.lstrip()[:1] == b"{":
        for chunk in decoder.whole(await _read_limited(pieces, _WHOLE_LIMIT_BYTES)):
            put(chunk)
        return
    room_bytes = _STREAM_LIMIT_BYTES
    async for piece in pieces:
        room_bytes -= len(piece)
        if room_bytes < 0:
            raise too_much(f"more than {_STREAM_LIMIT_BYTES // (1024 * 1024)} MiB")
        for chunk in decoder.feed(piece):
            put(chunk)
        if decoder.ended:
            break
        await outbox.drain()
    for chunk in decoder.finish():
        put(chunk)
    outbox.flush()
    try:
        async with asyncio.timeout(_TAIL_LIMIT_S):
            async for _ in pieces:
                pass
    except (TimeoutError, HttpFault):
        # The answer is complete; only the connection cannot be kept.
        return


async def _begun(pieces: AsyncIterator[bytes]) -> tuple[bytes, AsyncIterator[bytes]]:
    """What comes up to the first character that is no space, and then everything, from the beginning."""
    begun = b""
    async for piece in pieces:
        begun += piece
        if begun.strip() or len(begun) > BODY_LIMIT_BYTES:
            break

    async def everything() -> AsyncIterator[bytes]:
        yield begun
        async for piece in pieces:
            yield piece

    return begun, everything()


def _fitting(body: bytes, refused: tuple[str, ...]) -> bytes:
    """The request as this server takes it."""
    if not refused:
        return body.rstrip(b"\n")
    fields = parse_object(body) or {}
    for name in refused:
        fields = without(fields, name)
    return json.dumps(fields, separators=(",", ":")).encode()


async def _read_limited(pieces: AsyncIterator[bytes], limit_bytes: int) -> bytes:
    body = bytearray()
    async for piece in pieces:
        body += piece[: limit_bytes - len(body)]
        if len(body) >= limit_bytes:
            break
    return bytes(body)


def _network_failure(fault: HttpFault | TimeoutError, provider: Provider, output_seen: bool) -> ModelFailure:
    where = f"{provider.name} at {provider.base_url}"
    if isinstance(fault, HttpTimeout | TimeoutError):
        return ModelFailure(FailureKind.TIMEOUT, f"{where} did not answer in time.", output_seen=output_seen)
    words = str(fault)
    if output_seen:
        return ModelFailure(FailureKind.CUT_SHORT, f"{where} broke off: {words}", output_seen=True)
    return ModelFailure(FailureKind.NETWORK, f"{where} cannot be reached: {words}")


def _without_key(failure: ModelFailure, headers: dict[str, str]) -> ModelFailure:
    """Some providers repeat the key they refuse."""
    key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
    if key and key in failure.message:
        failure.message = failure.message.replace(key, "***")
        failure.args = (failure.message,)
    return failure
