"""What one box may see and do, as a plain value.

The mount order follows from the kind of each entry, not from who wrote it down first:

    the host, read-only  <  veils  <  private folders  <  shown  <  hidden  <  carved  <  /run/lodger

A later layer covers an earlier one. Masks come after everything that is shown, so that neither a bind nor a planted
link lifts one (SANDBOX-NOTES.md section 3); only what the daemon asked for by name is carved out of a mask.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from lodger_sandbox.contract import BoxLimits, SandboxUnavailable, WrittenFile

PROGRAM_FOLDER: Final = "/run/lodger/x"
INTERPRETER_FOLDER: Final = "/run/lodger/python"
RUN_FOLDER: Final = "/run/lodger"


class PolicyRefused(SandboxUnavailable):
    """The request asks for something no box may have. Nothing was started."""


class Profile(StrEnum):
    AGENT = "agent"
    STRICT = "strict"
    MEMORY_WORKER = "memory_worker"
    PERSON = "person"
    GUARD = "guard"
    READ_ONLY = "read_only"


class PathKind(StrEnum):
    """What stands at a path, without following a link there."""

    FOLDER = "folder"
    FILE = "file"
    LINK = "link"
    OTHER = "other"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that runs the program inside."""

    prefix: str
    executable: str
    """Below `prefix`."""
    open_to_all: bool
    """Every folder on the way to `prefix` may be entered by everyone, so that it can be used where it is."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the pure part has to know of this machine."""

    kinds: Mapping[str, PathKind]
    interpreter: Interpreter

    def kind(self, path: str) -> PathKind:
        return self.kinds.get(path, PathKind.MISSING)


@dataclass(frozen=True, slots=True)
class PrivateFolder:
    """A new, empty, writable folder in memory that covers the host's."""

    path: str
    mode: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Shown:
    """A host folder or file seen inside."""

    source: str
    target: str
    writable: bool
    why: str


@dataclass(frozen=True, slots=True)
class Hidden:
    """Covered by nothingness. A folder with `passable` can be walked through to what is carved out of it."""

    path: str
    is_folder: bool
    passable: bool = False


@dataclass(frozen=True, slots=True)
class ToCreate:
    """A protected entry that is missing and must exist before it can be protected (ATTACKS.md F2)."""

    path: str
    is_folder: bool
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Policy:
    profile: Profile
    workspace: str
    home: str
    veils: tuple[str, ...]
    """Folders of other people and of services with sockets: empty and read-only inside."""
    private: tuple[PrivateFolder, ...]
    shown: tuple[Shown, ...]
    hidden: tuple[Hidden, ...]
    carved: tuple[Shown, ...]
    run: tuple[Shown, ...]
    """Below /run/lodger: the program, its extra folders, the interpreter."""
    to_create: tuple[ToCreate, ...]
    command: tuple[str, ...]
    """What bwrap starts, as seen inside; arguments may be added behind it."""
    written: tuple[WrittenFile, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    limits: BoxLimits = field(default_factory=BoxLimits)

    @property
    def nice(self) -> int:
        """A call waits for what the daemon itself does in a box, so that does not yield."""
        return 0 if self.profile in (Profile.MEMORY_WORKER, Profile.GUARD) else self.limits.nice

    @property
    def workspace_is_writable(self) -> bool:
        return any(item.target == self.workspace and item.writable for item in (*self.shown, *self.carved))
