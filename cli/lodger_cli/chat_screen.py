"""What `lodger chat` shows of the frames that come, and what it remembers of them."""

import sys
from dataclasses import dataclass, field
from typing import Any

from lodger_cli.activity import activity_of
from lodger_cli.terminal import DIM, coloured, for_terminal, note, paint, write_out
from lodger_cli.turn import text_of
from lodger_cli.wire import Frame
from lodger_tools.redaction.core.escapes import StrippedStream


@dataclass
class ChatScreen:
    """One conversation as its person sees it. `whole_lines`: text is shown line by line, above a prompt."""

    whole_lines: bool = False
    mode: str = ""
    busy: bool = False
    queue: list[Frame] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)
    """Ids of messages that were typed here; those of others are shown when the agent takes them up."""
    _text: str = ""
    _stripped: StrippedStream = field(default_factory=StrippedStream)
    """The pieces of an answer may be cut within what would drive the terminal."""
    _open_line: bool = False
    """The last thing shown did not end its line."""

    def show(self, frame: Frame) -> None:
        match frame.get("type"):
            case "stream_delta":
                self._delta(frame["delta"], frame)
            case "update_loop_status":
                self.busy = frame["loop_status"]["status"] != "WAITING_ON_INPUT"
            case "update_device_status":
                self.mode = str(frame["device_status"].get("current_permission_mode") or self.mode)
            case "update_queue":
                self.queue = list(frame.get("queue") or [])
            case "turn_finished":
                self._finished(frame)
            case _:
                pass

    def line(self, text: str) -> None:
        """Something beside the answer, on a line of its own."""
        self.flush()
        note(paint(text, DIM, coloured(sys.stderr)))

    def flush(self) -> None:
        """Show what is held back of an answer, and end its line."""
        self._text += self._stripped.close().replace("\r", "")
        if self._text:
            write_out(self._text)
            self._text, self._open_line = "", True
        if self._open_line:
            write_out("\n")
            self._open_line = False

    def _delta(self, delta: Frame, frame: Frame) -> None:
        match delta.get("message_type"):
            case "assistant_message":
                self._say(text_of(delta.get("content")))
            case "user_message" if not self.sent & {str(delta.get("otid"))}:
                self.line(f"> {for_terminal(text_of(delta.get('content')))}")
            case "loop_error" if not delta.get("is_terminal"):
                self.line(f"lodger: {for_terminal(str(delta.get('message', '')))}")
            case "status" if delta.get("message"):
                self.line(for_terminal(str(delta["message"])))
            case _:
                if line := activity_of(frame):
                    self.line(line)

    def _say(self, text: str) -> None:
        self._text += self._stripped.feed(text).replace("\r", "")
        if not self.whole_lines:
            write_out(self._text)
            self._open_line = not self._text.endswith("\n") if self._text else self._open_line
            self._text = ""
        elif "\n" in self._text:
            shown, _, self._text = self._text.rpartition("\n")
            write_out(f"{shown}\n")

    def _finished(self, frame: Frame) -> None:
        self.flush()
        reason, error = frame.get("stop_reason"), frame.get("error")
        if reason not in ("end_turn", "cancelled"):
            self.line(f"lodger: the turn ended with {reason}{f': {for_terminal(str(error))}' if error else ''}")


def queue_in_words(queue: list[Frame]) -> str:
    """What waits, the next first."""
    if not queue:
        return "Nothing waits."
    return "\n".join(
        f"{item['id']}  {'(held back) ' if item.get('paused') else ''}{_short(item.get('content'))}" for item in queue
    )


def _short(content: Any) -> str:
    words = " ".join(for_terminal(text_of(content)).split())
    return words if len(words) <= 60 else words[:60] + "…"
