"""Paths and revisions as people name them: read strictly, because git gives meaning to almost any text."""

import posixpath
import re
from typing import Final

from lodger_tools.validator.names import fold

_SHA: Final = re.compile(r"[0-9a-f]{4,40}")
_MAIN_NAMES: Final = frozenset({"HEAD", "main", "refs/heads/main"})


class BadRequest(Exception):
    """A path or revision that cannot be meant; the text is for the person."""


def wanted_path(text: str) -> tuple[str, ...]:
    """The names of a path inside a memory. Raises: BadRequest."""
    normal = posixpath.normpath(text)
    names = tuple(normal.split("/"))
    if "\0" in text or not text or normal.startswith(("/", "../")) or normal in {"..", "."}:
        raise BadRequest("path must resolve inside the memory root")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise BadRequest("the path is no Unicode text")
    if any(fold(name).startswith(".git") for name in names):
        raise BadRequest("names that begin with .git are git's own")
    return names


def wanted_revision(text: str) -> str | None:
    """None for main as it is now, else a commit's id or the beginning of one. Raises: BadRequest."""
    if text in _MAIN_NAMES:
        return None
    if not _SHA.fullmatch(text):
        raise BadRequest(f"{text[:80]!r} names no commit; give its id, or `main`")
    return text
