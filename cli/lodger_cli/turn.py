"""One message and everything that comes of it, over a `WireClient`."""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lodger_cli.terminal import note
from lodger_cli.wire import Frame, Refused, WireClient, WireError

ABORT_LIMIT_S: Final = 2.0

Decide = Callable[[Frame], Awaitable[Frame]]
"""Given a `control_request`, returns the `payload` fields that answer it (a decision or an error)."""


@dataclass(slots=True)
class TurnResult:
    """What a turn came to."""

    stop_reason: str
    text: str = ""
    error: str | None = None
    run_ids: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.stop_reason == "end_turn"


class TurnDriver:
    """Sends one message and follows its turn to the end."""

    def __init__(
        self, client: WireClient, runtime: Frame, decide: Decide | None, show: Callable[[Frame], None]
    ) -> None:
        """Without `decide` nobody is here to answer: questions are left to other clients (the daemon itself denies
        those of turns started here, see `RuntimeWish.can_answer`)."""
        self._client = client
        self._runtime = runtime
        self._decide = decide
        self._show = show

    async def run(self, text: str) -> TurnResult:
        """Raises: WireError when the connection breaks; the message, once accepted, is answered all the same.

        Cancelling it interrupts the turn.
        """
        try:
            return await self._run(text)
        except asyncio.CancelledError:
            with contextlib.suppress(WireError):
                await self._client.request({"type": "abort_message", "runtime": self._runtime}, limit_s=ABORT_LIMIT_S)
            raise

    async def _run(self, text: str) -> TurnResult:
        message_id = f"cm-{uuid.uuid4()}"
        payload: Frame = {
            "kind": "create_message",
            "messages": [{"role": "user", "content": text, "client_message_id": message_id}],
        }
        accepted = await self._client.request({"type": "input", "runtime": self._runtime, "payload": payload})
        if not accepted.get("accepted"):
            raise Refused(f"the message was refused: {accepted.get('error', 'no reason given')}")
        return await self._follow(message_id)

    async def _follow(self, message_id: str) -> TurnResult:
        result = TurnResult(stop_reason="error")
        fragments: list[str] = []
        async for frame in self._client.events():
            if frame.get("runtime") not in (None, self._runtime):
                continue
            self._show(frame)
            match frame.get("type"):
                case "update_loop_status":
                    runs = frame["loop_status"].get("client_message_ids_by_run_id") or {}
                    result.run_ids = [run for run, causes in runs.items() if message_id in causes]
                case "stream_delta":
                    self._read_delta(frame["delta"], fragments)
                case "control_request":
                    await self._answer(frame)
                case "turn_finished":
                    if frame.get("run_id") in (None, *result.run_ids):
                        result.stop_reason = frame["stop_reason"]
                        result.error = frame.get("error")
                        result.text = "".join(fragments)
                        return result
                case _:
                    pass
        raise WireError("the connection to the daemon was closed; the message is stored and will be answered")

    @staticmethod
    def _read_delta(delta: Frame, fragments: list[str]) -> None:
        if delta.get("message_type") == "assistant_message":
            fragments.append(text_of(delta.get("content")))
        elif delta.get("message_type") == "approval_request_message":
            fragments.clear()  # what counts is what is said after the last tool

    async def _answer(self, question: Frame) -> None:
        if self._decide is None:
            note("lodger: the agent is waiting for an answer to an earlier question; give it in `lodger chat`")
            return
        answer = await self._decide(question)
        payload = {"kind": "approval_response", "request_id": question["request_id"], **answer}
        await self._client.request({"type": "input", "runtime": self._runtime, "payload": payload})


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [] if isinstance(part, dict))
