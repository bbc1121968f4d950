"""A conversation in a terminal: what is typed, what comes, and the questions in between."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from lodger_cli.chat_commands import ChatCommands, Done, GoElsewhere, Leave
from lodger_cli.chat_prompt import ChatPrompt, Left
from lodger_cli.chat_screen import ChatScreen
from lodger_cli.questions import ask_person
from lodger_cli.runtime import Opened
from lodger_cli.terminal import for_terminal, note
from lodger_cli.turn import ABORT_LIMIT_S, Message, create_message, give_answer
from lodger_cli.wire import Frame, WireClient, WireError

T = TypeVar("T")

CLEAR: Final = "\x1b[2J\x1b[H"


@dataclass(frozen=True, slots=True)
class NewConversation:
    """The person goes on in another conversation."""

    clear_screen: bool


class ChatRoom:
    """Stays until the person leaves, or wants another conversation."""

    def __init__(self, client: WireClient, opened: Opened, prompt: ChatPrompt) -> None:
        self._client = client
        self._runtime = opened.runtime
        self._prompt = prompt
        self._screen = ChatScreen(whole_lines=True)
        self._commands = ChatCommands(client, opened.runtime, self._screen, opened.model)
        self._open: dict[str, Frame] = {}
        """Questions without an answer, the oldest first."""
        self._changed = asyncio.Event()
        self._lost = False

    async def run(self) -> NewConversation | None:
        """Raises: Left when the person pressed Ctrl-C, after the turn was stopped; WireError."""
        reader = asyncio.create_task(self._follow())
        try:
            return await self._talk()
        except Left:
            if self._screen.busy:
                with contextlib.suppress(WireError):
                    abort: Frame = {"type": "abort_message", "runtime": self._runtime}
                    await self._client.request(abort, limit_s=ABORT_LIMIT_S)
            raise
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
            self._screen.flush()

    async def _talk(self) -> NewConversation | None:
        while True:
            if self._lost:
                raise WireError("the connection to the daemon was closed; what you sent is stored and will be answered")
            if self._open:
                await self._ask(next(iter(self._open)))
                continue
            typing = asyncio.create_task(self._prompt.message())
            if not await self._until_changed(typing, lambda: bool(self._open) or self._lost):
                continue
            line = typing.result()
            if line is None:
                return None
            if line.strip():
                outcome = await self._take(line.strip())
                if outcome is not None:
                    return outcome if isinstance(outcome, NewConversation) else None

    async def _take(self, line: str) -> NewConversation | Leave | None:
        if not line.startswith("/") or line.startswith("//"):
            await self._send(line.removeprefix("/") if line.startswith("//") else line)
            return None
        match await self._commands.run(line):
            case Done(text):
                if text:
                    note(text)
                return None
            case Leave() as leave:
                return leave
            case GoElsewhere(clear_screen):
                return NewConversation(clear_screen)

    async def _send(self, text: str) -> None:
        message_id = f"cm-{uuid.uuid4()}"
        self._screen.sent.add(message_id)
        frame: Frame = {"type": "input", "runtime": self._runtime, "payload": create_message(Message(text), message_id)}
        accepted = await self._client.request(frame)
        if not accepted.get("accepted"):
            why = for_terminal(str(accepted.get("error", "no reason given")))
            note(f"lodger: the message was refused: {why}")
        elif accepted.get("disposition") == "queued":
            note("(it waits its turn; /queue shows what waits)")

    async def _ask(self, question_id: str) -> None:
        """Ask the person, unless somebody settles the question elsewhere meanwhile."""
        question = self._open[question_id]
        self._screen.flush()
        asking = asyncio.create_task(ask_person(question, self._prompt.answer))
        if not await self._until_changed(asking, lambda: question_id not in self._open or self._lost):
            if not self._lost:
                note("(it was settled elsewhere)")
            return
        self._open.pop(question_id, None)
        await give_answer(self._client, self._runtime, question, asking.result())

    async def _until_changed(self, task: "asyncio.Task[T]", condition: Callable[[], bool]) -> bool:
        """Whether the task ended before the condition held; otherwise it is cancelled. Raises: what the task raises."""
        try:
            while not task.done() and not condition():
                self._changed.clear()
                news = asyncio.create_task(self._changed.wait())
                await asyncio.wait({task, news}, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if task.cancelled():
            return False
        task.result()
        return True

    async def _follow(self) -> None:
        try:
            async for frame in self._client.events():
                if frame.get("runtime") not in (None, self._runtime):
                    continue
                match frame.get("type"):
                    case "control_request":
                        self._open.setdefault(frame["request_id"], frame)
                    case "lodger_question_settled":
                        self._open.pop(frame["request_id"], None)
                    case _:
                        self._screen.show(frame)
                self._changed.set()
        finally:
            # Also after a fault of ours: nobody shall go on typing to a screen that shows nothing any more.
            self._lost = True
            self._changed.set()
