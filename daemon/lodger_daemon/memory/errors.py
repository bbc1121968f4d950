"""What can go wrong in this room.

MemoryFailure
├── MemoryUnavailable   no memory can be had for an agent
├── GitFailed           a git of ours ended badly
├── RefMoved            another writer was faster
├── LockBusy            another process holds an agent's lock
├── TooLargeForABox     what is published holds an object that no box takes
└── WriterRefused       a background writer cannot be opened, or not be dealt with like that
"""

from enum import StrEnum


class MemoryFailure(Exception):
    """The base of this room's errors."""

    retryable = False


class MemoryUnavailable(MemoryFailure):
    """Neither a clone nor a new repository can be had. The text says why and what to do."""

    retryable = True


class GitFailed(MemoryFailure):
    """A git command on a repository of ours failed. Never holds a credential: those are not in argv."""

    def __init__(self, command: str, exit_code: int | None, stderr: str) -> None:
        super().__init__(command, exit_code, stderr)
        self.command = command
        self.exit_code = exit_code
        self.stderr = stderr

    def __str__(self) -> str:
        how = "took too long" if self.exit_code is None else f"ended with {self.exit_code}"
        return f"git {self.command} {how}: {self.stderr.strip()[-500:]}"


class RefMoved(MemoryFailure):
    """A branch was not where it should have been, so nothing was changed. Read again and retry."""

    retryable = True


class LockBusy(MemoryFailure):
    """Another process has held the agent's lock for too long. Look for a second Lodger on the same state folder."""

    retryable = True


class TooLargeForABox(MemoryFailure):
    """One object, of a history that another program pushed, does not go into a box, so that no checkout can follow."""

    def __init__(self, oid: str, limit_bytes: int) -> None:
        super().__init__(oid, limit_bytes)
        self.oid = oid
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return (
            f"the history holds an object, {self.oid[:12]}, of more than the {self.limit_bytes:,} bytes that a box"
            " takes at once, so no checkout can have it. Have the history written anew without it where it came from,"
            " then `lodger memory resolve --theirs`"
        )


class WriterSkip(StrEnum):
    """Why a background writer was not opened or cannot be dealt with like that."""

    BUSY = "busy"
    """One of its kind is open for this agent."""
    TOO_EARLY = "too_early"
    """The last ones of its kind failed."""
    NOTHING_TO_READ = "nothing_to_read"
    OTHER_STATE = "other_state"
    UNKNOWN = "unknown"


class WriterRefused(MemoryFailure):
    """Nothing was changed. The text says why."""

    def __init__(self, skip: WriterSkip, text: str) -> None:
        super().__init__(text)
        self.skip = skip
