"""The daemon's end of its connection to the egress broker."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable
from typing import Final

from lodger_daemon.network.broker_process import FoundBroker
from lodger_sandbox.egress.core.wire import Hello, Order, order_line
from lodger_tools.box import record as records

_HELLO_LIMIT_S: Final = 10.0
_LINE_LIMIT_BYTES: Final = 64 * 1024
"""The broker reads what programs in boxes send, so what it says is limited too."""
_PIECE_BYTES: Final = 64 * 1024

OnEvent = Callable[[dict[str, object]], None]


class BrokerGone(Exception):
    """No broker answers there, or not any more."""


class BrokerLink:
    """Made by `connect`. Event loop only."""

    def __init__(self, connection: socket.socket, on_event: OnEvent, on_lost: Callable[["BrokerLink"], None]) -> None:
        self._socket = connection
        self._on_event = on_event
        self._on_lost = on_lost
        self._greeted: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(), name="egress broker")

    @classmethod
    async def connect(
        cls, found: FoundBroker, on_event: OnEvent, on_lost: Callable[["BrokerLink"], None]
    ) -> tuple["BrokerLink", frozenset[str]]:
        """The link, and the boxes whose sockets the broker has already. Raises: BrokerGone."""
        try:
            connection = await asyncio.to_thread(records.connect, found.folder)
        except OSError as error:
            raise BrokerGone(str(error)) from error
        link = cls(connection, on_event, on_lost)
        try:
            link.say(Hello(found.token))
            async with asyncio.timeout(_HELLO_LIMIT_S):
                return link, await asyncio.shield(link._greeted)
        except (TimeoutError, BrokerGone) as error:
            await link.aclose()
            raise BrokerGone("the broker does not answer") from error
        except BaseException:
            await link.aclose()
            raise

    def say(self, order: Order, *descriptors: int) -> None:
        """Raises: BrokerGone, also when the broker reads too slowly to be of use."""
        line = order_line(order)
        try:
            if socket.send_fds(self._socket, [line], descriptors) != len(line):
                raise BrokerGone("the broker does not read")
        except OSError as error:
            raise BrokerGone(str(error)) from error

    async def aclose(self) -> None:
        """Let go of the broker; it goes on."""
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        self._socket.close()

    async def _read(self) -> None:
        loop, left = asyncio.get_running_loop(), b""
        try:
            while piece := await loop.sock_recv(self._socket, _PIECE_BYTES):
                *lines, left = (left + piece).split(b"\n")
                if len(left) > _LINE_LIMIT_BYTES:
                    break
                for line in lines:
                    self._take(json.loads(line))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        if not self._greeted.done():
            self._greeted.set_exception(BrokerGone("the broker does not answer as it should"))
            # Marked as seen: whoever waited may have been cancelled already.
            self._greeted.exception()
        self._socket.close()
        self._on_lost(self)

    def _take(self, event: dict[str, object]) -> None:
        """Raises: KeyError, TypeError for what a broker would not say."""
        if event["is"] != "hello":
            self._on_event(event)
        elif not self._greeted.done():
            boxes = event["boxes"]
            if not isinstance(boxes, list):
                raise TypeError("boxes")
            self._greeted.set_result(frozenset(map(str, boxes)))
