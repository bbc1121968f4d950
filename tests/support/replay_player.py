"""Plays the clients of a recording against a running server.

A line that was sent is sent once everything recorded before it has been seen from the server, so the order of events
decides and no clock does. Ids of the recording are exchanged for those the server gave in their place.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect

from support.replay_normal import IDS, Cleaner, is_text, named, text_of
from support.replay_recording import Frame, Kind, Line

LAST_REQUEST = "replay-end"
MESSAGE_LIMIT_BYTES = 64 * 1024 * 1024

Leave = Callable[[int], Awaitable[None]]
"""Lets the first pieces of the slow text out."""


class NotSeen(AssertionError):
    """The server did not send what a recording has."""


@dataclass
class Progress:
    """How far a connection's frames have come; texts count by their length, because they may be cut elsewhere."""

    frames: int = 0
    characters: int = 0
    devices: dict[str, Frame] = field(default_factory=dict)

    def take(self, frame: Frame) -> None:
        if is_text(frame):
            self.characters += len(text_of(frame))
        elif frame["type"] == "update_device_status" and self.devices.get(str(frame["runtime"])) == frame:
            pass
        else:
            if frame["type"] == "update_device_status":
                self.devices[str(frame["runtime"])] = frame
            self.frames += 1

    def reached(self, other: "Progress") -> bool:
        return self.frames >= other.frames and self.characters >= other.characters


@dataclass
class Peer:
    """One connection: what the recording says it got, and what it gets now."""

    cleaner: Cleaner
    expected: Progress = field(default_factory=Progress)
    seen: Progress = field(default_factory=Progress)
    recorded: list[Frame] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    """Clean, as they came."""
    ended: bool = False
    """The last answer has come: everything before it was sent before it."""


class Player:
    def __init__(self, url: str, workspace: str, recorded_workspace: str, leave: Leave, limit_s: float) -> None:
        self.url = url
        self.workspace = workspace
        self.recorded_workspace = recorded_workspace
        self.leave = leave
        self.limit_s = limit_s
        self.known: dict[str, str] = {}
        """Ids of recordings, and what stands for them here."""
        self.peers: dict[str, Peer] = {}
        self._sockets: dict[str, ClientConnection] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()

    async def play(self, lines: Iterable[Line]) -> dict[str, list[Frame]]:
        """Play all lines; returns what each connection received, clean. May be called again, for a second recording.

        Args:
            lines: what was received must be clean already.
        """
        self.peers = {}
        # A stream is opened with its first piece, which every recording has before anything else happens.
        await self.leave(1)
        try:
            for line in lines:
                await self._line(line)
            for name in self._sockets:
                await self._send(name, json.dumps({"type": "app_server_info", "request_id": LAST_REQUEST}))
                await self._until(lambda name=name: self.peers[name].ended, f"{name}: the last answer")
        finally:
            for reader in self._readers:
                reader.cancel()
            await asyncio.gather(*self._readers, return_exceptions=True)
            for socket in self._sockets.values():
                await socket.close()
            self._learn()
            self._readers, self._sockets = [], {}
        return {name: peer.frames for name, peer in self.peers.items()}

    async def _line(self, line: Line) -> None:
        peer = await self._peer(line.connection)
        match line.kind:
            case Kind.SENT:
                await self._send(line.connection, self._translated(line.frame))
            case Kind.RAW:
                await self._send(line.connection, line.raw)
            case Kind.CLOSED:
                await self._sockets.pop(line.connection).close()
            case Kind.RECEIVED:
                peer.recorded.append(line.frame)
                peer.expected.take(line.frame)
                if line.pieces:
                    await self.leave(line.pieces)
                await self._until(lambda: peer.seen.reached(peer.expected), f"{line.connection}: {line.frame}")

    async def _peer(self, name: str) -> Peer:
        if name not in self.peers:
            self.peers[name] = Peer(Cleaner(self.workspace))
            socket = await connect(self.url, max_size=MESSAGE_LIMIT_BYTES, proxy=None, compression=None)
            self._sockets[name] = socket
            self._readers.append(asyncio.create_task(self._read(self.peers[name], socket)))
        return self.peers[name]

    async def _read(self, peer: Peer, socket: ClientConnection) -> None:
        async for message in socket:
            frame = json.loads(message)
            async with self._changed:
                if frame.get("request_id") == LAST_REQUEST:
                    peer.ended = True
                elif not peer.ended:
                    taken = peer.cleaner.take(frame)
                    peer.seen.take(taken)
                    peer.frames.append(taken)
                self._changed.notify_all()

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(self.limit_s), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            self._raise_reader_fault()
            raise NotSeen(what) from None

    def _raise_reader_fault(self) -> None:
        for reader in self._readers:
            if reader.done() and not reader.cancelled() and (fault := reader.exception()) is not None:
                raise fault

    async def _send(self, name: str, text: str) -> None:
        await self._sockets[name].send(text)

    def _translated(self, frame: Frame) -> str:
        self._learn()
        text = json.dumps(frame).replace(self.recorded_workspace, self.workspace)
        return IDS.sub(lambda found: self.known.get(found[0], found[0]), text)

    def _learn(self) -> None:
        """Ids with the same name on the same connection stand for each other."""
        for peer in self.peers.values():
            (_, recorded), (_, live) = named(peer.recorded), named(peer.frames)
            for identifier, name in recorded.by_id.items():
                if name in live.by_name:
                    self.known[identifier] = live.by_name[name]
