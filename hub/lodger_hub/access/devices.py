"""Who holds a token: pairing, the list, revoking and rotating."""

import asyncio
import dataclasses
import logging
import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from lodger_hub.access.core.credentials import digest_of
from lodger_hub.access.core.lockout import Lockout
from lodger_hub.access.core.pairing import (
    CODE_CHARACTERS,
    CODE_LIFE_S,
    CODES_AT_ONCE,
    DEVICES_AT_ONCE,
    WRONG_CODES_IN_ALL,
    WRONG_CODES_PER_SOURCE,
    WRONG_LOCK_S,
    WRONG_WINDOW_S,
    code_from,
    device_name,
    distinct_name,
    read_code,
)
from lodger_hub.access.tokens import Principal, TokenBook, new_token, own_device_id, token_file
from lodger_hub.durable_files import write_durably
from lodger_hub.errors import RequestRefused, StoreFailed
from lodger_hub.store.contract import AuditEntry, Device, HubStore, PairingCode, StoredToken, TokenRole

logger = logging.getLogger(__name__)

EVERYWHERE: Final = "*"
"""The source under which guesses are counted in all."""
SEEN_EVERY_MS: Final = 60_000
"""How exactly it is kept on disk when a device was last seen."""

REFUSED_KEPT: Final = 1000
"""Pairs of a machine's id and a token, so that no token can push everything else out of the audit log."""


class Proofs(Protocol):
    def forget_proof(self, digest: bytes) -> None:
        """A revoked token is no better than a wrong one."""
        ...


class OpenSockets(Protocol):
    def end_token(self, token_id: str) -> None:
        """End every socket that was opened with it, at once, and drop what it still had to say."""
        ...

    def announce_revoked(self, device_id: str) -> None:
        """Tell the machines to drop what this device has left with them."""
        ...


@dataclass(frozen=True, slots=True)
class NewCode:
    code: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class Paired:
    device: Device
    token: str
    """Told once."""


def _code_lock() -> Lockout:
    return Lockout(WRONG_CODES_PER_SOURCE, WRONG_WINDOW_S, WRONG_LOCK_S)


def _total_lock() -> Lockout:
    return Lockout(WRONG_CODES_IN_ALL, WRONG_WINDOW_S, WRONG_LOCK_S)


@dataclass(frozen=True, slots=True)
class Devices:
    """One per hub."""

    store: HubStore
    book: TokenBook
    proofs: Proofs
    """Of tokens: a revoked one proves nothing any more."""
    sockets: OpenSockets
    state: Path
    mono: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    _per_source: Lockout = field(default_factory=_code_lock)
    _in_all: Lockout = field(default_factory=_total_lock)
    _seen_at_ms: dict[str, int] = field(default_factory=dict)
    _seen_kept_at_ms: dict[str, int] = field(default_factory=dict)
    """Of these moments the one that is in the store."""
    _refused: set[tuple[str, str]] = field(default_factory=set)
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Store, book and token files change together; without it a revoked device could be put back by a rotation under
    way, and of two rotations at once the file could keep the token of one and the store that of the other."""

    async def make_code(self, source: str, role: TokenRole = TokenRole.CLIENT) -> NewCode:
        """A code that pairs one device within ten minutes. An older one beyond the fifth stops working."""
        now_ms = self._now_ms()
        code = code_from(secrets.token_bytes(CODE_CHARACTERS))
        made = PairingCode(digest_of(code), role, now_ms, now_ms + CODE_LIFE_S * 1000)
        await self.store.add_pairing(made, CODES_AT_ONCE)
        await self._record("pairing_code_made", source, role.value)
        return NewCode(code, made.expires_at_ms)

    async def pair(self, typed: str, wished_name: str, source: str) -> Paired:
        """Raises: RequestRefused for a wrong code (counted), too many of them, a bad name, too many devices."""
        self._check_lock(source)
        name = device_name(wished_name)
        if name is None:
            raise RequestRefused(400, "invalid_name", "give the device a name that can be read")
        if len(await self.store.devices()) >= DEVICES_AT_ONCE:
            raise RequestRefused(409, "too_many_devices", "revoke a device first: `lodger devices list` shows them")
        now_ms = self._now_ms()
        device = Device(f"device-{uuid.uuid4()}", name, TokenRole.CLIENT, now_ms, now_ms)
        text, token = new_token(device.role, device.id, now_ms)
        code = read_code(typed)
        # Looked at again, and counted before the store is asked: guesses that arrive together are as many guesses.
        self._check_lock(source)
        here = self._per_source.wrong(source, self.mono())
        in_all = self._in_all.wrong(EVERYWHERE, self.mono())
        paired = None if code is None else await self._redeem(code, device, token)
        if paired is None:
            if here or in_all:
                await self._record("pairing_locked_out", source)
                logger.warning("many wrong pairing codes, the last from %s: not listening for a while", source)
            raise RequestRefused(
                403, "wrong_code", "this code is wrong, used or too old; `lodger pair` on the hub's machine shows one"
            )
        self._per_source.not_wrong(source, closed=here)
        self._in_all.not_wrong(EVERYWHERE, closed=in_all)
        await self._record("paired", source, device.id)
        return Paired(paired, text)

    async def list(self) -> Sequence[Device]:
        """Each with the latest moment at which it was heard of."""
        return [self._with_last_seen(device) for device in await self.store.devices()]

    async def note_seen(self, device_id: str) -> None:
        """A sign of life. A device that was revoked meanwhile leaves nothing behind."""
        if not self.book.has_device(device_id):
            return
        now_ms = self._now_ms()
        self._seen_at_ms[device_id] = now_ms
        if now_ms - self._seen_kept_at_ms.get(device_id, 0) < SEEN_EVERY_MS:
            return
        self._seen_kept_at_ms[device_id] = now_ms
        try:
            await self.store.note_device_seen(device_id, now_ms)
        except StoreFailed as error:
            # Only the moment shown is older than it could be.
            logger.warning("%s", error)

    async def note_refused_machine(self, machine_id: str, caller: Principal, source: str) -> None:
        """In the audit log, once for each in this hub's life: a daemon tries again without end."""
        met = (machine_id, caller.device_id)
        if met not in self._refused and len(self._refused) < REFUSED_KEPT:
            self._refused.add(met)
            await self._record("machine_refused", source, f"{machine_id} with the token of {caller.device_id}")

    async def note_released_machine(self, machine_id: str, source: str) -> None:
        await self._record("machine_released", source, machine_id)

    async def revoke(self, device_id: str, source: str) -> None:
        """Its tokens are refused and its sockets ended before this waits for the store; then device, tokens and
        waiting mail are gone for good. Raises: RequestRefused."""
        if device_id in {own_device_id(role) for role in TokenRole}:
            raise RequestRefused(
                409, "own_device", "the hub's own programs need their token; `lodger devices rotate` replaces it"
            )
        self._end_tokens(device_id)
        async with self._changing:
            # Again: a rotation that was under way may have made a new one.
            self._end_tokens(device_id)
            removed = await self.store.remove_device(device_id, self._now_ms())
        if not removed:
            raise RequestRefused(404, "unknown_device", "no device has that id; it may be revoked already")
        for moments in (self._seen_at_ms, self._seen_kept_at_ms):
            moments.pop(device_id, None)
        self.sockets.announce_revoked(device_id)
        await self._record("revoked", source, device_id)

    async def rotate(self, device_id: str, by: Principal, source: str) -> str | None:
        """A new token instead of all others of this device. It is returned to a paired device's caller; those of the
        hub's own programs are only ever in their files. Raises: RequestRefused."""
        if not by.is_owner and by.device_id != device_id:
            raise RequestRefused(403, "not_yours", "a device may replace its own token only; you may revoke others")
        device = next((device for device in await self.store.devices() if device.id == device_id), None)
        if device is None:
            raise RequestRefused(404, "unknown_device", "no device has that id")
        text, token = new_token(device.role, device.id, self._now_ms())
        own = device.id == own_device_id(device.role)
        async with self._changing:
            if own:
                # Before the store: a file that is newer than the store is taken up at the next start.
                await asyncio.to_thread(write_durably, token_file(self.state, device.role), f"{text}\n".encode())
            if not await self.store.replace_tokens(token):
                raise RequestRefused(404, "unknown_device", "the device was revoked meanwhile")
            self._end_tokens(device_id)
            self.book.add(token)
        await self._record("rotated", source, device_id)
        return None if own else text

    def _end_tokens(self, device_id: str) -> None:
        for token in self.book.remove_device(device_id):
            self.proofs.forget_proof(token.digest)
            self.sockets.end_token(token.id)

    def _check_lock(self, source: str) -> None:
        now = self.mono()
        wait_s = max(self._per_source.wait_s(source, None, now), self._in_all.wait_s(EVERYWHERE, None, now))
        if wait_s > 0:
            headers = {"Retry-After": str(int(wait_s) + 1)}
            raise RequestRefused(429, "locked_out", "too many wrong codes; wait a little", headers)

    async def _redeem(self, code: str, device: Device, token: StoredToken) -> Device | None:
        """The device as it was paired: with the code's role, and a name that no other has."""
        async with self._changing:
            others = {other.name for other in await self.store.devices()}
            device = dataclasses.replace(device, name=distinct_name(device.name, others))
            role = await self.store.redeem_pairing(digest_of(code), device, token, device.paired_at_ms)
            if role is None:
                return None
            self.book.add(dataclasses.replace(token, role=role))
            return dataclasses.replace(device, role=role)

    def _with_last_seen(self, device: Device) -> Device:
        seen = self._seen_at_ms.get(device.id, device.last_seen_at_ms)
        return Device(device.id, device.name, device.role, device.paired_at_ms, seen)

    async def _record(self, event: str, source: str, subject: str = "") -> None:
        await self.store.record(AuditEntry(self._now_ms(), event, source, subject))

    def _now_ms(self) -> int:
        return int(self.wall() * 1000)
