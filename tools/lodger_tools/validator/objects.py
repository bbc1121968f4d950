"""Reading git's trees and commits as bytes, without git."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

ReadObject: TypeAlias = Callable[[str], tuple[str, bytes]]
"""Object id to its kind and content.

Raises: KeyError when there is no such object.
"""

ReadSize: TypeAlias = Callable[[str], int]
"""Size of a blob in bytes; as `ReadObject`, KeyError when it is missing."""

MODE_FILE: Final = b"100644"
MODE_PROGRAM: Final = b"100755"
MODE_FOLDER: Final = b"40000"
EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


class BadObject(Exception):
    """Bytes that are not what they should be. The text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a tree."""

    mode: bytes
    name: bytes
    oid: str


@dataclass(frozen=True, slots=True)
class Signature:
    """Who and when, of an author or committer line."""

    name: str
    email: str
    at_s: int
    zone: str


@dataclass(frozen=True, slots=True)
class Commit:
    """The parts of a commit that decisions rest on."""

    tree: str
    parents: tuple[str, ...]
    author: Signature
    committer: Signature
    encoding: str | None
    message: bytes


def parse_tree(data: bytes) -> tuple[Entry, ...]:
    """Raises: BadObject."""
    entries = []
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 8)
        end = data.find(b"\0", space + 1) if space > 0 else -1
        if space < 0 or end < 0 or end + 21 > len(data):
            raise BadObject("a tree is cut short")
        entries.append(Entry(data[at:space], data[space + 1 : end], data[end + 1 : end + 21].hex()))
        at = end + 21
    return tuple(entries)


def parse_commit(data: bytes) -> Commit:
    """Raises: BadObject."""
    head, found, message = data.partition(b"\n\n")
    if not found and not data.endswith(b"\n"):
        raise BadObject("a commit has no end of its header")
    trees: list[str] = []
    parents: list[str] = []
    signatures: dict[bytes, Signature] = {}
    encoding = None
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        if key == b"tree":
            trees.append(_oid(value))
        elif key == b"parent":
            parents.append(_oid(value))
        elif key in (b"author", b"committer"):
            if key in signatures:
                raise BadObject("a commit names an author twice")
            signatures[key] = _signature(value)
        elif key == b"encoding":
            encoding = value.decode("ascii", "replace")
    if len(trees) != 1 or len(signatures) != 2:
        raise BadObject("a commit needs one tree, one author and one committer")
    return Commit(trees[0], tuple(parents), signatures[b"author"], signatures[b"committer"], encoding, message)


def _oid(value: bytes) -> str:
    text = value.decode("ascii", "replace")
    if len(text) != 40 or any(char not in "0123456789abcdef" for char in text):
        raise BadObject("a commit names an object that is no object id")
    return text


def _signature(value: bytes) -> Signature:
    try:
        name, _, rest = value.decode("utf-8").partition(" <")
        email, _, stamp = rest.partition("> ")
        at, _, zone = stamp.partition(" ")
        return Signature(name, email, int(at), zone)
    except ValueError:
        raise BadObject("an author or committer line cannot be read") from None
