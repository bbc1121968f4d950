"""Everything the store can refuse, and what to do about it.

StoreError
├── StoreFull            no space; nothing was written; retryable, the store recovers by itself
├── StoreBusy            another process holds the database; nothing was written; retryable
├── StoreFailed          the disk or SQLite failed in another way; nothing was written; retryable
├── StoreClosed          the database was closed
├── StoreDamaged         the file is no database of ours or is corrupt
├── StoreTooNew          a newer Lodger wrote this database
├── StoreOwned           another daemon of this machine owns the state folder
├── OwnershipLost        another daemon has taken over since; this one must stop acting
└── ConstraintViolated   a row that must not exist; only this write was undone
    ├── UnknownRow       a row that was to be changed does not exist
    ├── StateConflict    a row is not in the state that the change starts from
    └── RunActive        the conversation has an active run already
"""

from pathlib import Path
from typing import ClassVar


class StoreError(Exception):
    """The base of all of them. Whatever raises one has changed nothing."""

    retryable: ClassVar[bool] = False


class StoreFull(StoreError):
    retryable = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"The disk that holds {self.path} is full. Free some space; Lodger goes on by itself."


class StoreBusy(StoreError):
    retryable = True

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"Another program holds {self.path} locked. Close it, then try again."


class StoreFailed(StoreError):
    retryable = True

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return f"Writing to {self.path} failed: {self.detail}. Check the disk."


class StoreClosed(StoreError):
    def __str__(self) -> str:
        return "The database is closed; the daemon is stopping."


class StoreDamaged(StoreError):
    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(path, detail)
        self.path = path
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"{self.path} is damaged or not a database of Lodger's ({self.detail}). "
            "Nothing was changed. Move it away to start empty, or put a backup in its place."
        )


class StoreTooNew(StoreError):
    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(path, found, known)
        self.path = path
        self.found = found
        self.known = known

    def __str__(self) -> str:
        return (
            f"{self.path} was written by a newer Lodger (schema {self.found}; this one knows {self.known}). "
            "Nothing was changed. Update Lodger."
        )


class StoreOwned(StoreError):
    def __init__(self, lock: Path, owner_pid: int | None) -> None:
        super().__init__(lock, owner_pid)
        self.lock = lock
        self.owner_pid = owner_pid

    def __str__(self) -> str:
        who = f" (process {self.owner_pid})" if self.owner_pid else ""
        return f"Another Lodger daemon{who} runs with this state folder ({self.lock.parent}). Stop it first."


class OwnershipLost(StoreError):
    def __init__(self, held_epoch: int, current_epoch: int) -> None:
        super().__init__(held_epoch, current_epoch)
        self.held_epoch = held_epoch
        self.current_epoch = current_epoch

    def __str__(self) -> str:
        return (
            f"Another Lodger daemon has taken over (epoch {self.current_epoch}, this one has {self.held_epoch}). "
            "This one must stop."
        )


class ConstraintViolated(StoreError):
    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return f"The store refused a change: {self.detail}."


class UnknownRow(ConstraintViolated):
    """What was to be changed does not exist."""


class StateConflict(ConstraintViolated):
    """The row is not in the state that the change starts from."""


class RunActive(ConstraintViolated):
    """One conversation has at most one active run."""
