"""Taking terminal escape sequences out of a program's output. Pure."""

import re
from typing import Final

SEQUENCE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links and other strings up to BEL or ST
    r"|\x1b[ -/]+[0-~]"  # character sets
    r"|\x1b[0-Z\\^-~]"  # two characters
)
BEGUN: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)$")
OTHER_CONTROLS: Final = dict.fromkeys((*range(9), 11, 12, *range(14, 27), *range(28, 32), 127))
HELD_LIMIT_CHARS: Final = 4096


def strip_escapes(text: str) -> str:
    """A whole text, with CRLF as LF and without other control characters."""
    if "\x1b" in text:
        text = SEQUENCE.sub("", text).replace("\x1b", "")
    return text.replace("\r\n", "\n").translate(OTHER_CONTROLS)


class StrippedStream:
    """One text in pieces; sequences may be cut anywhere."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        text = self._held + text
        begun = BEGUN.search(text)
        held_from = len(text) if begun is None else begun.start()
        if held_from == len(text) and text.endswith("\r"):
            held_from -= 1
        if len(text) - held_from > HELD_LIMIT_CHARS:
            # A string that never ends is no escape sequence.
            held_from = len(text)
        self._held = text[held_from:]
        return strip_escapes(text[:held_from])

    def close(self) -> str:
        held, self._held = self._held, ""
        return strip_escapes(held)
