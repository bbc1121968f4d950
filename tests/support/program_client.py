"""A client of protocol v2 that remembers every frame, in order, for tests with real processes."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed

from support.patience import LIMIT_S

Frame = dict[str, Any]


class Gone(Exception):
    """The connection closed before what was waited for came."""


class Client:
    """One connection. `frames` only grows; waits look at what has come and at what comes."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.frames: list[Frame] = []
        self.closed = False
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def send(self, frame: Frame) -> None:
        """Raises: Gone."""
        try:
            await self._socket.send(json.dumps(frame))
        except (ConnectionClosed, OSError) as error:
            raise Gone(str(error)) from error

    async def request(self, frame: Frame, limit_s: float = LIMIT_S) -> Frame:
        """Raises: Gone."""
        request_id = str(uuid.uuid4())
        after = len(self.frames)
        await self.send({**frame, "request_id": request_id})
        return await self.wait(lambda got: got.get("request_id") == request_id, after, limit_s)

    async def wait(self, wanted: Callable[[Frame], bool], after: int = 0, limit_s: float = LIMIT_S) -> Frame:
        """The first frame from number `after` on that is wanted. Raises: Gone; AssertionError when it never comes."""
        looked_at = after
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    self._news.clear()
                    while looked_at < len(self.frames):
                        frame = self.frames[looked_at]
                        looked_at += 1
                        if wanted(frame):
                            return frame
                    if self.closed:
                        raise Gone("the connection was closed")
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"no such frame came; the last were {self.frames[-8:]}") from None

    def of(self, kind: str, after: int = 0) -> list[Frame]:
        return [frame for frame in self.frames[after:] if frame.get("type") == kind]

    async def close(self) -> None:
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        await self._socket.close()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                self.frames.append(json.loads(message))
                self._news.set()
        except (ConnectionClosed, OSError):
            pass
        finally:
            self.closed = True
            self._news.set()


@contextlib.asynccontextmanager
async def local_client(socket: Path) -> AsyncIterator[Client]:
    """Raises: OSError when nobody listens."""
    options: dict[str, Any] = {"compression": None, "max_size": None, "open_timeout": LIMIT_S, "close_timeout": 1}
    client = Client(await unix_connect(str(socket), uri="ws://localhost/ws", **options))
    try:
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def hub_client(hub_url: str, token: str, connection_id: str) -> AsyncIterator[Client]:
    url = f"{hub_url.replace('http', 'ws', 1).rstrip('/')}/v1/environments/{connection_id}/status/ws"
    options: dict[str, Any] = {"compression": None, "max_size": None, "open_timeout": LIMIT_S, "close_timeout": 1}
    headers = {"Authorization": f"Bearer {token}"}
    client = Client(await connect(url, additional_headers=headers, proxy=None, **options))
    try:
        yield client
    finally:
        await client.close()


@dataclass
class Conversation:
    """One runtime as a client of it sees it."""

    client: Client
    runtime: Frame
    agent: Frame = field(default_factory=dict)

    async def say(self, text: str, message_id: str = "", **payload: Any) -> tuple[str, Frame]:
        """Send one message; its id and the acknowledgement. Raises: Gone."""
        message_id = message_id or f"cm-{uuid.uuid4()}"
        message = {"role": "user", "content": text, "client_message_id": message_id}
        body = {"kind": "create_message", "messages": [message], **payload}
        return message_id, await self.client.request({"type": "input", "runtime": self.runtime, "payload": body})

    async def answer(self, question: Frame, behavior: str, message: str = "") -> Frame:
        decision = {"behavior": behavior, **({"message": message} if message else {})}
        payload = {"kind": "approval_response", "request_id": question["request_id"], "decision": decision}
        return await self.client.request({"type": "input", "runtime": self.runtime, "payload": payload})

    async def question(self, after: int = 0) -> Frame:
        return await self.client.wait(lambda frame: frame["type"] == "control_request", after)

    async def finished(self, after: int = 0, limit_s: float = LIMIT_S) -> Frame:
        return await self.client.wait(
            lambda frame: frame["type"] == "turn_finished" and frame["runtime"] == self.runtime, after, limit_s
        )

    async def turn(self, text: str, limit_s: float = LIMIT_S, **payload: Any) -> "Turn":
        """One message and all that comes of it, for turns that ask nothing."""
        after = len(self.client.frames)
        message_id, acknowledged = await self.say(text, **payload)
        finished = await self.finished(after, limit_s)
        return Turn(self, after, message_id, acknowledged, finished)

    def deltas(self, kind: str, after: int = 0) -> list[Frame]:
        found = [frame["delta"] for frame in self.client.of("stream_delta", after)]
        return [delta for delta in found if delta.get("message_type") == kind]

    def fragments(self, after: int = 0) -> list[str]:
        """The answer's text, piece by piece as it came."""
        return [text_of(delta.get("content")) for delta in self.deltas("assistant_message", after)]

    def results(self, after: int = 0) -> list[str]:
        """What tools returned, in order."""
        return [str(delta["tool_return"]) for delta in self.deltas("tool_return_message", after)]


@dataclass(frozen=True, slots=True)
class Turn:
    conversation: Conversation
    after: int
    message_id: str
    acknowledged: Frame
    finished: Frame

    @property
    def fragments(self) -> list[str]:
        return self.conversation.fragments(self.after)

    @property
    def text(self) -> str:
        return "".join(self.fragments)

    @property
    def results(self) -> list[str]:
        return self.conversation.results(self.after)


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


async def open_conversation(client: Client, *, cwd: Path | None = None, new: bool = False, **more: Any) -> Conversation:
    """The first agent's default conversation, or a new one; an agent is made when there is none."""
    frame: Frame = {"type": "runtime_start", "client_info": {"name": "test"}, "recover_approvals": True, **more}
    if "create_agent" not in more and "agent_id" not in more:
        listed = await client.request({"type": "agent_list"})
        if agents := listed.get("agents"):
            frame["agent_id"] = agents[0]["id"]
        else:
            frame["create_agent"] = {"body": {"name": "Tester"}}
    if "conversation_id" not in more:
        frame |= {"create_conversation": {"body": {}}} if new else {"conversation_id": "default"}
    if cwd is not None:
        frame["cwd"] = str(cwd)
    started = await client.request(frame)
    assert started["success"], started
    return Conversation(client, started["runtime"], started.get("agent") or {})


def script(*steps: Frame) -> str:
    """Words for the scripted endpoint, to stand somewhere in a message."""
    return f"<<{json.dumps({'steps': list(steps)})}>>"


def bash(command: str) -> Frame:
    return {"name": "Bash", "arguments": {"command": command}}


def remember(name: str, fact: str) -> Frame:
    """A call by which the agent commits a fact to its memory."""
    note = f"---\\nname: {name}\\ndescription: what {name} is about\\n---\\n{fact}\\n"
    return bash(
        f'cd "$MEMORY_DIR" && printf -- "{note}" > {name}.md && git add -A && git commit -qm "remember {name}" '
        "&& git rev-parse HEAD"
    )
