"""One message and everything that comes of it, over a `WireClient`."""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lodger_cli.runtime import processes_of
from lodger_cli.terminal import Exit, for_terminal, note
from lodger_cli.wire import Frame, Refused, WireClient, WireError

ABORT_LIMIT_S: Final = 2.0
MODEL_STOPS: Final = frozenset(
    {
        "llm_api_error",
        "invalid_llm_response",
        "invalid_tool_call",
        "no_tool_call",
        "context_window_overflow_in_system_prompt",
    }
)
LIMIT_STOPS: Final = frozenset({"max_steps", "max_tokens_exceeded", "insufficient_credits", "timeout"})
UNDECIDED: Final = frozenset({"person", "nobody"})

Decide = Callable[[Frame], Awaitable[Frame]]
"""Given a `control_request`, returns the `payload` fields that answer it (a decision or an error)."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a person sends."""

    text: str
    images: tuple[Frame, ...] = ()
    max_steps: int | None = None
    """Model steps the turn may take."""

    @property
    def content(self) -> str | list[Frame]:
        return [{"type": "text", "text": self.text}, *self.images] if self.images else self.text


@dataclass(slots=True)
class TurnResult:
    """What a turn came to."""

    stop_reason: str
    text: str = ""
    error: str | None = None
    run_ids: list[str] = field(default_factory=list)
    refused: list[Frame] = field(default_factory=list)
    """Calls that did not run: `tool_call_id`, and `by` whom they were refused."""

    @property
    def ok(self) -> bool:
        return self.stop_reason == "end_turn"

    @property
    def exit_code(self) -> Exit:
        if self.ok:
            return Exit.NOT_ALLOWED if any(call["by"] in UNDECIDED for call in self.refused) else Exit.OK
        if self.stop_reason in LIMIT_STOPS:
            return Exit.LIMIT
        return Exit.MODEL_FAILED if self.stop_reason in MODEL_STOPS else Exit.FAILED


def create_message(message: Message, message_id: str) -> Frame:
    """The payload of an `input`."""
    payload: Frame = {
        "kind": "create_message",
        "messages": [{"role": "user", "content": message.content, "client_message_id": message_id}],
    }
    if message.max_steps is not None:
        payload["max_steps"] = message.max_steps
    return payload


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
        self.running_before: frozenset[str] | None = None
        """Ids of what ran in the background when the first status came, which is before any message of ours."""

    async def run(self, message: Message) -> TurnResult:
        """Raises: WireError when the connection breaks; the message, once accepted, is answered all the same.

        Cancelling it interrupts the turn.
        """
        try:
            return await self._run(message)
        except asyncio.CancelledError:
            with contextlib.suppress(WireError):
                await self._client.request({"type": "abort_message", "runtime": self._runtime}, limit_s=ABORT_LIMIT_S)
            raise

    async def run_within(self, message: Message, limit_s: float) -> TurnResult:
        """As `run`; a turn that takes longer is interrupted, and its stop reason is `timeout`."""
        try:
            async with asyncio.timeout(limit_s):
                return await self.run(message)
        except TimeoutError:
            return TurnResult("timeout", error=f"it took longer than {limit_s:g} s and was interrupted")

    async def _run(self, message: Message) -> TurnResult:
        message_id = f"cm-{uuid.uuid4()}"
        payload = create_message(message, message_id)
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
                case "update_device_status" if self.running_before is None:
                    self.running_before = frozenset(str(one.get("process_id")) for one in processes_of(frame))
                case "update_loop_status":
                    runs = frame["loop_status"].get("client_message_ids_by_run_id") or {}
                    result.run_ids = [run for run, causes in runs.items() if message_id in causes]
                case "stream_delta":
                    read_delta(frame["delta"], fragments)
                case "lodger_call_refused":
                    result.refused.append({"tool_call_id": frame["tool_call_id"], "by": frame["by"]})
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

    async def _answer(self, question: Frame) -> None:
        if self._decide is None:
            note("lodger: the agent is waiting for an answer to an earlier question; give it in `lodger chat`")
            return
        await give_answer(self._client, self._runtime, question, await self._decide(question))


def read_delta(delta: Frame, fragments: list[str]) -> None:
    """Gather the text of a turn's answer from what is streamed."""
    if delta.get("message_type") == "assistant_message":
        fragments.append(text_of(delta.get("content")))
    elif delta.get("message_type") == "approval_request_message":
        fragments.clear()  # what counts is what is said after the last tool


async def give_answer(client: WireClient, runtime: Frame, question: Frame, answer: Frame) -> bool:
    """Whether it had an effect: not when it came too late, or somebody else was quicker. Raises: WireError."""
    payload = {"kind": "approval_response", "request_id": question["request_id"], **answer}
    accepted = await client.request({"type": "input", "runtime": runtime, "payload": payload})
    if not accepted.get("accepted"):
        why = for_terminal(str(accepted.get("error", "the question is settled already")))
        note(f"lodger: the answer had no effect: {why}")
    return bool(accepted.get("accepted"))


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [] if isinstance(part, dict))
