"""The hub's tokens: made at the first start, kept as digests, handed over in private files."""

import asyncio
import hmac
import os
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_hub.access.core.credentials import digest_of
from lodger_hub.store.contract import HubStore, StoredToken, TokenRole

TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling, once the token was found good."""

    role: TokenRole
    token_id: str
    digest: bytes


class TokenBook:
    """The live tokens, in memory."""

    def __init__(self, tokens: Sequence[StoredToken]) -> None:
        self._tokens = list(tokens)

    def find(self, digest: bytes) -> Principal | None:
        """Compares with every live token, so that the time taken says nothing about any of them."""
        found: StoredToken | None = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return None if found is None else Principal(found.role, found.id, found.digest)


def token_file(state: Path, role: TokenRole) -> Path:
    return state / f"{role.value}.token"


async def prepare_tokens(store: HubStore, state: Path, now_ms: int) -> TokenBook:
    """Make what is missing of the two bootstrap tokens. The file of a role is its one valid token: deleting or
    replacing it before a start revokes the token that was there."""
    for role in TokenRole:
        text = await asyncio.to_thread(_read_or_make, token_file(state, role))
        digest = digest_of(text)
        of_role = [token for token in await store.tokens() if token.role is role]
        await store.revoke_tokens([token.id for token in of_role if token.digest != digest])
        if all(token.digest != digest for token in of_role):
            await store.add_token(StoredToken(f"token-{uuid.uuid4()}", role, digest, now_ms))
    return TokenBook(await store.tokens())


def _read_or_make(file: Path) -> str:
    if file.exists():
        file.chmod(0o600)
        kept = file.read_bytes()[:1024].decode("ascii", "replace").strip()
        # An empty or torn file is no token: a short one could be guessed.
        if len(kept) >= TOKEN_BYTES:
            return kept
    text = secrets.token_urlsafe(TOKEN_BYTES)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)
    return text
