"""The one path from a tool call to its result: bind the arguments, run in the box, redact, truncate.

The turn machine calls `Toolbox`; nothing else starts a tool.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

from lodger_tools.box.contract import BoxKey, PinnedFile
from lodger_tools.json_value import JsonObject


class Scheduling(StrEnum):
    """How calls of one batch may overlap (BEHAVIOUR.md C4): readers run together, a writer is a barrier in call
    order."""

    PARALLEL = "parallel"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """What the model is told of a tool, and how it is scheduled."""

    name: str
    description: str
    parameters: JsonObject
    scheduling: Scheduling


@dataclass(frozen=True, slots=True)
class ToolRequest:
    call_key: str
    """Unique for ever: `str(CallKey)`."""
    tool_name: str
    arguments: JsonObject
    box: BoxKey
    cwd: str
    environment: dict[str, str] = field(default_factory=dict)
    pinned: tuple[PinnedFile, ...] = ()
    """Files that must still be what they were when a person allowed this call."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result as the model will see it: redacted and truncated."""

    status: Literal["success", "error"]
    text: str
    overflow_path: str | None = None
    """Where the whole text stands, seen from inside the box, when it was truncated."""
    refused: bool = False
    """Nothing was run: the arguments were bad or no box could be had."""


class EffectUnknown(Exception):
    """The box was lost in mid-call: the effect may or may not have happened."""


class Toolbox(Protocol):
    def tools(self, allowlist: tuple[str, ...] | None = None) -> tuple[ToolDescription, ...]:
        """In a fixed order, so that the prompt prefix is byte-stable."""
        ...

    def check(self, tool_name: str, arguments_json: str) -> JsonObject | str:
        """The parsed arguments, or what is wrong with them in words for the model (broken JSON, a missing field, an
        unknown tool). Never turns broken JSON into an empty object."""
        ...

    async def run(self, request: ToolRequest, on_output: Callable[[str], None] | None = None) -> ToolOutcome:
        """Run one call. `on_output` gets the whole redacted output so far, at most every 100 ms.

        Cancelling the awaiting task ends the call's processes.

        Raises: EffectUnknown.
        """
        ...

    async def collect(self, request: ToolRequest) -> ToolOutcome | None:
        """After a restart: the outcome of a call an earlier daemon started; None when nobody knows it."""
        ...

    async def real_path(self, request: ToolRequest) -> str | None:
        """Where the path of a file tool leads once links are followed, as its box sees it; None for other tools and
        when no box can tell. Never changes anything, never raises."""
        ...

    async def pin(self, request: ToolRequest) -> tuple[PinnedFile, ...]:
        """The script files that a command would run, as they are now, for `ToolRequest.pinned`; empty for other tools.
        Never changes anything, never raises."""
        ...

    async def preview(self, request: ToolRequest) -> tuple[JsonObject, ...]:
        """v2 diff objects (PROTOCOL.md 5.7) of what a write or edit would change; empty for other tools. Never
        changes anything, never raises."""
        ...
