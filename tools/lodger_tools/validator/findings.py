"""What the validator has to say about a commit."""

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """The kinds of finding; a test names them, a person reads the text."""

    STRUCTURE = "structure"
    FRONT_MATTER = "front_matter"
    READ_ONLY = "read_only"
    SIZE = "size"
    NAME = "name"
    MODE = "mode"
    AGENT_TOML = "agent_toml"
    COMMIT = "commit"
    OBJECT = "object"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One reason why a commit is not published. `path` is empty when the commit as a whole is meant."""

    path: str
    rule: Rule
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


def printable(raw: bytes | str) -> str:
    """A name as it may be shown: no control characters, at most 200 characters."""
    text = raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:200])
