"""What may be asked of a box: the calls a runner serves, and what comes back.

Everything that comes back is hostile: sizes are limited when it is read, and no permission or journal decision rests
on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias


class BoxProfile(StrEnum):
    """ARCHITECTURE.md section 10.4."""

    AGENT = "agent"
    STRICT = "strict"
    MEMORY_WORKER = "memory_worker"
    PERSON = "person"
    GUARD = "guard"
    READ_ONLY = "read_only"


@dataclass(frozen=True, slots=True)
class BoxKey:
    """One box per agent, workspace and profile; conversations of that agent there share it."""

    agent_id: str
    workspace: str
    """An absolute folder on the host; seen inside at the same path."""
    profile: BoxProfile = BoxProfile.AGENT


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file as it was when a person allowed what would run it."""

    path: str
    mark: str
    """What `LookAtFiles` said of it: the SHA-256 of its bytes in hex, or a word for what is no readable file."""


@dataclass(frozen=True, slots=True)
class RunCommand:
    """`bash -c`; no login shell. Not started when one of the pinned files is another than it was."""

    command: str
    timeout_s: float | None = 120.0
    """None = no limit: only for what is begun in the background or for a while."""
    pinned: tuple[PinnedFile, ...] = ()
    background: bool = False
    """Nobody waits for its end."""
    session: "Session | None" = None
    """None = standard input is empty."""


@dataclass(frozen=True, slots=True)
class Session:
    """How a command runs that takes input while it runs."""

    terminal: bool
    """A pseudo terminal; else a pipe."""
    login: bool = True
    workdir: str | None = None
    """Another folder than the call's, absolute or relative to that."""


@dataclass(frozen=True, slots=True)
class RunProgram:
    """An argument list without a shell; its output is bytes. For the daemon's own work inside a box."""

    argv: tuple[str, ...]
    stdin: bytes = b""
    timeout_s: float = 60.0
    stdout_limit_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReadFile:
    path: str
    first_line: int = 1
    line_count: int = 2000


@dataclass(frozen=True, slots=True)
class WriteFile:
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class EditFile:
    path: str
    old_text: str
    new_text: str
    replace_all: bool = False
    expected_replacements: int | None = None


@dataclass(frozen=True, slots=True)
class FindFiles:
    pattern: str
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class SearchFiles:
    pattern: str
    path: str | None = None
    glob: str | None = None
    output_mode: Literal["content", "files_with_matches", "count"] = "files_with_matches"
    before: int = 0
    after: int = 0
    ignore_case: bool = False
    line_numbers: bool = True
    file_type: str | None = None
    head_limit: int = 100
    offset: int = 0
    multiline: bool = False


@dataclass(frozen=True, slots=True)
class PreviewChange:
    """What a write or edit would change, as v2 diff hunks, without changing it."""

    change: "WriteFile | EditFile"


@dataclass(frozen=True, slots=True)
class ReadHead:
    """The commit a checkout's `main` points at, without starting git."""

    repository: str


@dataclass(frozen=True, slots=True)
class LookAtFiles:
    """Where each path leads once its links are followed, and what lies there.

    `details` of the outcome: `files`, a list of `[path as given, real path, mark]`; the mark is empty unless `marks`.
    """

    paths: tuple[str, ...]
    marks: bool = False


Operation: TypeAlias = (
    RunCommand
    | RunProgram
    | ReadFile
    | WriteFile
    | EditFile
    | FindFiles
    | SearchFiles
    | PreviewChange
    | ReadHead
    | LookAtFiles
)

ChangesFiles: TypeAlias = RunCommand | WriteFile | EditFile
"""After these, git's files of the workspace, the mounts of the box and the agent's memory are looked at."""


@dataclass(frozen=True, slots=True)
class BoxCall:
    call_key: str
    """Unique for ever. A runner that knows the key already does not run it again but gives the same outcome."""
    operation: Operation
    cwd: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the box's own; names outside the allow-list are refused before they get here."""
    checkout: str = ""
    """A repository in the box whose main is read as the call ends, for `BoxOutcome.head`; empty for none."""


@dataclass(frozen=True, slots=True)
class BoxOutcome:
    """How a call ended. `text` is what a tool says to the model; `data` is a program's standard output."""

    status: Literal["success", "error"]
    text: str
    exit_code: int | None = None
    data: bytes = b""
    details: Mapping[str, object] = field(default_factory=dict)
    timed_out: bool = False
    cancelled: bool = False
    out_of_memory: bool = False
    """It was killed because the processes of its box together used more than they may."""
    leftovers: int = 0
    """Processes that the call started and that still run."""
    head: str = ""
    """The commit that main of the call's `checkout` pointed at; empty when that is not known. Another call may have
    moved it since, long ago for an outcome that was kept."""


@dataclass(frozen=True, slots=True)
class StillRuns:
    """A call was waited for long enough and goes on in its box."""

    output: bytes
    """The last of what it has written so far."""
    total: int = 0
    """How much it has written so far, in bytes."""


@dataclass(frozen=True, slots=True)
class OutputPart:
    """A piece of what a call has written, as its box keeps it."""

    start: int
    data: bytes
    total: int
    """How much it has written in all."""
    ended: bool


class BoxUnavailable(Exception):
    """No box can be had, so nothing runs (fail closed). The text says why and what to do."""


class BoxLost(Exception):
    """The box ended while a call ran in it: the call's effect is unknown."""


@dataclass(frozen=True, slots=True)
class BoxStatus:
    key: BoxKey
    host_pid: int
    running_calls: int
    leftovers: int
    idle_s: float
    background: int = 0
    """Calls that go on although nobody waits for their result."""


OutputSink: TypeAlias = Callable[[bytes], None]
"""Called on the event loop with each new piece of a running command's output (stdout and stderr as they come)."""


class Boxes(Protocol):
    """All boxes of this machine. Boxes outlive the daemon; a new daemon adopts the ones it finds."""

    async def run(self, key: BoxKey, call: BoxCall, on_output: OutputSink | None = None) -> BoxOutcome:
        """Run one call, starting the box if there is none.

        Cancelling the awaiting task ends the call's processes (TERM, then KILL).

        Raises:
            BoxUnavailable: nothing was run.
            BoxLost: the box went away in mid-call.
        """
        ...

    async def collect(self, key: BoxKey, call_key: str) -> BoxOutcome | None:
        """After a restart: the outcome of a call that an earlier daemon started, waiting for it if it still runs.

        None when no adopted box knows the call: then its effect is unknown.
        """
        ...

    async def stop_all(self, key: BoxKey) -> int:
        """Kill everything that runs in this box except the runner; returns how many processes were left."""
        ...

    async def end(self, key: BoxKey) -> None: ...

    def statuses(self) -> tuple[BoxStatus, ...]: ...

    async def aclose(self) -> None:
        """Let go of all boxes without ending them."""
        ...


class BackgroundBoxes(Protocol):
    """Calls that outlive the waiting for them. Each is named by its box and its key, also for a later daemon.

    A box ends neither when it is idle nor to make room for others while such a call runs in it.
    """

    async def run_a_while(
        self, key: BoxKey, call: BoxCall, on_output: OutputSink | None, foreground_s: float
    ) -> BoxOutcome | StillRuns:
        """`Boxes.run`, but a call that has not ended after `foreground_s` is left to run. Raises as that does."""
        ...

    async def collect_a_while(self, key: BoxKey, call_key: str, foreground_s: float) -> BoxOutcome | StillRuns | None:
        """`Boxes.collect`, with the same end of the waiting."""
        ...

    async def begin(self, key: BoxKey, call: BoxCall) -> BoxOutcome | None:
        """Start a call and leave it to run; an outcome when it has ended already, mostly because it could not begin.

        Raises:
            BoxUnavailable: nothing was run.
            BoxLost: the box went away meanwhile.
        """
        ...

    async def watch(self, key: BoxKey, call_key: str) -> BoxOutcome | None:
        """Wait for the end of a call that was left to run; its text is the last of its output. None when no box knows
        it any more. Cancelling the waiter leaves it running."""
        ...

    async def read(self, key: BoxKey, call_key: str, offset: int, limit_bytes: int) -> OutputPart | None:
        """What a call has written from `offset` on (negative: from its end); None when no box knows it any more."""
        ...

    async def write(self, key: BoxKey, call_key: str, data: bytes) -> bool | None:
        """To a session's standard input; False when it takes no more, None when no box knows the call any more."""
        ...

    async def cancel(self, key: BoxKey, call_key: str) -> None:
        """TERM to the call's processes, KILL two seconds later. Returns at once; `watch` tells the end."""
        ...
