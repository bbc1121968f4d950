"""Keeps every client that litellm makes at the address it was given.

litellm and the libraries below it follow redirects, and take keys along that stand in headers of a provider's own. No
setting of theirs reaches all of their clients, so the one method that all of them end in is wrapped.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import httpx

Send = Callable[..., Coroutine[Any, Any, httpx.Response]]


def stay_where_told() -> None:
    """For the rest of this process: an answer that points elsewhere is a refused request."""
    httpx.AsyncClient.send = _staying(httpx.AsyncClient.send)  # type: ignore[method-assign]


def _staying(send: Send) -> Send:
    @wraps(send)
    async def stays(*arguments: Any, **options: Any) -> httpx.Response:
        response = await send(*arguments, **{**options, "follow_redirects": False})
        if response.has_redirect_location:
            # litellm takes such a status for a fault of the network, which would be tried again and again.
            response.status_code = httpx.codes.BAD_REQUEST
        return response

    return stays
