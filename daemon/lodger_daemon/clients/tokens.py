"""Capability tokens of the app-server: kept as hashes, compared in constant time, read anew when their file changes."""

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_daemon.clients.core.admission import TOKEN_LIMIT_CHARS, Credential
from lodger_daemon.clients.errors import TokenFileInvalid
from lodger_daemon.durable_files import make_durably

TOKEN_FILE_LIMIT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class CapabilityToken:
    """Exactly one of a file that holds the token and the token's SHA-256 in hexadecimal."""

    file: Path | None = None
    sha256_hex: str | None = None
    required: bool = True
    """Everybody needs it, as with `--ws-auth`. False: only those need it whom nothing else vouches for."""


class TokenChecker:
    """Checks what a request brings. Blocking: it looks at the file each time, so that a new token counts at once."""

    def __init__(self, token: CapabilityToken) -> None:
        """Raises: TokenFileInvalid."""
        if (token.file is None) == (token.sha256_hex is None):
            raise TokenFileInvalid("give exactly one of a token file and a token's SHA-256")
        if token.sha256_hex is not None and not _is_sha256(token.sha256_hex):
            raise TokenFileInvalid("a token's SHA-256 has 64 hexadecimal digits")
        self._token = token
        self.required = token.required
        self._expected()

    def check(self, authorization: list[str]) -> Credential:
        """Judge the Authorization headers of one request."""
        if not authorization:
            return Credential.ABSENT
        scheme, _, given = authorization[0].strip().partition(" ")
        if len(authorization) > 1 or scheme.lower() != "bearer" or not given.strip():
            return Credential.NOT_BEARER
        if len(given) > TOKEN_LIMIT_CHARS:
            return Credential.WRONG
        try:
            expected = self._expected()
        except TokenFileInvalid:
            return Credential.WRONG
        digest = hashlib.sha256(given.strip().encode("utf-8", "surrogateescape")).digest()
        return Credential.GOOD if hmac.compare_digest(digest, expected) else Credential.WRONG

    def _expected(self) -> bytes:
        if self._token.sha256_hex is not None:
            return bytes.fromhex(self._token.sha256_hex)
        assert self._token.file is not None
        return hashlib.sha256(read_token(self._token.file).encode()).digest()


def read_token(path: Path) -> str:
    """The token a file holds. Raises: TokenFileInvalid."""
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(TOKEN_FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise TokenFileInvalid(f"{path}: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise TokenFileInvalid(f"{path} can be read by others; run: chmod 600 {path}")
    token = content.decode("utf-8", "replace").strip()
    if not token or len(content) > TOKEN_FILE_LIMIT_BYTES:
        raise TokenFileInvalid(f"{path} holds no token")
    return token


def ensure_token(path: Path) -> str:
    """The token of this file, made (256 bits, mode 0600) if there is none. Raises: TokenFileInvalid, OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Of two starters both end with one token.
    with contextlib.suppress(FileExistsError):
        make_durably(path, secrets.token_urlsafe(32) + "\n")
    return read_token(path)


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and all(digit in "0123456789abcdefABCDEF" for digit in text)
