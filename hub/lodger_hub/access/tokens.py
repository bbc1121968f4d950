"""The hub's tokens: made at the first start or at pairing, kept as digests, handed over in private files or once."""

import asyncio
import hmac
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_hub.access.core.credentials import digest_of
from lodger_hub.durable_files import write_durably
from lodger_hub.store.contract import Device, HubStore, StoredToken, TokenRole

TOKEN_BYTES: Final = 32


def own_device_id(role: TokenRole) -> str:
    """The device that stands for the programs of the hub's own machine: its token is in `token_file`."""
    return f"own-{role.value}"


OWN_NAMES: Final = {
    TokenRole.MACHINE: "machines with the hub's machine token",
    TokenRole.CLIENT: "programs on the hub's machine",
}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling, once the token was found good."""

    role: TokenRole
    token_id: str
    digest: bytes
    device_id: str

    @property
    def is_owner(self) -> bool:
        return self.device_id == own_device_id(TokenRole.CLIENT)


class TokenBook:
    """The live tokens, in memory. What is taken out here is refused from that moment on."""

    def __init__(self, tokens: Sequence[StoredToken]) -> None:
        self._tokens = {token.id: token for token in tokens}

    def find(self, digest: bytes) -> Principal | None:
        """Compares with every live token, so that the time taken says nothing about any of them."""
        found: StoredToken | None = None
        for token in self._tokens.values():
            if hmac.compare_digest(token.digest, digest):
                found = token
        return None if found is None else Principal(found.role, found.id, found.digest, found.device_id)

    def is_live(self, token_id: str) -> bool:
        return token_id in self._tokens

    def has_device(self, device_id: str) -> bool:
        return any(token.device_id == device_id for token in self._tokens.values())

    def add(self, token: StoredToken) -> None:
        self._tokens[token.id] = token

    def remove_device(self, device_id: str) -> Sequence[StoredToken]:
        """Returns the tokens that were live."""
        gone = [token for token in self._tokens.values() if token.device_id == device_id]
        for token in gone:
            del self._tokens[token.id]
        return gone


def new_token(role: TokenRole, device_id: str, now_ms: int) -> tuple[str, StoredToken]:
    """A token's text, which is known only here and to whoever gets it, and what is kept of it."""
    text = secrets.token_urlsafe(TOKEN_BYTES)
    return text, StoredToken(f"token-{uuid.uuid4()}", role, digest_of(text), now_ms, device_id)


def token_file(state: Path, role: TokenRole) -> Path:
    return state / f"{role.value}.token"


async def prepare_tokens(store: HubStore, state: Path, now_ms: int) -> TokenBook:
    """Make what is missing of the two bootstrap tokens. The file of a role is its one valid token beside those of
    paired devices: deleting or replacing it before a start revokes the token that was there."""
    for role in TokenRole:
        own = own_device_id(role)
        await store.add_device(Device(own, OWN_NAMES[role], role, now_ms, None))
        text = await asyncio.to_thread(_read_or_make, token_file(state, role))
        digest = digest_of(text)
        earlier = [token for token in await store.tokens() if token.device_id == own]
        await store.revoke_tokens([token.id for token in earlier if token.digest != digest])
        if all(token.digest != digest for token in earlier):
            await store.add_token(StoredToken(f"token-{uuid.uuid4()}", role, digest, now_ms, own))
    return TokenBook(await store.tokens())


def _read_or_make(file: Path) -> str:
    if file.exists():
        file.chmod(0o600)
        kept = file.read_bytes()[:1024].decode("ascii", "replace").strip()
        # An empty or torn file is no token: a short one could be guessed.
        if len(kept) >= TOKEN_BYTES:
            return kept
    text = secrets.token_urlsafe(TOKEN_BYTES)
    write_durably(file, f"{text}\n".encode())
    return text
