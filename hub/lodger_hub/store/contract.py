"""What the hub keeps, whatever engine holds it.

Every method is durable when it returns. Times are epoch milliseconds, as on the wire.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class TokenRole(StrEnum):
    MACHINE = "machine"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token as the hub knows it: never its text."""

    id: str
    role: TokenRole
    digest: bytes
    """SHA-256 of the token's text. Tokens are random, so no salt and no slow hash is needed."""
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class Registration:
    device_id: str
    connection_name: str
    listener_instance_id: str | None
    metadata: Mapping[str, object]
    connection_id: str
    """Fresh for each registration; an older one of the same device stops being known."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One machine as it last registered."""

    id: str
    """Never changes for a device; the cursor of the list."""
    connection_id: str
    device_id: str
    connection_name: str
    listener_instance_id: str | None
    metadata: Mapping[str, object]
    first_seen_at_ms: int
    last_seen_at_ms: int
    connected_at_ms: int | None
    last_heartbeat_at_ms: int | None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    at_ms: int
    event: str
    source: str


class HubStore(Protocol):
    async def register(self, registration: Registration, at_ms: int) -> Environment: ...

    async def by_connection(self, connection_id: str) -> Environment | None: ...

    async def by_device(self, device_id: str) -> Environment | None: ...

    async def environments(self, limit: int, after: str | None) -> Sequence[Environment]:
        """In order of first registration, beginning behind the id `after`. An unknown `after` gives nothing."""
        ...

    async def note_contact(self, connection_id: str, at_ms: int, *, connected: bool = False) -> None:
        """Move the last heartbeat; with `connected`, also when the socket was opened."""
        ...

    async def tokens(self) -> Sequence[StoredToken]: ...

    async def add_token(self, token: StoredToken) -> None: ...

    async def revoke_tokens(self, ids: Sequence[str]) -> None: ...

    async def record(self, entry: AuditEntry) -> None: ...

    async def audit(self, limit: int) -> Sequence[AuditEntry]:
        """The newest first."""
        ...

    async def aclose(self) -> None: ...
