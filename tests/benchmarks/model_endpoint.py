"""A scripted model in a process of its own: OpenAI chat completions over loopback HTTP, streamed at once.

The newest user message that holds `<<script {…}>>` says what to answer; which step is due is the number of assistant
messages with tool calls after it. So the endpoint keeps no state of a conversation, and any number may run at once.

    {"tag": "t7", "chunks": 20, "pause_ms": 0, "steps": [[{"tool": "shell", "arguments": {"command": "echo hi"}}]]}

`tool` is a role (shell, read, write); it becomes whichever of the offered tools plays it. Without a script the answer
is one word, which serves probes, titles and summaries. `GET /records?tag=T` gives the times of that tag's requests:
head read, last byte about to be written, and each content chunk, in nanoseconds of CLOCK_MONOTONIC, which all
processes share.

Run as `python model_endpoint.py`; the first line on standard output is the port. It ends with its standard input.
"""

import asyncio
import json
import re
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]

SCRIPT: Final = re.compile(r"<<script (\{.*?\})>>", re.DOTALL)
BODY_LIMIT_BYTES: Final = 64 * 1024 * 1024
HEAD_LIMIT_BYTES: Final = 64 * 1024
ARGUMENT_PIECE_CHARACTERS: Final = 64
"""Providers stream the arguments of a call in pieces of about this size."""
CHUNKS_BETWEEN_DRAINS: Final = 8

ROLES: Final[dict[str, dict[str, dict[str, str]]]] = {
    "shell": {
        "Bash": {"command": "command"},
        "exec_command": {"command": "cmd"},
        "shell_command": {"command": "command"},
        "run_shell_command": {"command": "command"},
    },
    "read": {"Read": {"path": "file_path"}, "read_file": {"path": "file_path"}},
    "write": {
        "Write": {"path": "file_path", "content": "content"},
        "write_file": {"path": "file_path", "content": "content"},
    },
}
"""role -> the tools that can play it, best first -> how each names the role's arguments."""


@dataclass(slots=True)
class Record:
    """One request, as it went by. Times in nanoseconds of CLOCK_MONOTONIC."""

    step: int
    head_ns: int
    last_ns: int = 0
    chunks_ns: list[int] = field(default_factory=list)
    request_bytes: int = 0
    messages: int = 0
    tools: list[str] = field(default_factory=list)


def text_of(content: object) -> str:
    """The text of a message's content, which is a string or a list of parts."""
    if isinstance(content, list):
        return "\n".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def due(messages: list[Json]) -> tuple[Json, int]:
    """The newest script and the step of it that is due; an empty script where there is none."""
    calls_since = 0
    for message in reversed(messages):
        if message.get("role") == "assistant" and message.get("tool_calls"):
            calls_since += 1
        elif message.get("role") == "user" and (found := SCRIPT.findall(text_of(message.get("content")))):
            script: Json = json.loads(found[-1])
            return script, calls_since
    return {}, 0


def played(call: Json, offered: dict[str, Json]) -> tuple[str, Json]:
    """The offered tool for a scripted call, with its arguments; required texts not scripted are filled in."""
    name, arguments = call["tool"], dict(call["arguments"])
    for candidate, names in ROLES.get(name, {}).items():
        if candidate in offered:
            name, arguments = candidate, {names[key]: value for key, value in arguments.items()}
            break
    schema = offered.get(name, {}).get("parameters", {})
    for needed in schema.get("required", []):
        if schema.get("properties", {}).get(needed, {}).get("type") == "string":
            arguments.setdefault(needed, "benchmark")
    return name, arguments


def tool_call_deltas(tag: str, step: int, calls: list[Json], offered: dict[str, Json]) -> list[Json]:
    """The deltas that stream these calls: a head with id and name, then the arguments in pieces."""
    deltas: list[Json] = []
    for index, call in enumerate(calls):
        name, arguments = played(call, offered)
        head = {"index": index, "id": f"call_{tag}_{step}_{index}", "type": "function"}
        deltas.append({"tool_calls": [head | {"function": {"name": name, "arguments": ""}}]})
        text = json.dumps(arguments)
        deltas.extend(
            {"tool_calls": [{"index": index, "function": {"arguments": text[at : at + ARGUMENT_PIECE_CHARACTERS]}}]}
            for at in range(0, len(text), ARGUMENT_PIECE_CHARACTERS)
        )
    return deltas


class Endpoint:
    """Serves the model and what it recorded."""

    def __init__(self) -> None:
        self._records: defaultdict[str, list[Record]] = defaultdict(list)
        self._open: dict[asyncio.StreamWriter, asyncio.Task[Any]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept alive until the other side closes it."""
        writer.transport.set_write_buffer_limits(high=0)  # drain then waits until the kernel has everything
        task = asyncio.current_task()
        assert task is not None
        self._open[writer] = task
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                head_ns = time.monotonic_ns()
                request_line, *lines = head.decode("latin-1").split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(min(int(headers.get("content-length", "0")), BODY_LIMIT_BYTES))
                method, target, _ = request_line.split(" ", 2)
                if method == "POST" and target.endswith("/chat/completions"):
                    await self._complete(json.loads(body), len(body), head_ns, writer)
                else:
                    self._answer(writer, self._look_up(target))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            del self._open[writer]
            writer.close()

    async def aclose(self) -> None:
        """End every connection that clients still keep."""
        tasks = list(self._open.values())
        for writer in self._open:
            writer.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look_up(self, target: str) -> Json:
        address = urlsplit(target)
        if address.path.endswith("/records"):
            tag = parse_qs(address.query).get("tag", [""])[0]
            return {"records": [asdict(record) for record in self._records.get(tag, [])]}
        if address.path.endswith("/models"):
            model = {
                "id": "stub-model",
                "object": "model",
                "created": 0,
                "owned_by": "bench",
                "context_length": 200_000,
            }
            return {"object": "list", "data": [model]}
        return {}

    @staticmethod
    def _answer(writer: asyncio.StreamWriter, body: Json) -> None:
        data = json.dumps(body).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)

    async def _complete(self, request: Json, size_bytes: int, head_ns: int, writer: asyncio.StreamWriter) -> None:
        messages = request.get("messages", [])
        offered = {tool["function"]["name"]: tool["function"] for tool in request.get("tools", [])}
        script, step = due(messages)
        record = Record(step, head_ns, request_bytes=size_bytes, messages=len(messages), tools=sorted(offered))
        self._records[script.get("tag", "")].append(record)
        steps = script.get("steps", [])
        calls = steps[step] if step < len(steps) else []
        words = [f"w{number:05d} " for number in range(script.get("chunks", 3))] if script else ["ok"]
        usage = {"prompt_tokens": size_bytes // 4, "completion_tokens": len(words)}
        usage["total_tokens"] = sum(usage.values())
        if not request.get("stream"):
            record.last_ns = time.monotonic_ns()
            choice = {"index": 0, "message": {"role": "assistant", "content": "".join(words)}, "finish_reason": "stop"}
            self._answer(writer, {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        stream = Stream(writer, record)
        if calls:
            await stream.deltas(tool_call_deltas(script["tag"], step, calls, offered))
        else:
            await stream.words(words, script.get("pause_ms", 0) / 1000)
        await stream.end("tool_calls" if calls else "stop", usage)


class Stream:
    """One streamed reply, as server-sent events in HTTP chunks, with the time of each."""

    def __init__(self, writer: asyncio.StreamWriter, record: Record) -> None:
        self._writer = writer
        self._record = record
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(_event(_choice({"role": "assistant", "content": ""})))

    async def deltas(self, deltas: list[Json]) -> None:
        for delta in deltas:
            self._writer.write(_event(_choice(delta)))
        await self._writer.drain()

    async def words(self, words: list[str], pause_s: float) -> None:
        """Send each word as a chunk. With a pause, against the start, so that late wake-ups do not add up."""
        start = time.monotonic()
        for number, word in enumerate(words):
            if pause_s:
                await asyncio.sleep(max(0.0, start + (number + 1) * pause_s - time.monotonic()))
            self._record.chunks_ns.append(time.monotonic_ns())
            self._writer.write(_event(_choice({"content": word})))
            if pause_s or number % CHUNKS_BETWEEN_DRAINS == 0:
                await self._writer.drain()

    async def end(self, reason: str, usage: Json) -> None:
        """Finish reason, usage and end mark go out in one write: no matter which of them a client acts on."""
        last = _event(_choice({}, reason)) + _event(_chunk([], usage)) + _frame(b"[DONE]") + b"0\r\n\r\n"
        await self._writer.drain()
        self._record.last_ns = time.monotonic_ns()
        self._writer.write(last)


def _choice(delta: Json, reason: str | None = None) -> Json:
    return _chunk([{"index": 0, "delta": delta, "finish_reason": reason}], None)


def _chunk(choices: list[Json], usage: Json | None) -> Json:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "stub-model", "choices": choices}
    return chunk if usage is None else chunk | {"usage": usage}


def _event(payload: Json) -> bytes:
    return _frame(json.dumps(payload).encode())


def _frame(data: bytes) -> bytes:
    return b"%x\r\ndata: %b\n\n\r\n" % (len(data) + len(b"data: \n\n"), data)


async def main() -> None:
    endpoint = Endpoint()
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0, limit=HEAD_LIMIT_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()
    await endpoint.aclose()


if __name__ == "__main__":
    asyncio.run(main())
