"""Joining fragments never changes their order or mixes requests."""

import asyncio
import json
import socket

from lodger_daemon.models.contract import ReasoningChunk, TextChunk, ToolCallChunk
from lodger_daemon.models.worker.outbox import Outbox


async def test_only_neighbours_of_one_kind_and_request_are_joined() -> None:
    ours, theirs = socket.socketpair()
    reader, closing = await asyncio.open_connection(sock=ours)
    _, writer = await asyncio.open_connection(sock=theirs)
    outbox = Outbox(writer)
    for number, chunk in (
        (1, TextChunk("a")),
        (1, TextChunk("b")),
        (2, TextChunk("x")),
        (1, TextChunk("c")),
        (1, ToolCallChunk(0, "i", "n", "{")),
        (1, ToolCallChunk(0, None, None, "}")),
        (1, ToolCallChunk(1, None, None, "{}")),
        (1, ReasoningChunk("r")),
        (1, ReasoningChunk("s", "sig")),
        (1, TextChunk("d")),
    ):
        outbox.put(number, chunk)
    await asyncio.sleep(0)
    writer.close()
    lines = [json.loads(line) for line in (await reader.read()).splitlines()]
    closing.close()
    assert lines == [
        [1, "t", "ab"],
        [2, "t", "x"],
        [1, "t", "c"],
        [1, "c", 0, "i", "n", "{}"],
        [1, "c", 1, None, None, "{}"],
        [1, "r", "r", None],
        [1, "r", "s", "sig"],
        [1, "t", "d"],
    ]


async def test_what_is_complete_is_written_at_once() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    _, writer = await asyncio.open_connection(sock=theirs)
    outbox = Outbox(writer)
    outbox.put(1, TextChunk("a"))
    outbox.flush()
    with ours:
        # No turn of the loop was between.
        assert ours.recv(64) == b'[1,"t","a"]\n'
        await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()
        assert ours.recv(64) == b"", "written once"
