"""A socket between a client and a daemon: whole and in order while it lasts, and what is under way is lost with it."""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from lodger_daemon.clients.connection import ClientConnection
from lodger_daemon.clients.errors import ClientCut
from simulation.world import World

if TYPE_CHECKING:
    from simulation.daemon import SimDaemon

Frame = dict[str, Any]


class Wire:
    """One connection. The client's side is `send`; frames for it arrive at `take`, its end at `lost`."""

    def __init__(
        self, world: World, daemon: "SimDaemon", take: Callable[[Frame], None], lost: Callable[[], None]
    ) -> None:
        self._world = world
        self._daemon = daemon
        self._take = take
        self._lost = lost
        self._up: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._last_up_s = self._last_down_s = 0.0
        self.broken = False
        self.silent = False
        """Half open: nothing arrives any more and nobody is told."""
        self.slowness = 1.0
        daemon.life.run(self._open)

    # -- the client's side --

    def send(self, frame: Frame) -> None:
        if self.broken or self.silent:
            return
        self._last_up_s = self._due(self._last_up_s)
        text = json.dumps(frame).encode()
        self._world.loop.call_at(self._last_up_s, self._arrive_up, text, context=self._daemon.life.context)

    def cut(self) -> None:
        """Both ends see it at once; what was under way is lost."""
        if self.broken:
            return
        self.broken = True
        self._up.put_nowait(None)
        self._world.later(self._world.between(0.001, 0.5), self._lost)

    # -- the daemon's side --

    def _open(self) -> None:
        self._connection: ClientConnection = self._daemon.router.open(self._send_down, "wire", local=True, cut=self.cut)
        self._daemon.own(self._read())

    def _arrive_up(self, frame: bytes) -> None:
        if not self.broken:
            self._up.put_nowait(frame)

    async def _read(self) -> None:
        try:
            while (frame := await self._up.get()) is not None:
                await self._connection.receive(frame)
        except ClientCut:
            self.cut()
        finally:
            await self._connection.close()

    async def _send_down(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._send_one_down(from_json(frame))

    def _send_one_down(self, parsed: Frame) -> None:
        if self.broken:
            raise ConnectionError("the socket is gone")
        self._daemon.watch(parsed)
        if self.silent:
            return
        self._last_down_s = self._due(self._last_down_s)
        self._world.loop.call_at(self._last_down_s, self._arrive_down, parsed, context=self._world.context)

    def _arrive_down(self, frame: Frame) -> None:
        if not self.broken and not self.silent:
            self._take(frame)

    def _due(self, last_s: float) -> float:
        """In order: behind the frame before it."""
        latency_s = self._world.between(0.0005, 0.08) * self.slowness
        return max(last_s + 1e-7, self._world.loop.time() + latency_s)
