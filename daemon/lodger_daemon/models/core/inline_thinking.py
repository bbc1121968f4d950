"""Thoughts that a server left in the answer: `<think>…</think>` at its very beginning.

Servers that know the model take them out; one that does not passes them on as text, which would then be shown, kept and
sent back as if it had been said.
"""

from typing import Final, Literal

OPEN: Final = "<think>"
CLOSE: Final = "</think>"


class InlineThinking:
    """Feed text, get what was thought and what was said. Only what stands before anything else is a thought."""

    def __init__(self) -> None:
        self._state: Literal["start", "thinking", "after", "said"] = "start"
        self._held = ""

    def feed(self, text: str) -> tuple[str, str]:
        if self._state == "said":
            return "", text
        text, self._held = self._held + text, ""
        if self._state == "start":
            begun = text.lstrip()
            if not begun.startswith(OPEN):
                if OPEN.startswith(begun):
                    self._held = text
                    return "", ""
                self._state = "said"
                return "", text
            self._state, text = "thinking", begun.removeprefix(OPEN).lstrip("\n")
        thought = ""
        if self._state == "thinking":
            thought, closed, text = text.partition(CLOSE)
            if not closed:
                kept = _held_back(thought)
                self._held = thought[kept:]
                return thought[:kept], ""
            self._state = "after"
        said = text.lstrip("\n")
        if said:
            self._state = "said"
        return thought, said

    def finish(self) -> tuple[str, str]:
        """What was held back. A thought that never ended stays a thought."""
        held, self._held = self._held, ""
        return ("", held) if self._state == "start" else (held, "")


def _held_back(text: str) -> int:
    """Where a beginning of the closing mark at the end of `text` starts."""
    for size in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if CLOSE.startswith(text[-size:]):
            return len(text) - size
    return len(text)
