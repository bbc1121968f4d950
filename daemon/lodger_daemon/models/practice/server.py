"""Serves the practice model as OpenAI chat completions over loopback HTTP: the dialect any other server speaks."""

import asyncio
import hmac
import json
from typing import Final

from lodger_daemon.models.core.json_fields import as_list, parse_object
from lodger_daemon.models.practice.core.brain import Call, Reply, Say, reply
from lodger_tools.json_value import Json, JsonObject

_HEAD_LIMIT_BYTES: Final = 32 * 1024
_BODY_LIMIT_BYTES: Final = 32 * 1024 * 1024
_IDLE_LIMIT_S: Final = 300.0
_PIECE_CHARS: Final = 24


class PracticeServer:
    """One HTTP/1.1 server with kept connections."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def start(self) -> tuple[asyncio.Server, str]:
        """Listen on a free loopback port; the server and its base address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD_LIMIT_BYTES)
        return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, TimeoutError, ValueError):
            # Whatever the other side did, this connection is of no more use.
            return
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        async with asyncio.timeout(_IDLE_LIMIT_S):
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            pairs = [line.partition(":") for line in lines if ":" in line]
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            length = int(headers.get("content-length") or 0)
            if not 0 <= length <= _BODY_LIMIT_BYTES:
                await _send(writer, 413, _error("The request is too large."))
                return False
            body = await reader.readexactly(length)
        method, path, _ = first.split(" ", 2)
        if not hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {self._token}".encode()):
            await _send(writer, 401, _error("This practice model serves its own daemon only."))
            return False
        if method == "GET" and path == "/v1/models":
            await _send(writer, 200, {"object": "list", "data": [{"id": "practice", "object": "model"}]})
        elif method == "POST" and path == "/v1/chat/completions":
            await _complete(writer, parse_object(body))
        else:
            await _send(writer, 404, _error("There is nothing at this address."))
        return True


async def _complete(writer: asyncio.StreamWriter, request: JsonObject | None) -> None:
    if request is None:
        await _send(writer, 400, _error("The body is not a JSON object."))
        return
    messages = as_list(request.get("messages"))
    answer = reply(messages, as_list(request.get("tools")))
    usage: JsonObject = {"prompt_tokens": len(json.dumps(messages)) // 4, "completion_tokens": _length(answer) // 4 + 1}
    call_number = sum(1 for message in messages if isinstance(message, dict) and message.get("tool_calls"))
    if not request.get("stream"):
        message, finish = _message(answer, call_number)
        await _send(
            writer, 200, {"choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}
        )
        return
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for delta, reason in _deltas(answer, call_number):
        _event(writer, json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}))
        await writer.drain()
    _event(writer, json.dumps({"choices": [], "usage": usage}))
    _event(writer, "[DONE]")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _deltas(answer: Reply, call_number: int) -> list[tuple[JsonObject, str | None]]:
    message, finish = _message(answer, call_number)
    if isinstance(answer, Call):
        calls = [{"index": 0, **call} for call in as_list(message["tool_calls"]) if isinstance(call, dict)]
        return [({"role": "assistant", "tool_calls": list(calls)}, None), ({}, finish)]
    text = answer.text
    deltas: list[tuple[JsonObject, str | None]] = [
        ({"content": text[i : i + _PIECE_CHARS]}, None) for i in range(0, len(text), _PIECE_CHARS)
    ]
    return [*deltas, ({}, finish)]


def _message(answer: Reply, call_number: int) -> tuple[JsonObject, str]:
    match answer:
        case Say(text):
            return {"role": "assistant", "content": text}, "stop"
        case Call(name, arguments):
            function: Json = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
            call: Json = {"id": f"call_practice_{call_number}", "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


def _length(answer: Reply) -> int:
    return len(answer.text) if isinstance(answer, Say) else len(json.dumps(answer.arguments))


def _event(writer: asyncio.StreamWriter, data: str) -> None:
    event = f"data: {data}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(event), event))


async def _send(writer: asyncio.StreamWriter, status: int, fields: JsonObject) -> None:
    body = json.dumps(fields).encode()
    reason = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}.get(status, "Error")
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


def _error(words: str) -> JsonObject:
    return {"error": {"message": words}}
