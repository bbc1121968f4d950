"""A conversation in a terminal whose daemon says what no daemon should, over a real socket."""

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest
from websockets.asyncio.server import ServerConnection, unix_serve

from lodger_cli.chat_prompt import ChatPrompt
from lodger_cli.chat_room import ChatRoom
from lodger_cli.runtime import Opened
from lodger_cli.wire import Frame, WireClient
from support.patience import LIMIT_S

RUNTIME: Frame = {"agent_id": "agent-1", "conversation_id": "default"}


class Thinking:
    """A person who has not decided yet what to type."""

    async def message(self) -> str | None:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


async def test_a_frame_that_cannot_be_shown_ends_the_chat_instead_of_leaving_it_deaf(tmp_path: Path) -> None:
    async def serve(socket: ServerConnection) -> None:
        await socket.send(json.dumps({"type": "control_request", "runtime": RUNTIME}))
        await socket.wait_closed()

    async with unix_serve(serve, str(tmp_path / "socket")):
        client = await WireClient.over_socket(tmp_path / "socket")
        room = ChatRoom(client, Opened(RUNTIME, "Lodger", "test/model"), cast("ChatPrompt", Thinking()))
        running = asyncio.create_task(room.run())
        ended, _ = await asyncio.wait({running}, timeout=LIMIT_S)
        running.cancel()
        await client.close()
    assert ended, "it goes on although nothing is shown any more"
    with pytest.raises(KeyError, match="request_id"):
        running.result()
