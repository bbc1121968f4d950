"""Writing commits as data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_DROPPED: Final = (b"gpgsig", b"mergetag")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a commit of ours is by."""

    name: str
    email: str

    def line(self, at_s: int) -> bytes:
        """A signature in UTC."""
        return f"{cleaned(self.name)} <{cleaned(self.email)}> {at_s} +0000".encode()


def identity_of(agent_id: str, name: str) -> Identity:
    """An agent's; `invalid` is no domain that mail could go to (RFC 2606)."""
    return Identity(name, f"{agent_id}@lodger.invalid")


def cleaned(text: str) -> str:
    """A name as git takes it: one line, no brackets, never empty."""
    kept = "".join(char for char in text if char.isprintable() and char not in "<>").strip(" .,:;\"'")
    return kept[:200] or "agent"


def new_commit(tree: str, parents: Sequence[str], author: bytes, committer: bytes, message: str) -> bytes:
    lines = [b"tree " + tree.encode(), *(b"parent " + parent.encode() for parent in parents)]
    lines += [b"author " + author, b"committer " + committer]
    return b"\n".join(lines) + b"\n\n" + message.encode()


def replayed_commit(raw: bytes, tree: str, parent: str, committer: bytes) -> bytes:
    """`raw` on another parent: author, date, encoding and message stay; signatures, no longer true, go."""
    head, _, message = raw.partition(b"\n\n")
    lines = [b"tree " + tree.encode(), b"parent " + parent.encode()]
    dropping = False
    for line in head.split(b"\n"):
        if line.startswith(b" "):
            if not dropping:
                lines.append(line)
            continue
        key = line.split(b" ", 1)[0]
        dropping = key in (b"tree", b"parent") or key.startswith(_DROPPED)
        if dropping:
            continue
        lines.append(b"committer " + committer if key == b"committer" else line)
    return b"\n".join(lines) + b"\n\n" + message


def author_of(raw: bytes) -> bytes:
    """The author line's value."""
    head = raw.partition(b"\n\n")[0]
    return next(line[7:] for line in head.split(b"\n") if line.startswith(b"author "))
