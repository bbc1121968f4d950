"""Where providers' keys rest on this machine.

A key is looked for in this order: what the person stored with `connect` (the system keyring where it works, else a
file only its owner can read), a credential the service manager hands in, the provider's environment variable. Only
model workers read keys; the daemon touches one only while it stores it.
"""

import json
import os
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from lodger_daemon.durable_files import write_durably
from lodger_daemon.models.core.json_fields import as_list, parse_object
from lodger_tools.json_value import JsonObject

KeySource: TypeAlias = Literal["keyring", "file", "credential", "environment", "none"]

_T = TypeVar("_T")

KEYRING_LIMIT_S: Final = 10.0
"""A locked keyring may wait for a person who is not there. Quiet machines need a third of a second to find the backend
(ECOSYSTEM.md section 6), busy ones many times that, and a key that is given up too early is a turn that fails."""
_KEY_LIMIT_BYTES: Final = 64 * 1024
_SERVICE: Final = "lodger"


class KeyRefused(Exception):
    """A key cannot be read or stored safely; the text says what to do."""


class Keyring(Protocol):
    """The three calls of the keyring library that are used."""

    def get_password(self, service: str, name: str) -> str | None: ...
    def set_password(self, service: str, name: str, value: str) -> None: ...
    def delete_password(self, service: str, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Key:
    """A secret: its text form shows nothing."""

    value: str
    source: KeySource

    def __repr__(self) -> str:
        return f"Key(***, {self.source})"


def system_keyring() -> Keyring | None:
    """The keyring of this session, or None where there is none that works without asking. Slow to import."""
    import keyring

    backend = keyring.get_keyring()
    # Priority below 1 marks stand-ins; those of keyrings.alt ask for a password on the terminal.
    if backend.priority < 1 or type(backend).__module__.startswith("keyrings.alt"):
        return None
    return backend


class KeyStore:
    """Every method blocks and belongs in a thread.

    Args:
        secrets: the folder of key files and of the note which store was chosen.
        environment: the daemon's or worker's own variables.
        find_keyring: `system_keyring`, or another for tests.
    """

    def __init__(
        self,
        secrets: Path,
        environment: Mapping[str, str],
        find_keyring: Callable[[], Keyring | None] = system_keyring,
    ) -> None:
        self._secrets = secrets
        self._environment = environment
        self._find_keyring = find_keyring

    def read(self, provider: str, variables: tuple[str, ...]) -> Key | None:
        """Raises: KeyRefused for a key file that others can read, a keyring that does not answer, or what is no key."""
        key = self._read(provider, variables)
        if key is not None and not key.value.isprintable():
            # No request can carry it, and whoever says so may repeat it in a spelling that nobody would black out.
            raise KeyRefused(f"The key of {provider} holds a line break or another character that no key has.")
        return key

    def _read(self, provider: str, variables: tuple[str, ...]) -> Key | None:
        source = self.source(provider, variables)
        match source:
            case "keyring":
                value = _within_limit(lambda: self._keyring().get_password(_SERVICE, self._entry(provider)))
                return Key(value, source) if value else None
            case "file":
                return Key(_read_private(self._file(provider)), source)
            case "credential":
                return Key(self._credential(provider).read_text()[:_KEY_LIMIT_BYTES].strip(), source)
            case "environment":
                return next(Key(self._environment[v], source) for v in variables if self._environment.get(v))
            case "none":
                return None

    def source(self, provider: str, variables: tuple[str, ...]) -> KeySource:
        """Where a key would be read from; reads none."""
        if provider in self._in_keyring():
            return "keyring"
        if self._file(provider).is_file():
            return "file"
        if self._environment.get("CREDENTIALS_DIRECTORY") and self._credential(provider).is_file():
            return "credential"
        if any(self._environment.get(variable) for variable in variables):
            return "environment"
        return "none"

    def store(self, provider: str, value: str) -> KeySource:
        """Raises: KeyRefused."""
        if not value or len(value.encode()) > _KEY_LIMIT_BYTES or any(ord(c) < 32 for c in value):
            raise KeyRefused("That is not a key: it must be one line of text.")
        if self._keyring_works():
            _within_limit(lambda: self._keyring().set_password(_SERVICE, self._entry(provider), value))
            self._note("keyring", self._in_keyring() | {provider})
            self._file(provider).unlink(missing_ok=True)
            return "keyring"
        self._write_private(self._file(provider), value)
        self._note("file", self._in_keyring() - {provider})
        return "file"

    def forget(self, provider: str) -> bool:
        """False when nothing was stored here. Raises: KeyRefused."""
        stored = self._in_keyring()
        if provider in stored:
            _within_limit(lambda: self._keyring().delete_password(_SERVICE, self._entry(provider)))
            self._note("keyring", stored - {provider})
            return True
        if not self._file(provider).exists():
            return False
        self._file(provider).unlink()
        return True

    def _keyring_works(self) -> bool:
        """Settled once, by a round trip; the answer is kept."""
        if choice := self._read_note().get("choice"):
            return choice == "keyring"
        try:
            return _within_limit(lambda: _round_trip(self._find_keyring(), self._entry("probe")))
        except KeyRefused:
            return False

    def _keyring(self) -> Keyring:
        found = self._find_keyring()
        if found is None:
            raise KeyRefused("The system keyring that holds this key is gone; run `lodger connect` again.")
        return found

    def _entry(self, provider: str) -> str:
        # Two Lodgers of one person must not overwrite each other's keys.
        return f"{self._secrets}:{provider}"

    def _file(self, provider: str) -> Path:
        return self._secrets / f"{provider}.key"

    def _credential(self, provider: str) -> Path:
        return Path(self._environment.get("CREDENTIALS_DIRECTORY", "")) / provider

    def _in_keyring(self) -> frozenset[str]:
        return frozenset(str(name) for name in as_list(self._read_note().get("in_keyring")))

    def _read_note(self) -> JsonObject:
        try:
            return parse_object((self._secrets / "keys.json").read_bytes()) or {}
        except OSError:
            return {}

    def _note(self, choice: str, in_keyring: frozenset[str]) -> None:
        fields = {"choice": choice, "in_keyring": sorted(in_keyring)}
        self._write_private(self._secrets / "keys.json", json.dumps(fields))

    def _write_private(self, path: Path, text: str) -> None:
        self._secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._secrets.chmod(0o700)
        write_durably(path, text)


def _read_private(path: Path) -> str:
    # Opened once and judged by its descriptor, so that nobody can swap the file between look and read.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(file.fileno())
        if stat.S_IMODE(facts.st_mode) & 0o077 or facts.st_uid != os.geteuid():
            raise KeyRefused(f"Others can read the key file {path}; run: chmod 600 {path}")
        return file.read(_KEY_LIMIT_BYTES).decode().strip()


def _round_trip(keyring: Keyring | None, entry: str) -> bool:
    if keyring is None:
        return False
    keyring.set_password(_SERVICE, entry, "probe")
    same = keyring.get_password(_SERVICE, entry) == "probe"
    keyring.delete_password(_SERVICE, entry)
    return same


def _within_limit(call: Callable[[], _T]) -> _T:
    """Run a keyring call in a thread of its own; one that hangs is left behind. Raises: KeyRefused."""
    results: list[_T] = []
    faults: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as fault:  # noqa: BLE001 - keyring backends raise errors of their own making
            faults.append(fault)

    thread = threading.Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(KEYRING_LIMIT_S)
    if results:
        return results[0]
    why = (
        f"{type(faults[0]).__name__}: {faults[0]}"
        if faults
        else f"it did not answer within {KEYRING_LIMIT_S:.0f} seconds"
    )
    raise KeyRefused(f"The system keyring failed ({why}). Unlock it, or set the key again with `lodger connect`.")
