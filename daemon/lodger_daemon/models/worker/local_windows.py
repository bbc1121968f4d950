"""Asks a server what its model list left out: how much each model reads."""

import asyncio
import json
from contextlib import aclosing
from typing import Final

from lodger_daemon.models.core.failures import BODY_LIMIT_BYTES
from lodger_daemon.models.core.frames import ListedModel
from lodger_daemon.models.core.json_fields import parse_object
from lodger_daemon.models.core.window_answers import (
    window_in_props,
    window_in_show,
    windows_in_listing,
    windows_in_running,
    with_windows,
)
from lodger_daemon.models.core.windows import LOCAL
from lodger_daemon.models.worker.http_client import HttpClient, HttpFault
from lodger_tools.json_value import JsonObject

LIMIT_S: Final = 2.0
"""Of all questions together; they are asked at once, of a server that has just answered."""
_MODELS_ASKED: Final = 32


async def ask_windows(
    client: HttpClient, base_url: str, headers: dict[str, str], models: tuple[ListedModel, ...]
) -> tuple[ListedModel, ...]:
    """The models with what could be learned; as they were where nobody knows."""
    asking = _Asking(client, base_url.removesuffix("/v1"), headers)
    unknown = [model.name for model in models if not model.context_window]
    try:
        async with asyncio.timeout(LIMIT_S):
            if size := window_in_props(await asking.get("/props")):
                return with_windows(models, dict.fromkeys(unknown, size))
            if loaded := windows_in_listing(await asking.get("/api/v0/models")):
                return with_windows(models, {name: loaded[name] for name in unknown if name in loaded})
            running = windows_in_running(await asking.get("/api/ps"))
            rest = [name for name in unknown if name not in running][:_MODELS_ASKED]
            shown = await asyncio.gather(*(asking.post("/api/show", {"model": name}) for name in rest))
            sizes = {
                name: window_in_show(answer, LOCAL.context_tokens) for name, answer in zip(rest, shown, strict=True)
            }
            return with_windows(models, running | {name: size for name, size in sizes.items() if size})
    except TimeoutError:
        return models


class _Asking:
    def __init__(self, client: HttpClient, root: str, headers: dict[str, str]) -> None:
        self._client = client
        self._root = root
        self._headers = headers

    async def get(self, path: str) -> JsonObject:
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: JsonObject) -> JsonObject:
        return await self._ask("POST", path, body)

    async def _ask(self, method: str, path: str, body: JsonObject | None) -> JsonObject:
        """Empty for anything but a good answer: most servers have most of these routes not."""
        try:
            sent = json.dumps(body).encode() if body is not None else None
            async with aclosing(await self._client.ask(method, self._root + path, self._headers, sent)) as answer:
                said = b""
                async for piece in answer.pieces():
                    said += piece
                    if len(said) > BODY_LIMIT_BYTES:
                        return {}
        except HttpFault:
            return {}
        return (parse_object(said) or {}) if answer.status == 200 else {}
