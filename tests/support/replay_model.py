"""The model behind the recordings: an OpenAI chat endpoint in a process of its own that acts on words in a message.

    python tests/support/replay_model.py WORKSPACE   prints one line: {"url": "http://127.0.0.1:PORT", "port": PORT}

The newest user message decides: RUN_ECHO, RUN_TOUCH and RUN_SLEEP call the shell, RUN_WRITE writes a file in the
workspace, RUN_EXT calls a tool of the client, SLOW_TEXT answers a piece at a time, REASON thinks first, FAIL_ME is
refused with status 400, anything else is greeted. After a tool result it repeats that result.

SLOW_TEXT waits for leave: POST /leave {"pieces": N} lets the first N of its pieces out, so that a replay and not a
clock decides how much was said before the next thing happens. It ends when its standard input is closed.
"""

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

SLOW_PIECES = ("This ", "is ", "a ", "slow ", "reply. ") * 12
CALLS = {
    "RUN_ECHO": ("Bash", {"command": "echo hello-from-tool", "description": "Print a greeting"}),
    "RUN_TOUCH": ("Bash", {"command": "touch made-by-tool.txt && echo touched", "description": "Create a file"}),
    "RUN_SLEEP": (
        "Bash",
        {
            "command": 'python3 -c "import time; time.sleep(25)"; touch done.txt',
            "description": "Sleep for a while",
        },
    ),
    "RUN_EXT": ("lookup_weather", {"city": "Paris"}),
    "RUN_WRITE": ("Write", {"file_path": "WORKSPACE/notes/made-by-agent.txt", "content": "line one\nline two\n"}),
}
USAGE = {"prompt_tokens": 1200, "completion_tokens": 25, "total_tokens": 1225}
REFUSAL = {"error": {"message": "stub refused", "type": "invalid_request_error"}}
REQUEST_LIMIT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Reply:
    pieces: tuple[str, ...] = ()
    thoughts: tuple[str, ...] = ()
    tool: str = ""
    arguments: Json | None = None
    slow: bool = False
    refused: bool = False


def reply_to(messages: list[Json]) -> Reply:
    last = messages[-1]
    if last["role"] == "tool":
        return Reply(words(f"Tool said: {text_of(last['content'])}"))
    said = next(text_of(message["content"]) for message in reversed(messages) if message["role"] == "user")
    if "FAIL_ME" in said:
        return Reply(refused=True)
    if "SLOW_TEXT" in said:
        return Reply(SLOW_PIECES, slow=True)
    if "REASON" in said:
        return Reply(words("The answer is 42."), words("Thinking about the question. "))
    for word, (tool, arguments) in CALLS.items():
        if word in said:
            return Reply(tool=tool, arguments=arguments)
    return Reply(words("Hello from the stub model."))


def words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[^ ]+ ?", text))


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())


class Stub:
    def __init__(self) -> None:
        self.number = 0
        self.leave = 0
        self.leave_changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.one(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = re.search(r"content-length: *(\d+)", head, re.IGNORECASE)
        size = int(length[1]) if length else 0
        if size > REQUEST_LIMIT_BYTES:
            return False
        body = json.loads(await reader.readexactly(size)) if size else {}
        path = head.split(" ")[1]
        if path.endswith("/chat/completions"):
            return await self.answer(body, reader, writer)
        if path == "/leave":
            async with self.leave_changed:
                self.leave = body["pieces"]
                self.leave_changed.notify_all()
        models = {"object": "list", "data": [{"id": "stub-model", "object": "model"}]}
        whole(writer, 200, models if path.endswith("/models") else {})
        return True

    async def answer(self, body: Json, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        reply = reply_to(body["messages"])
        if reply.refused:
            whole(writer, 400, REFUSAL)
            return True
        self.number += 1
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        streaming = asyncio.ensure_future(self.stream(reply, self.number, writer))
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({streaming, gone}, return_when=asyncio.FIRST_COMPLETED)
        for task in (streaming, gone):
            task.cancel()
        await asyncio.gather(streaming, gone, return_exceptions=True)
        # One answer per connection keeps the watch for a client that leaves simple.
        return False

    async def stream(self, reply: Reply, number: int, writer: asyncio.StreamWriter) -> None:
        for piece, event in events_of(reply, number):
            if reply.slow:
                async with self.leave_changed:
                    await self.leave_changed.wait_for(lambda piece=piece: self.leave > piece)
            data = f"data: {event}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def events_of(reply: Reply, number: int) -> Iterator[tuple[int, str]]:
    """The stream's events, each with the number of the piece of text whose leave it needs."""

    def event(delta: Json, finish: str | None = None, usage: Json | None = None) -> str:
        choices = [] if usage else [{"index": 0, "delta": delta, "finish_reason": finish}]
        chunk = {"id": f"chat-{number}", "object": "chat.completion.chunk", "created": 0, "model": "stub-model"}
        return json.dumps({**chunk, "choices": choices, **({"usage": usage} if usage else {})})

    for thought in reply.thoughts:
        yield 0, event({"reasoning_content": thought})
    for index, piece in enumerate(reply.pieces):
        yield index, event({"content": piece})
    last = max(0, len(reply.pieces) - 1)
    if reply.arguments is not None:
        function = {
            "name": reply.tool,
            "arguments": json.dumps(reply.arguments, separators=(",", ":")).replace("WORKSPACE", sys.argv[1]),
        }
        call = {"index": 0, "id": f"call_stub_{number}_0", "type": "function", "function": function}
        yield last, event({"tool_calls": [call]})
    yield last, event({}, "tool_calls" if reply.tool else "stop")
    yield last, event({}, usage=USAGE)
    yield last, "[DONE]"


def whole(writer: asyncio.StreamWriter, status: int, value: Json) -> None:
    data = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} Stub\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)


async def main() -> None:
    stub = Stub()
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0, limit=1024 * 1024)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "port": port}), flush=True)
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    await stdin.read()
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
