"""One client of the link that sends more than the daemon can do: the others do not wait for it for long."""

import asyncio
from collections.abc import Callable

import pytest

from lodger_daemon.uplink.port import WAITING_FRAMES, ClientPort
from lodger_daemon.uplink.router import FramePeer, SendFrames
from support.patience import LIMIT_S


class StuckPeer:
    """Takes one frame and is never done with it."""

    async def receive(self, frame: bytes) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None: ...


class StuckRouter:
    def open(
        self,
        send: SendFrames,
        label: str,
        *,
        wire_name: str | None = None,
        device_id: str = "",
        cut: Callable[[], None] | None = None,
    ) -> FramePeer:
        return StuckPeer()


async def test_a_client_that_holds_up_the_link_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lodger_daemon.uplink.port.HOLD_UP_LIMIT_S", 0.05)
    given_up = asyncio.Event()

    async def send(frame: bytes) -> None: ...

    async def give_up() -> None:
        given_up.set()

    port = ClientPort(StuckRouter(), "client-1", None, send, give_up)
    try:
        async with asyncio.timeout(LIMIT_S):
            for _ in range(WAITING_FRAMES + 3):
                await port.put(b"{}")
            await given_up.wait()
    finally:
        await port.aclose()
