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
    only_reads: bool = False
    """Whether a call changes nothing, so that one nobody remembers does no harm."""


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
    memory_head: str = ""
    """What main of the agent's checkout pointed at as the call ended just now; empty when that is not known."""


@dataclass(frozen=True, slots=True)
class StillRunning:
    """A command was waited for long enough and goes on in its box."""

    text: str
    """The last of its output so far, redacted."""
    total: int = 0
    """How much it has written so far, in bytes."""


@dataclass(frozen=True, slots=True)
class BackgroundCall:
    """What names a command in the background, for this daemon and every later one."""

    box: BoxKey
    call_key: str


@dataclass(frozen=True, slots=True)
class BackgroundEnd:
    """How a command in the background ended. Redacted; `text` is the last of its output."""

    exit_code: int | None
    text: str
    overflow_path: str | None = None
    """Where more of the output stands, seen from inside the box."""
    timed_out: bool = False
    cancelled: bool = False
    out_of_memory: bool = False
    leftovers: int = 0

    @property
    def good(self) -> bool:
        return self.exit_code == 0 and not self.timed_out and not self.cancelled and not self.out_of_memory


@dataclass(frozen=True, slots=True)
class OutputSoFar:
    """A part of what a command in the background has written, redacted."""

    text: str
    start: int
    end: int
    """Where to read on."""
    total: int
    ended: bool


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


class BackgroundShell(Protocol):
    """Shell commands that outlive the waiting for them. Only for requests that `starts_command` is true of."""

    def starts_command(self, request: ToolRequest) -> bool: ...

    def wants_background(self, request: ToolRequest) -> bool:
        """Whether nobody should wait for it from the start."""
        ...

    async def run_a_while(
        self, request: ToolRequest, on_output: Callable[[str], None] | None, foreground_s: float
    ) -> ToolOutcome | StillRunning:
        """`Toolbox.run`, but a command that has not ended after `foreground_s` is left to run.

        Raises: EffectUnknown.
        """
        ...

    async def collect_a_while(self, request: ToolRequest, foreground_s: float) -> ToolOutcome | StillRunning | None:
        """`Toolbox.collect`, with the same end of the waiting."""
        ...

    async def begin(self, request: ToolRequest) -> ToolOutcome | None:
        """Start a command and leave it to run; an outcome when it has ended already. Raises: EffectUnknown."""
        ...

    async def watch(self, call: BackgroundCall) -> BackgroundEnd | None:
        """Wait for its end; None when no box knows it any more. Cancelling the waiter leaves it running."""
        ...

    async def read(self, call: BackgroundCall, offset: int | None) -> OutputSoFar | None:
        """Its output from `offset` on, or the last of it; None when no box knows it any more."""
        ...

    async def write(self, call: BackgroundCall, text: str) -> bool | None:
        """Type into a session; False when it takes no more, None when no box knows it any more."""
        ...

    async def stop(self, call: BackgroundCall) -> None:
        """TERM, KILL two seconds later. Returns at once; `watch` tells the end."""
        ...
