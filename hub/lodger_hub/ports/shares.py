"""Ports of boxes that machines share through this hub: where each is reached, who was let in, and its connections.

A share lives as long as the machine's socket that asked for it. People are let in one browser at a time: a device asks
for an entry with its token, the browser exchanges that once for a cookie, and both end with the device's token.
"""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.websockets import WebSocket

from lodger_hub.access.core.credentials import digest_of
from lodger_hub.errors import RequestRefused
from lodger_hub.ports.door import Door, Listening, open_door
from lodger_hub.ports.stream import Stream

SHARES: Final = 64
SHARES_PER_MACHINE: Final = 16
ENTRY_LIFE_S: Final = 60.0
"""From the page's click to the browser's first request."""
ENTRIES: Final = 32
SESSIONS: Final = 64
"""Of one share; the oldest makes room."""
STREAM_WITHIN_S: Final = 15.0


@dataclass(slots=True)
class Share:
    """One port of one box."""

    id: str
    token_id: str
    """Of the machine."""
    control: WebSocket
    doors: dict[int, Door] = field(default_factory=dict)
    """By the hub's port that the page was loaded from."""
    entries: dict[bytes, tuple[str, float]] = field(default_factory=dict)
    """Digest of what the browser brings: the device's token, and until when."""
    sessions: dict[bytes, str] = field(default_factory=dict)
    """Digest of the cookie: the device's token."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Shares:
    """Event loop only."""

    def __init__(
        self,
        listening: Sequence[Listening],
        is_own_host: Callable[[str], bool],
        is_live: Callable[[str], bool],
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            listening: where the hub itself listens; each share listens beside each of them.
            is_live: whether the token of that id is still good.
        """
        self._listening = tuple(listening)
        self._is_own_host = is_own_host
        self._is_live = is_live
        self._mono = mono
        self._shares: dict[str, Share] = {}
        self._awaited: dict[str, tuple[str, asyncio.Future[Stream]]] = {}
        """Connections that a machine was asked for: its token, and who waits."""

    async def open(self, token_id: str, control: WebSocket) -> Share:
        """Raises: RequestRefused."""
        own = sum(share.token_id == token_id for share in self._shares.values())
        if len(self._shares) >= SHARES or own >= SHARES_PER_MACHINE:
            raise RequestRefused(429, "too_many_ports", "too many ports are shared through this hub; close some")
        share = Share(secrets.token_urlsafe(16), token_id, control)
        self._shares[share.id] = share
        try:
            for place in self._listening:
                share.doors[place.port] = await open_door(place, _Guard(self, share), self._is_own_host)
        except OSError as error:
            self.close(share)
            raise RequestRefused(503, "no_port", f"the hub has no port left: {error.strerror}") from error
        return share

    def close(self, share: Share) -> None:
        self._shares.pop(share.id, None)
        share.ended.set()
        for door in share.doors.values():
            door.close()

    def enter(self, share_id: str, token_id: str, hub_port: int) -> tuple[int, str]:
        """The port where the share is reached by whoever reached the hub at `hub_port`, and a word that lets one
        browser in. Raises: RequestRefused."""
        share = self._shares.get(share_id)
        if share is None:
            raise RequestRefused(404, "unknown_port", "that port is not shared any more; open it again")
        door = share.doors.get(hub_port)
        if door is None:
            raise RequestRefused(409, "not_here", "ports are not reached through the address you came by")
        now = self._mono()
        share.entries = {digest: entry for digest, entry in share.entries.items() if entry[1] > now}
        if len(share.entries) >= ENTRIES:
            raise RequestRefused(429, "too_many_entries", "that port was asked for too often; wait a minute")
        word = secrets.token_urlsafe(32)
        share.entries[digest_of(word)] = (token_id, now + ENTRY_LIFE_S)
        return door.port, word

    def exchange(self, share: Share, word: str) -> str | None:
        """A session's secret; None for a word that is no good, or was used."""
        token_id, until = share.entries.pop(digest_of(word), ("", 0.0))
        if until <= self._mono() or not self._is_live(token_id):
            return None
        secret = secrets.token_urlsafe(32)
        while len(share.sessions) >= SESSIONS:
            del share.sessions[next(iter(share.sessions))]
        share.sessions[digest_of(secret)] = token_id
        return secret

    def who(self, share: Share, secrets_shown: Sequence[bytes]) -> str | None:
        """The device's token that one of these stands for; None when nobody is let in."""
        for one in secrets_shown:
            token_id = share.sessions.get(digest_of(one.decode("latin-1")))
            if token_id is not None and self._is_live(token_id):
                return token_id
        return None

    async def stream(self, share: Share) -> Stream:
        """A connection to the program in the box. Raises: OSError when the machine makes none."""
        name = secrets.token_urlsafe(16)
        waiting: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        self._awaited[name] = (share.token_id, waiting)
        try:
            async with asyncio.timeout(STREAM_WITHIN_S):
                await share.control.send_text(json.dumps({"type": "stream", "stream": name}))
                return await waiting
        except (TimeoutError, RuntimeError) as error:
            raise ConnectionRefusedError("the machine does not answer") from error
        finally:
            self._awaited.pop(name, None)

    def arrived(self, name: str, token_id: str, socket: WebSocket) -> Stream | None:
        """What the machine opened for somebody who waits; None when nobody waits for that from this machine."""
        owner, waiting = self._awaited.get(name, ("", None))
        if waiting is None or waiting.done() or owner != token_id:
            return None
        stream = Stream(socket)
        waiting.set_result(stream)
        return stream

    def end_token(self, token_id: str) -> None:
        """Whoever was let in by this token is cut off; a machine that had it shares nothing more."""
        for share in tuple(self._shares.values()):
            if share.token_id == token_id:
                self.close(share)
                continue
            share.entries = {digest: entry for digest, entry in share.entries.items() if entry[0] != token_id}
            share.sessions = {digest: one for digest, one in share.sessions.items() if one != token_id}
            for door in share.doors.values():
                door.cut(token_id)

    def close_all(self) -> None:
        for share in tuple(self._shares.values()):
            self.close(share)


class _Guard:
    """What a door asks about its share."""

    def __init__(self, shares: Shares, share: Share) -> None:
        self._shares = shares
        self._share = share

    def exchange(self, word: str) -> str | None:
        return self._shares.exchange(self._share, word)

    def who(self, secrets_shown: Sequence[bytes]) -> str | None:
        return self._shares.who(self._share, secrets_shown)

    async def stream(self) -> Stream:
        return await self._shares.stream(self._share)
