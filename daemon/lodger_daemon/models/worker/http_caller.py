"""Requests to providers that speak one of our two dialects: httpx, one warm client per address."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from typing import Final

import httpx

from lodger_daemon.models.contract import FailureKind, ModelFailure
from lodger_daemon.models.core.adapting import refused_field, without
from lodger_daemon.models.core.dialects import StreamDecoder, decoder_for
from lodger_daemon.models.core.failures import BODY_LIMIT_BYTES, failure_of_response, too_much
from lodger_daemon.models.core.frames import ListedModel, ListOrder, Report, StepOrder
from lodger_daemon.models.core.json_fields import parse_object
from lodger_daemon.models.core.model_lists import listed_models
from lodger_daemon.models.core.providers import Dialect, Provider
from lodger_daemon.models.keys import KeyRefused, KeyStore
from lodger_daemon.models.worker.local_windows import ask_windows
from lodger_daemon.models.worker.outbox import Outbox

_CONNECT_LIMIT_S: Final = 10.0
_WRITE_LIMIT_S: Final = 60.0
_LIST_LIMIT_S: Final = 5.0
_KEEP_WARM_S: Final = 120.0
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
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._headers: dict[str, dict[str, str]] = {}
        self._refused: dict[tuple[str, str], tuple[str, ...]] = {}
        """Fields of a request that a server, for a model, does not take."""

    async def step(self, order: StepOrder, body: bytes, put: Callable[[Report], None], outbox: Outbox) -> None:
        provider = order.provider
        headers = await self._headers_for(provider)
        tail = "/v1/messages" if provider.dialect is Dialect.ANTHROPIC else "/chat/completions"
        client, url = self._client(provider), _parsed(provider.base_url + tail)
        place = (provider.base_url, order.model)
        refused = self._refused.get(place, ())
        while True:
            fitting = _fitting(body, refused)
            try:
                request = client.build_request("POST", url, content=fitting, headers=headers)
                await self._attempt(client, request, provider, put, outbox)
                return
            except ModelFailure as failure:
                field = refused_field(parse_object(fitting) or {}, failure)
                if field is None or field in refused:
                    raise _without_key(failure, headers) from None
                refused = self._refused[place] = (*refused, field)

    async def _attempt(
        self,
        client: httpx.AsyncClient,
        request: httpx.Request,
        provider: Provider,
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
            response = await self._send(client, request)
            try:
                await _pass_on(response, decoder_for(provider, f"{time.time_ns():x}"), put_seen, outbox)
            finally:
                await response.aclose()
        except httpx.HTTPError as fault:
            raise _network_failure(fault, provider, seen) from None

    async def list_models(self, order: ListOrder) -> tuple[ListedModel, ...]:
        provider = order.provider
        headers = await self._headers_for(provider)
        tail = "/v1/models" if provider.dialect is Dialect.ANTHROPIC else "/models"
        try:
            client = self._client(provider)
            async with asyncio.timeout(_LIST_LIMIT_S):
                async with client.stream("GET", provider.base_url + tail, headers=headers) as response:
                    body = await _read_limited(response.aiter_bytes(), _WHOLE_LIMIT_BYTES)
        except (httpx.HTTPError, TimeoutError) as fault:
            raise _network_failure(fault, provider, False) from None
        if response.status_code != 200:
            failure = failure_of_response(response.status_code, response.headers, body, time.time())
            raise _without_key(failure, headers)
        models = listed_models(parse_object(body) or {})
        # Providers of the world have no such routes, and the table knows their models.
        is_local = provider.is_loopback and provider.dialect is Dialect.OPENAI
        if is_local and not all(model.context_window for model in models):
            models = await ask_windows(client, provider.base_url, headers, models)
        return models

    async def forget(self, provider_name: str) -> None:
        self._headers.pop(provider_name, None)

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    async def _send(self, client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
        try:
            return await client.send(request, stream=True)
        except httpx.RemoteProtocolError:
            # A kept connection that the server closed at this very moment: nothing was answered, so ask once more.
            return await client.send(request, stream=True)

    def _client(self, provider: Provider) -> httpx.AsyncClient:
        client = self._clients.get(provider.base_url)
        if client is None:
            read_s = provider.read_timeout_s
            client = httpx.AsyncClient(
                timeout=httpx.Timeout(read_s, connect=_CONNECT_LIMIT_S, write=_WRITE_LIMIT_S, pool=None),
                limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEEP_WARM_S),
                # The certificates of the world cost 6 MB and 30 ms; plain http has no use for them.
                verify=provider.base_url.startswith("https:"),
                trust_env=not provider.is_loopback,
            )
            self._clients[provider.base_url] = client
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


@lru_cache(maxsize=64)
def _parsed(url: str) -> httpx.URL:
    """The client would parse it anew for every request, which costs a tenth of a millisecond."""
    return httpx.URL(url)


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


async def _pass_on(
    response: httpx.Response, decoder: StreamDecoder, put: Callable[[Report], None], outbox: Outbox
) -> None:
    if response.status_code != 200:
        body = await _read_limited(response.aiter_bytes(), BODY_LIMIT_BYTES)
        raise failure_of_response(response.status_code, response.headers, body, time.time())
    first, pieces = await _begun(response.aiter_bytes())
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
    try:
        async with asyncio.timeout(_TAIL_LIMIT_S):
            async for _ in pieces:
                pass
    except (TimeoutError, httpx.HTTPError):
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


def _network_failure(fault: httpx.HTTPError | TimeoutError, provider: Provider, output_seen: bool) -> ModelFailure:
    where = f"{provider.name} at {provider.base_url}"
    if isinstance(fault, httpx.TimeoutException | TimeoutError):
        return ModelFailure(FailureKind.TIMEOUT, f"{where} did not answer in time.", output_seen=output_seen)
    words = str(fault) or type(fault).__name__
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
