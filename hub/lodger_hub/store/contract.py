"""What the hub keeps, whatever engine holds it.

Every method is durable when it returns. Times are epoch milliseconds, as on the wire.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

REVOKED_KEPT: Final = 1000
"""Machines that slept when a device was revoked are told when they come back. A person revokes some in a lifetime."""


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
    device_id: str
    """Whose it is; it ends with that device."""


@dataclass(frozen=True, slots=True)
class Device:
    """Something that holds a token: a paired phone, or the programs of the hub's own machine."""

    id: str
    name: str
    role: TokenRole
    paired_at_ms: int
    last_seen_at_ms: int | None


@dataclass(frozen=True, slots=True)
class PairingCode:
    digest: bytes
    role: TokenRole
    """What the device that uses the code may do; decided when it is made, not by who brings it."""
    made_at_ms: int
    expires_at_ms: int


class MailState(StrEnum):
    WAITING = "waiting"
    DELIVERED = "delivered"
    """The machine has said that the message is stored there."""
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class MailDraft:
    """A message for a machine that may be asleep."""

    machine_id: str
    sender_id: str
    client_message_id: str
    """One message per id, machine and sender, however often it is posted."""
    request_id: str
    """Under which the machine acknowledges it."""
    frame: str
    posted_at_ms: int


@dataclass(frozen=True, slots=True)
class Mail:
    seq: int
    machine_id: str
    sender_id: str
    client_message_id: str
    request_id: str
    state: MailState
    frame: str | None
    """Only as long as it waits."""
    size_bytes: int
    posted_at_ms: int
    settled_at_ms: int | None
    reason: str | None
    attempts: int
    """How often it was handed over without a word from the machine."""


@dataclass(frozen=True, slots=True)
class MailLimits:
    """Of what waits. Times and sizes are generous for text and a few pictures; a hub is a small computer."""

    per_machine: int = 100
    per_machine_bytes: int = 16 * 1024 * 1024
    total_bytes: int = 256 * 1024 * 1024
    wait_ms: int = 7 * 24 * 3600 * 1000
    """Older than this nobody expects a message to be carried out."""
    memory_ms: int = 7 * 24 * 3600 * 1000
    """How long a settled message is remembered, so that posting it again does nothing."""


@dataclass(frozen=True, slots=True)
class MailKept:
    """It is stored, now or by an earlier call."""

    mail: Mail


@dataclass(frozen=True, slots=True)
class MailboxFull:
    reason: str


@dataclass(frozen=True, slots=True)
class SenderGone:
    """The sender's device was revoked meanwhile."""


@dataclass(frozen=True, slots=True)
class Registration:
    device_id: str
    connection_name: str
    listener_instance_id: str | None
    metadata: Mapping[str, object]
    connection_id: str
    """Fresh for each registration; an older one of the same device stops being known."""
    bond: "Bond | None" = None
    """Nothing asks for none and leaves the one there is."""


@dataclass(frozen=True, slots=True)
class Bond:
    """Whose token a machine registers with. The first to come has the machine's id from then on, until it is revoked
    or the person releases the machine."""

    device_id: str
    one_machine: bool
    """Whether that token is good for one machine only."""


@dataclass(frozen=True, slots=True)
class MachineTaken:
    """Nothing was registered: the id belongs to another token."""

    owner: str
    """The name of that token's device."""


@dataclass(frozen=True, slots=True)
class TokenTaken:
    """Nothing was registered: the token belongs to another machine."""

    machine_id: str
    machine_name: str


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
    memory_synced_at_ms: int | None = None
    """When this machine last had its memory level with the hub's, as it says itself."""
    bound_to: str | None = None
    """The device whose token may register it; nothing when whoever comes first may."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    at_ms: int
    event: str
    source: str
    """The address it came from."""
    subject: str = ""
    """What it was about: a device's or a machine's id. Never a secret."""


class HubStore(Protocol):
    async def register(self, registration: Registration, at_ms: int) -> Environment | MachineTaken | TokenTaken: ...

    async def release(self, machine_id: str) -> bool:
        """Whoever registers it next has it. False when there is no such machine."""
        ...

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

    async def note_memory_sync(self, connection_id: str, at_ms: int) -> None:
        """Never moves backwards."""
        ...

    async def devices(self) -> Sequence[Device]:
        """In order of pairing."""
        ...

    async def add_device(self, device: Device) -> None:
        """Does nothing when there is one of that id."""
        ...

    async def note_device_seen(self, device_id: str, at_ms: int) -> None: ...

    async def remove_device(self, device_id: str, at_ms: int) -> bool:
        """With its tokens and all mail from it; its id is remembered as revoked. False when there is none."""
        ...

    async def revoked_devices(self) -> Sequence[str]:
        """The ids of the last `REVOKED_KEPT` devices that were revoked, the newest last."""
        ...

    async def replace_tokens(self, token: StoredToken) -> bool:
        """This one instead of all others of its device. False when the device is gone."""
        ...

    async def add_pairing(self, code: PairingCode, keep: int) -> None:
        """Of the codes that are there only the newest `keep` stay."""
        ...

    async def redeem_pairing(self, digest: bytes, device: Device, token: StoredToken, now_ms: int) -> TokenRole | None:
        """Use a code up and make device and token with the code's role, which is returned; all or nothing. Nothing
        when no code of that digest is valid now; of two calls with one code, one gets it."""
        ...

    async def post_mail(self, draft: MailDraft, limits: MailLimits) -> MailKept | MailboxFull | SenderGone: ...

    async def next_mail(self, machine_id: str, after_seq: int) -> Mail | None:
        """The oldest that waits for this machine behind `after_seq`."""
        ...

    async def settle_mail(self, seq: int, state: MailState, reason: str | None, at_ms: int) -> None:
        """It no longer waits; what it said is forgotten. Does nothing to mail that is settled already."""
        ...

    async def note_mail_attempt(self, seq: int) -> int:
        """Returns how many there were, this one included."""
        ...

    async def sent_mail(self, machine_id: str, sender_id: str) -> Sequence[Mail]: ...

    async def take_mail_back(self, machine_id: str, sender_id: str, client_message_id: str) -> bool:
        """True when it waited and is gone now."""
        ...

    async def age_mail(self, now_ms: int, limits: MailLimits) -> None:
        """Expire what has waited too long, forget what was settled long ago."""
        ...

    async def record(self, entry: AuditEntry) -> None: ...

    async def audit(self, limit: int) -> Sequence[AuditEntry]:
        """The newest first."""
        ...

    async def aclose(self) -> None: ...
