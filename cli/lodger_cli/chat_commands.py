"""What a person may type in `lodger chat` instead of a message: lines that begin with a slash."""

import uuid
from dataclasses import dataclass
from typing import Final

from lodger_cli.chat_screen import ChatScreen, queue_in_words
from lodger_cli.runtime import use_model
from lodger_cli.terminal import for_terminal
from lodger_cli.wire import Frame, Refused, WireClient
from lodger_tools.permissions.core.modes import Mode

COMMAND_LIMIT_S: Final = 300.0
"""A compaction asks the model for a summary."""
HELP: Final = """\
/stop             stop the turn; what waits is held back until you go on
/queue            what waits; /queue remove ID takes one out, /queue resume lets them go on
/mode [MODE]      how much is asked: strict, standard, acceptEdits or unrestricted
/model [HANDLE]   the model from now on; `lodger models` lists them
/compact          shorten the conversation by a summary
/new              go on in a new conversation
/clear            the same, on an empty screen
/exit             leave; the agent stays. Also Ctrl-D
Enter sends, Alt-Enter makes a new line. A message that begins with a slash: write two.
While the agent works you can type on; what you send waits its turn. Ctrl-C stops the turn and leaves."""


@dataclass(frozen=True, slots=True)
class Done:
    """The command is done; `text` is for the person."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """End the chat."""


@dataclass(frozen=True, slots=True)
class GoElsewhere:
    """Open a new conversation."""

    clear_screen: bool = False


Outcome = Done | Leave | GoElsewhere


class ChatCommands:
    """Carries out commands on one conversation. Raises: WireError when the connection breaks."""

    def __init__(self, client: WireClient, runtime: Frame, screen: ChatScreen, model: str) -> None:
        self._client = client
        self._runtime = runtime
        self._screen = screen
        self._model = model

    async def run(self, line: str) -> Outcome:
        name, _, rest = line[1:].strip().partition(" ")
        rest = rest.strip()
        match name.lower():
            case "help" | "?" | "":
                return Done(HELP)
            case "stop":
                return await self._stop()
            case "queue":
                return await self._queue(rest)
            case "mode":
                return await self._mode(rest)
            case "model":
                return await self._use_model(rest)
            case "compact":
                return await self._execute("compact")
            case "new":
                return GoElsewhere()
            case "clear":
                return GoElsewhere(clear_screen=True)
            case "exit" | "quit":
                return Leave()
            case _:
                return Done(f"There is no /{for_terminal(name)} here; /help lists what there is.")

    async def _stop(self) -> Done:
        answer = await self._client.request({"type": "abort_message", "runtime": self._runtime})
        return Done("" if answer.get("aborted") else "Nothing runs.")

    async def _queue(self, rest: str) -> Done:
        word, _, item = rest.partition(" ")
        match word:
            case "":
                return Done(queue_in_words(self._screen.queue))
            case "resume":
                answer = await self._client.request({"type": "resume_queue", "runtime": self._runtime})
                return Done(f"{answer.get('resumed', 0)} go on.")
            case "remove" if item.strip():
                frame: Frame = {"type": "remove_queue_item", "runtime": self._runtime, "item_id": item.strip()}
                answer = await self._client.request(frame)
                return Done("Removed." if answer.get("success") else f"Nothing waits under {for_terminal(item)}.")
            case _:
                return Done("Write /queue, /queue remove ID or /queue resume.")

    async def _mode(self, wanted: str) -> Done:
        if not wanted:
            return Done(f"The mode is {self._screen.mode or 'not known yet'}; others: {', '.join(Mode)}.")
        if wanted not in list(Mode):
            return Done(f"There is no mode {for_terminal(wanted)}; the modes are {', '.join(Mode)}.")
        # It has no response: a refusal comes as an error of the conversation, and is shown as such.
        await self._client.send({"type": "change_device_state", "runtime": self._runtime, "payload": {"mode": wanted}})
        return Done()

    async def _use_model(self, handle: str) -> Done:
        if not handle:
            return Done(f"The model is {self._model}; `lodger models` lists others.")
        try:
            await use_model(self._client, self._runtime, handle)
        except Refused as refusal:
            return Done(str(refusal))
        self._model = handle
        return Done(f"The model is {handle} from now on.")

    async def _execute(self, name: str) -> Done:
        frame: Frame = {
            "type": "execute_command",
            "runtime": self._runtime,
            "command_id": name,
            "request_id": str(uuid.uuid4()),
        }
        answer = await self._client.request(frame, limit_s=COMMAND_LIMIT_S)
        return Done(for_terminal(str(answer.get("output") or ("Done." if answer.get("success") else "It failed."))))
