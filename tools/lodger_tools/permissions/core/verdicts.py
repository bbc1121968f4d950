"""What the permission rules say of one call."""

from dataclasses import dataclass
from typing import TypeAlias

from lodger_tools.json_value import JsonObject


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule that would let calls of this kind pass, shown exactly as it will match."""

    id: str
    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Allowed:
    reason: str
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class NeedsPerson:
    reason: str
    rule: str | None = None
    suggestions: tuple[Suggestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Denied:
    reason: str
    rule: str | None = None


Verdict: TypeAlias = Allowed | NeedsPerson | Denied


@dataclass(frozen=True, slots=True)
class CallToJudge:
    """One call with its exact arguments; the same value is judged before and at execution."""

    tool_name: str
    arguments: JsonObject
    cwd: str
    workspace: str
    memory_directory: str | None
    real_path: str | None = None
    """Where the path of a file tool leads once links are followed, as its box sees it; None when that is not known."""
