"""A model provider for tests: real HTTP in a process of its own, scripted by whoever talks to it.

    python tests/support/model_endpoint.py --port 0     prints one line: {"url": "http://127.0.0.1:PORT", "port": PORT}

It speaks OpenAI chat completions (`POST /v1/chat/completions`), Anthropic messages (`POST /v1/messages`) and Ollama's
own chat (`POST /api/chat`, `POST /api/show`), streamed or whole, and lists models (`GET /v1/models`, `GET /api/tags`).
With `--ollama` its chat completions have Ollama's habits: no cached tokens, calls whole, errors of its kind. It ends
when its standard input is closed (`--stay` switches that off), or by a signal. Standard library only.

The script is the newest user message that holds one, between `<<` and `>>`; its text around that does not matter:

    Please do it. <<{"steps": [{"calls": [{"name": "Bash", "arguments": {"command": "ls"}}]}, {"text": "done"}]}>>

`steps` are the answers to the requests that follow this message, in order: the step reached is the number of assistant
messages after it. Beyond the last step, and without a script, the answer is the text "ok". `--script FILE` gives a
script for requests without one. A step's keys, all optional:

    text         what is said                           chunks     number of pieces it is cut into (default 3)
    numbered     say this many chunks "w0 ", "w1 ", …   reasoning  thought before it (with a signature where known)
    calls        list of {"name", "arguments", "id"}; arguments may be a string, sent as it is
    finish       the finish reason, in the dialect's own words; null sends none
    usage        false sends none; an object is sent as it is
    first_ms     wait before the first chunk            delay_ms   wait before every chunk
    fault        {"status": 429, "message", "type", "code", "retry_after": "7"}   an error instead of an answer
    fault_times  the fault happens for the first N requests of this script and step only (default: always)
    cut_after    break the connection after N chunks
    hang_after   send nothing more after N chunks, until the client goes
    error_after  send an error object in the stream after N chunks: uses `fault`
    refuse       a field of the request: while it is there, the answer is 400 and names it
    redirect     an address to which the client is sent, the path added
    quirk        "html": a web page; "no_done": the stream ends without its mark; "no_index": calls without index;
                 "late_id": arguments before id and name; "split": every write is cut into single bytes;
                 "whole": an answer in one piece although a stream was asked for; "error_200": the fault, as an
                 object with status 200; "wrong_type": a stream that calls itself text/html

With `--hold-window` a request of more bytes than four for each token of `--window` is refused, one of less is told so
in its usage. `--without-tools TEXT` is the answer to requests that offer no tools, such as those for a summary.

What it saw is at GET /requests (JSON list: number, path, headers, body, raw, state; state is "answering", "answered",
"gone" when the client left first, or "fault") and POST /reset empties it. GET /open is the number of answers under way.
"""

import argparse
import asyncio
import json
import pathlib
import re
import signal
import sys
from typing import Any

SCRIPT = re.compile(r"<<(\{.*?\})>>", re.DOTALL)


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return ""


def step_for(messages: list[dict[str, Any]], fallback: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The step of the script that these messages have reached, and what names it."""
    script, start = fallback, -1
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "user" and (found := SCRIPT.findall(text_of(messages[index].get("content")))):
            script, start = json.loads(found[-1]), index
            break
    number = sum(1 for message in messages[start + 1 :] if message.get("role") == "assistant")
    steps = script.get("steps") or []
    step = steps[number] if number < len(steps) else {"text": "ok", "chunks": 1}
    return step, f"{json.dumps(script, sort_keys=True)}#{number}"


def pieces_of(step: dict[str, Any]) -> list[str]:
    if "numbered" in step:
        return [f"w{number} " for number in range(step["numbered"])]
    text = step.get("text", "")
    size = max(1, -(-len(text) // step.get("chunks", 3)))
    return [text[start : start + size] for start in range(0, len(text), size)]


def arguments_of(call: dict[str, Any]) -> str:
    arguments = call.get("arguments", {})
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def openai_events(step: dict[str, Any], number: int, include_usage: bool) -> list[str]:
    quirk = step.get("quirk")
    base = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}

    def delta(fields: dict[str, Any], finish: str | None = None) -> str:
        return json.dumps({**base, "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})

    events = [delta({"role": "assistant", "content": ""})]
    if step.get("reasoning"):
        events.append(delta({"reasoning_content": step["reasoning"]}))
    events += [delta({"content": piece}) for piece in pieces_of(step)]
    for index, call in enumerate(step.get("calls", [])):
        text, half = arguments_of(call), len(arguments_of(call)) // 2
        call_id = call.get("id", f"call_{number}_{index}")
        place = {} if quirk == "no_index" else {"index": index}
        named = {"id": call_id, "type": "function"}
        if quirk == "no_index":
            events.append(delta({"tool_calls": [{**named, "function": {"name": call["name"], "arguments": text}}]}))
        elif quirk == "late_id":
            events.append(delta({"tool_calls": [{**place, "function": {"arguments": text[:half]}}]}))
            last = {**place, **named, "function": {"name": call["name"], "arguments": text[half:]}}
            events.append(delta({"tool_calls": [last]}))
        else:
            events.append(
                delta({"tool_calls": [{**place, **named, "function": {"name": call["name"], "arguments": ""}}]})
            )
            for part in (text[:half], text[half:]):
                events.append(delta({"tool_calls": [{**place, "function": {"arguments": part}}]}))
    finish = step.get("finish", "tool_calls" if step.get("calls") else "stop")
    if finish is not None:
        events.append(delta({}, finish))
    usage = step.get("usage", {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107,
                               "prompt_tokens_details": {"cached_tokens": 64}})  # fmt: skip
    if usage and include_usage:
        events.append(json.dumps({**base, "choices": [], "usage": usage}))
    return events


def openai_whole(step: dict[str, Any], number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(pieces_of(step)) or None}
    if calls := step.get("calls"):
        message["tool_calls"] = [
            {"id": call.get("id", f"call_{number}_{i}"), "type": "function",
             "function": {"name": call["name"], "arguments": arguments_of(call)}}
            for i, call in enumerate(calls)
        ]  # fmt: skip
    finish = step.get("finish", "tool_calls" if step.get("calls") else "stop")
    usage = step.get("usage", {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107})
    return {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 0, "model": "scripted", "usage": usage,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}]}  # fmt: skip


def anthropic_events(step: dict[str, Any], number: int) -> list[str]:
    usage = {"input_tokens": 6, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 30, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if reasoning := step.get("reasoning"):
        deltas = [{"type": "thinking_delta", "thinking": reasoning}, {"type": "signature_delta", "signature": "c2ln"}]
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
    if pieces := pieces_of(step):
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]))
    for index, call in enumerate(step.get("calls", [])):
        text, half = arguments_of(call), len(arguments_of(call)) // 2
        head = {"type": "tool_use", "id": call.get("id", f"call_{number}_{index}"), "name": call["name"], "input": {}}
        blocks.append((head, [{"type": "input_json_delta", "partial_json": p} for p in ("", text[:half], text[half:])]))
    for index, (head, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": head})
        events += [{"type": "content_block_delta", "index": index, "delta": part} for part in deltas]
        events.append({"type": "content_block_stop", "index": index})
    finish = step.get("finish", "tool_use" if step.get("calls") else "end_turn")
    if finish is not None:
        end = {"stop_reason": finish, "stop_sequence": None}
        events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 7}})
    return [json.dumps(event) for event in events]


def anthropic_whole(step: dict[str, Any], number: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if (text := "".join(pieces_of(step))) else []
    content += [
        {"type": "tool_use", "id": call.get("id", f"call_{number}_{i}"), "name": call["name"],
         "input": json.loads(arguments_of(call))}
        for i, call in enumerate(step.get("calls", []))
    ]  # fmt: skip
    finish = step.get("finish", "tool_use" if step.get("calls") else "end_turn")
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": content,
            "stop_reason": finish, "usage": {"input_tokens": 100, "output_tokens": 7}}  # fmt: skip


def ollama_events(step: dict[str, Any]) -> list[str]:
    base = {"model": "scripted", "created_at": "2026-11-30T00:00:00Z"}

    def line(message: dict[str, Any], **more: Any) -> str:
        return json.dumps({**base, "message": {"role": "assistant", "content": "", **message}, "done": False, **more})

    events = [line({"thinking": step["reasoning"]})] if step.get("reasoning") else []
    events += [line({"content": piece}) for piece in pieces_of(step)]
    for call in step.get("calls", []):
        function = {"name": call["name"], "arguments": json.loads(arguments_of(call))}
        events.append(line({"tool_calls": [{"function": function}]}))
    counts = {"prompt_eval_count": 100, "eval_count": 7, "total_duration": 1, "load_duration": 1}
    return [*events, line({}, done=True, done_reason=step.get("finish", "stop"), **counts)]


def as_ollama(events: list[str]) -> list[str]:
    """The same chat completion as Ollama's second dialect has it."""
    shaped, calls = [], []
    for event in map(json.loads, events):
        choices = event.get("choices") or [{"delta": {}}]
        delta = choices[0]["delta"]
        if "reasoning_content" in delta:
            delta["reasoning"] = delta.pop("reasoning_content")
        if event.get("usage"):
            event["usage"].pop("prompt_tokens_details", None)
        for fragment in delta.pop("tool_calls", []):
            if "id" in fragment:
                calls.append({**fragment, "function": {**fragment["function"], "arguments": ""}})
            calls[-1]["function"]["arguments"] += fragment["function"].get("arguments", "")
        if calls and choices[0].get("finish_reason"):
            shaped.append({**event, "choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}]})
        shaped.append(event)
    return [json.dumps(event) for event in shaped]


def error_body(fault: dict[str, Any], is_anthropic: bool) -> dict[str, Any]:
    error = {key: fault[key] for key in ("message", "type", "code", "param") if key in fault}
    error.setdefault("message", "scripted fault")
    error.setdefault("type", "api_error")
    return {"type": "error", "error": error} if is_anthropic else {"error": error}


class Endpoint:
    def __init__(
        self, models: list[dict[str, Any]], fallback: dict[str, Any], is_ollama: bool, window: int, props: int
    ) -> None:
        self.models = models
        self.is_ollama = is_ollama
        self.window = window
        self.props = props
        self.holds_window = False
        self.without_tools = ""
        self.fallback = fallback
        self.requests: list[dict[str, Any]] = []
        self.faults: dict[str, int] = {}
        self.open = 0
        self.number = 0

    def held(self, step: dict[str, Any], tokens: int) -> dict[str, Any]:
        """The step as a model with this window takes it."""
        if tokens < self.window:
            return {"usage": {"prompt_tokens": tokens, "completion_tokens": 7, "total_tokens": tokens + 7}, **step}
        words = f"This model's maximum context length is {self.window} tokens, but the request has {tokens}."
        return {"fault": {"status": 400, "code": "context_length_exceeded", "message": words}}

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ")
        headers = {n.strip().lower(): v.strip() for n, _, v in (line.partition(":") for line in lines if ":" in line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path = path.partition("?")[0]
        match method, path:
            case "GET", "/requests":
                self.whole(writer, 200, self.requests)
            case "GET", "/open":
                self.whole(writer, 200, self.open)
            case "POST", "/reset":
                self.requests.clear()
                self.faults.clear()
                self.whole(writer, 200, {})
            case "GET", "/v1/models":
                self.whole(writer, 200, {"object": "list", "data": self.models})
            case "GET", "/api/tags" if self.is_ollama:
                self.whole(
                    writer, 200, {"models": [{"name": model["id"], "model": model["id"]} for model in self.models]}
                )
            case "POST", "/api/show" if self.is_ollama:
                details = {"model_info": {"general.architecture": "scripted", "scripted.context_length": self.window}}
                details |= {"capabilities": ["completion", "tools", "thinking"], "template": "{{ .Tools }}"}
                details |= {"parameters": 'temperature 0.7\nnum_ctx 6144\nstop "<|end|>"'}
                self.whole(writer, 200, details)
            case "GET", "/props" if self.props:
                self.whole(writer, 200, {"default_generation_settings": {"n_ctx": self.props}, "total_slots": 1})
            case "POST", "/v1/chat/completions" | "/v1/messages" | "/api/chat":
                return await self.answer(path, headers, body, reader, writer)
            case _:
                self.whole(writer, 404, {"error": {"message": f"nothing at {path}", "type": "not_found"}})
        await writer.drain()
        return True

    def whole(self, writer: asyncio.StreamWriter, status: int, value: Any, extra: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        lines = [f"HTTP/1.1 {status} Scripted", "content-type: application/json", f"content-length: {len(data)}"]
        lines += [f"{name}: {text}" for name, text in (extra or {}).items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)

    async def answer(
        self,
        path: str,
        headers: dict[str, str],
        raw: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        self.number += 1
        body: dict[str, Any] = json.loads(raw)
        record = {"number": self.number, "path": path, "headers": headers, "body": body, "state": "answering"}
        record["raw"] = raw.decode()
        self.requests.append(record)
        is_anthropic = path == "/v1/messages"
        step, name = step_for(body.get("messages", []), self.fallback)
        if self.without_tools and not body.get("tools"):
            step, name = {"text": self.without_tools}, "without tools"
        if self.holds_window:
            step = self.held(step, len(raw) // 4)
        fault = step.get("fault")
        if (refused := step.get("refuse")) in body:
            words = f"Unsupported parameter: '{refused}' is not supported here."
            fault = {"status": 400, "type": "invalid_request_error", "message": words}
        if redirect := step.get("redirect"):
            self.whole(writer, 307, {}, {"location": redirect + path})
            record["state"] = "answered"
            await writer.drain()
            return True
        if step.get("quirk") == "error_200":
            self.whole(writer, 200, error_body(step["fault"], is_anthropic))
            record["state"] = "fault"
            await writer.drain()
            return True
        if fault and "error_after" not in step and self.faults.get(name, 0) < step.get("fault_times", 10**9):
            self.faults[name] = self.faults.get(name, 0) + 1
            extra = {"retry-after": fault["retry_after"]} if "retry_after" in fault else None
            shown = error_body(fault, is_anthropic)
            if path == "/api/chat":
                shown = {"error": shown["error"]["message"]}
            self.whole(writer, fault.get("status", 500), shown, extra)
            record["state"] = "fault"
            await writer.drain()
            return True
        if step.get("quirk") == "html":
            page = b"<!DOCTYPE html><html><body>Welcome</body></html>"
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(page) + page)
            record["state"] = "answered"
            await writer.drain()
            return True
        if not body.get("stream") or step.get("quirk") == "whole":
            number = self.number
            self.whole(writer, 200, anthropic_whole(step, number) if is_anthropic else openai_whole(step, number))
            record["state"] = "answered"
            await writer.drain()
            return True
        self.open += 1
        stream = asyncio.ensure_future(self.stream(step, body, path, writer))
        try:
            # A client that leaves is noticed while we wait, as at a real provider; nothing it sends is consumed.
            while not stream.done() and not reader.at_eof():
                await asyncio.wait({stream}, timeout=0.01)
            if not stream.done():
                record["state"] = "gone"
                return False
            record["state"] = "answered" if stream.result() else "cut"
            return stream.result()
        finally:
            self.open -= 1
            stream.cancel()
            await asyncio.gather(stream, return_exceptions=True)

    async def stream(self, step: dict[str, Any], body: dict[str, Any], path: str, writer: asyncio.StreamWriter) -> bool:
        """False when the connection was broken on purpose."""
        is_anthropic, is_lines = path == "/v1/messages", path == "/api/chat"
        if is_lines:
            events, last = ollama_events(step), ""
        elif is_anthropic:
            events = anthropic_events(step, self.number)
            last = "" if step.get("quirk") == "no_done" else '{"type": "message_stop"}'
        else:
            events = openai_events(step, self.number, bool((body.get("stream_options") or {}).get("include_usage")))
            events = as_ollama(events) if self.is_ollama else events
            last = "" if step.get("quirk") == "no_done" else "[DONE]"
        kind = "application/x-ndjson" if is_lines else "text/event-stream; charset=utf-8"
        kind = "text/html" if step.get("quirk") == "wrong_type" else kind
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n".encode())
        writer.write(b"transfer-encoding: chunked\r\n\r\n")
        await asyncio.sleep(step.get("first_ms", 0) / 1000)
        for index, scripted in enumerate([*events, last] if last else events):
            event = scripted
            if step.get("cut_after") == index:
                await writer.drain()
                writer.transport.close()
                return False
            if step.get("hang_after") == index:
                await writer.drain()
                await asyncio.Event().wait()
            if step.get("error_after") == index:
                shown = error_body(step.get("fault", {}), is_anthropic)
                event = json.dumps({"error": shown["error"]["message"]} if is_lines else shown)
            if delay_ms := step.get("delay_ms"):
                await asyncio.sleep(delay_ms / 1000)
            kind = f"event: {json.loads(event).get('type', 'message')}\n" if is_anthropic else ""
            data = f"{event}\n".encode() if is_lines else f"{kind}data: {event}\n\n".encode()
            for part in [bytes([byte]) for byte in data] if step.get("quirk") == "split" else [data]:
                writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            if index % 16 == 15 or delay_ms:
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model provider for tests.")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--models", default="scripted", help="comma-separated names for /v1/models")
    parser.add_argument("--window", type=int, default=200_000, help="context window to state there; 0 states none")
    parser.add_argument("--hold-window", action="store_true", help="refuse what does not fit into the window")
    parser.add_argument("--without-tools", default="", help="the answer to requests that offer no tools")
    parser.add_argument("--script", help="a file with the script for requests that bring none")
    parser.add_argument("--props", type=int, default=0, help="context window to state at /props, as llama.cpp does")
    parser.add_argument("--ollama", action="store_true", help="have Ollama's habits and routes")
    parser.add_argument("--stay", action="store_true", help="do not end when standard input is closed")
    options = parser.parse_args()
    fallback: dict[str, Any] = {}
    if options.script:
        fallback = json.loads(pathlib.Path(options.script).read_text(encoding="utf-8"))
    window = {"context_length": options.window} if options.window else {}
    models = [{"id": name, "object": "model", **window} for name in options.models.split(",")]
    endpoint = Endpoint(models, fallback, options.ollama, options.window, options.props)
    endpoint.holds_window, endpoint.without_tools = options.hold_window, options.without_tools
    server = await asyncio.start_server(endpoint.connection, "127.0.0.1", options.port, limit=64 * 2**20)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "port": port}), flush=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if not options.stay:
        stdin = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
        asyncio.ensure_future(stdin.read()).add_done_callback(lambda _: stop.set())
    await stop.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
