"""Which names a memory may hold, so that every machine can check it out."""

import unicodedata
from typing import Final

from lodger_tools.validator.limits import Limits

_REFUSED_CATEGORIES: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_REFUSED_CHARACTERS: Final = frozenset('\\:*?"<>|/')
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$", "clock$"}
    | {f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"}
)


def name_fault(raw: bytes, limits: Limits) -> str | None:
    """What is wrong with one name of a tree, or None."""
    if len(raw) > limits.name_bytes:
        return f"the name is longer than {limits.name_bytes} bytes"
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "the name is not UTF-8"
    return _spelling_fault(name) or _special_fault(name)


def _spelling_fault(name: str) -> str | None:
    if unicodedata.normalize("NFC", name) != name:
        return "the name must be in Unicode form NFC"
    if any(unicodedata.category(char) in _REFUSED_CATEGORIES for char in name):
        return "the name has a control, invisible or unassigned character"
    if any(char in _REFUSED_CHARACTERS for char in name):
        return "the name has a character that other systems do not allow"
    if name[-1:] in {".", " "} or name[:1] == " ":
        return "the name begins with a space or ends with a space or dot"
    return None


def _special_fault(name: str) -> str | None:
    folded = fold(name)
    if folded.startswith((".git", "git~")):
        return "names that begin with .git are git's own"
    if folded.split(".", 1)[0].rstrip(" ") in _DEVICES:
        return "the name is a device on Windows"
    if folded in {"", ".", ".."}:
        return "the name is not a file name"
    return None


def fold(name: str) -> str:
    """Names that any file system may take for the same fold to the same text."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKD", name).casefold())
