"""A client of protocol v2 that times what it sees. It knows nothing of which server answers."""

import asyncio
import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

Frame = dict[str, Any]
Runtime = dict[str, str]

WORD: Final = re.compile(r"w(\d{5}) ")
REQUEST_LIMIT_S: Final = 60.0


class BenchmarkError(Exception):
    """A server did not do what the scenario needs; the text says what."""


@dataclass(slots=True)
class Turn:
    """One turn as the client saw it. Times in nanoseconds of CLOCK_MONOTONIC; 0 where nothing came."""

    tag: str
    sent_ns: int = 0
    accepted_ns: int = 0
    finished_ns: int = 0
    stop_reason: str = ""
    error: str = ""
    words: list[tuple[int, int]] = field(default_factory=list)
    """When each numbered word of the model arrived."""
    frames: Counter[str] = field(default_factory=Counter)
    bytes_received: int = 0
    failed_tools: list[str] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def wall_ms(self) -> float:
        return (self.finished_ns - self.sent_ns) / 1e6


class WireClient:
    """One socket; the turns of many conversations at once."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._answers: dict[str, asyncio.Future[Frame]] = {}
        self._turns: dict[str, Turn] = {}
        self._counter = 0
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def connected(cls, url: str) -> Self:
        return cls(await connect(url, max_size=None, ping_interval=None, compression=None, proxy=None))

    async def aclose(self) -> None:
        await self._socket.close()
        await self._reader

    async def start(self, folder: str, model: str, agent_id: str | None, mode: str) -> tuple[Runtime, float]:
        """Make a conversation, and without an agent's id an agent for it. Returns it and the milliseconds it took."""
        frame: Frame = {
            "type": "runtime_start",
            "request_id": self._next_id(),
            "create_conversation": {"body": {}},
            "cwd": folder,
            "mode": mode,
            "client_info": {"name": "bench", "version": "1"},
        }
        if agent_id is None:
            frame["create_agent"] = {"body": {"name": "bench", "model": model}, "pin_global": False}
        else:
            frame["agent_id"] = agent_id
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._answers[frame["request_id"]] = answer
        began_ns = time.monotonic_ns()
        await self._socket.send(json.dumps(frame))
        reply = await asyncio.wait_for(answer, REQUEST_LIMIT_S)
        took_ms = (time.monotonic_ns() - began_ns) / 1e6
        if not reply.get("success"):
            raise BenchmarkError(f"runtime_start failed: {reply.get('error')}")
        return reply["runtime"], took_ms

    async def turn(self, runtime: Runtime, script: Frame, limit_s: float) -> Turn:
        """Play one scripted turn to its end. Raises: BenchmarkError if it ends in any other way than `end_turn`."""
        turn = Turn(self._next_id())
        self._turns[runtime["conversation_id"]] = turn
        text = f"<<script {json.dumps({'tag': turn.tag} | script)}>>"
        message = {"role": "user", "content": text, "client_message_id": turn.tag}
        payload = {"kind": "create_message", "messages": [message]}
        data = json.dumps({"type": "input", "request_id": turn.tag, "runtime": runtime, "payload": payload})
        turn.sent_ns = time.monotonic_ns()
        await self._socket.send(data)
        try:
            await asyncio.wait_for(turn.done.wait(), limit_s)
        except TimeoutError:
            raise BenchmarkError(f"no turn_finished within {limit_s:.0f} s; frames: {dict(turn.frames)}") from None
        if turn.stop_reason != "end_turn":
            raise BenchmarkError(f"the turn ended with {turn.stop_reason or 'no stop reason'}: {turn.error}")
        if turn.failed_tools:
            raise BenchmarkError(f"a tool failed: {turn.failed_tools[0]}")
        return turn

    def _next_id(self) -> str:
        self._counter += 1
        return f"b{time.monotonic_ns():x}-{self._counter}"

    async def _read(self) -> None:
        try:
            async for data in self._socket:
                if (reply := self._take(data, time.monotonic_ns())) is not None:
                    await self._socket.send(json.dumps(reply))
        except ConnectionClosed:
            pass
        for turn in self._turns.values():
            turn.error = turn.error or "the server closed the connection"
            turn.done.set()

    def _take(self, data: str | bytes, at_ns: int) -> Frame | None:
        """Note what a frame says. Returns the answer to send, when it asks for one."""
        frame: Frame = json.loads(data)
        answer = self._answers.pop(frame.get("request_id", ""), None)
        if answer is not None and not answer.done():
            answer.set_result(frame)
        runtime = frame.get("runtime") or {}
        turn = self._turns.get(runtime.get("conversation_id", ""))
        if turn is None:
            return None
        kind = frame["type"]
        turn.bytes_received += len(data)
        turn.frames[kind] += 1
        match kind:
            case "stream_delta":
                self._take_delta(turn, frame["delta"], at_ns)
            case "control_request":
                decision = {
                    "kind": "approval_response",
                    "request_id": frame["request_id"],
                    "decision": {"behavior": "allow"},
                }
                return {"type": "input", "runtime": runtime, "payload": decision}
            case "input_accepted" if frame.get("request_id") == turn.tag:
                turn.accepted_ns = at_ns
                if not frame.get("accepted"):
                    turn.error = f"not accepted: {frame.get('error')}"
                    turn.done.set()
            case "turn_finished":
                turn.finished_ns = at_ns
                turn.stop_reason = frame.get("stop_reason") or ""
                turn.error = turn.error or frame.get("error") or ""
                turn.done.set()
        return None

    @staticmethod
    def _take_delta(turn: Turn, delta: Frame, at_ns: int) -> None:
        kind = delta.get("message_type")
        turn.frames[f"delta {kind}"] += 1
        if kind == "assistant_message":
            content = delta.get("content") or ""
            text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
            turn.words.extend((at_ns, int(number)) for number in WORD.findall(text))
        elif kind == "loop_error":
            turn.error = turn.error or delta.get("message") or ""
        elif kind == "tool_return_message" and delta.get("status") == "error":
            turn.failed_tools.append(str(delta.get("tool_return"))[:200])
