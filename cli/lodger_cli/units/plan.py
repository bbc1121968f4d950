"""What a service of this machine consists of: which programs, for whom, and the files that say so."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

HUB_PORT: Final = 8377
_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
SYSTEM_STATE: Final = Path("/var/lib/lodger")
"""State folder of the system variant under systemd (StateDirectory=lodger)."""

SYSTEM_CONFIG: Final = Path("/etc/lodger")
"""Its settings (ConfigurationDirectory=lodger)."""


class Part(StrEnum):
    """In the order of their start."""

    HUB = "hub"
    DAEMON = "daemon"


class Scope(StrEnum):
    USER = "user"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Credential:
    """A key that the service manager reads and hands to the daemon alone: a provider's name and an absolute file.

    Raises: UnfitCredential.
    """

    provider: str
    file: Path

    def __post_init__(self) -> None:
        words = str(self.file)
        if not _PROVIDER.fullmatch(self.provider):
            raise UnfitCredential(f"{self.provider!r} is no provider's name: small letters, digits, dots and dashes")
        if not self.file.is_absolute() or set(words) & set(" \t:"):
            raise UnfitCredential(f"{words!r} must be an absolute path without spaces and colons")


class UnfitCredential(ValueError):
    """A key's name or file that a unit cannot name; the text says why."""


class UnfitPath(ValueError):
    """A path or value that a unit file cannot carry safely."""

    def __init__(self, value: str) -> None:
        super().__init__(
            f"{value!r} holds a character that a unit file cannot carry (a quote, a backslash, a dollar sign or a "
            "control character): move it to a plain path"
        )


@dataclass(frozen=True, slots=True)
class Installation:
    """What all files of one service are made of."""

    scope: Scope
    parts: tuple[Part, ...]
    command: tuple[str, ...]
    """The installed `lodger`, as an absolute path, and arguments before the subcommand."""
    state: Path
    """The state folder the service will use."""
    user: str = ""
    """System scope: whom it runs as."""
    environment: tuple[tuple[str, str], ...] = ()
    credentials: tuple[Credential, ...] = ()
    """systemd: keys for the daemon."""
    port: int = HUB_PORT
    hub: tuple[str, ...] = ("hub", "--port", str(HUB_PORT))
    """The hub's subcommand with its options."""
    home: Path = field(default_factory=lambda: Path("/"))
    """launchd: the working folder."""

    def __post_init__(self) -> None:
        values = [*self.command, *self.hub, str(self.state), self.user]
        values += [word for pair in self.environment for word in pair]
        values += [str(credential.file) for credential in self.credentials]
        for value in values:
            if not value.isprintable() or set(value) & set("\"'\\$"):
                raise UnfitPath(value)

    def arguments(self, part: Part) -> tuple[str, ...]:
        """The whole command line of one part."""
        if part is Part.HUB:
            return (*self.command, *self.hub)
        if Part.HUB not in self.parts:
            return (*self.command, "daemon")
        token = self.state / "hub" / "machine.token"
        return (*self.command, "daemon", "--hub", f"http://127.0.0.1:{self.port}", "--hub-token-file", str(token))


@dataclass(frozen=True, slots=True)
class ServiceFile:
    part: Part
    path: Path
    text: str
