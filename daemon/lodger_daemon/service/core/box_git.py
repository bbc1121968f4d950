"""What git in a box is told beside the repository's own configuration, which wins over it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lodger_daemon.memory.core.commits import Identity
from lodger_sandbox.core.git_config import HARMLESS, UnreadableListing, parse_listing

CONFIG_INSIDE: Final = "/run/lodger/gitconfig"
AGENT_NAME: Final = "Lodger agent"
_MACHINE_CONFIG: Final = "/etc/gitconfig"
_VALUE_CHARS: Final = 200
_NAMES: Final = frozenset(f"{who}.{what}" for who in ("user", "author", "committer") for what in ("name", "email"))
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"})


@dataclass(frozen=True, slots=True)
class PersonsGit:
    identity: Identity | None = None
    preferences: Mapping[str, str] = field(default_factory=dict)
    """Of the harmless keys, such as how they pull and which line endings they want."""


def persons_git_in(listings: tuple[bytes, ...]) -> PersonsGit:
    """From what git listed of each file, the later one winning. A name without an address, or the other way round, is
    none."""
    found: dict[str, str] = {}
    for listing in listings:
        try:
            settings = parse_listing(listing)
        except UnreadableListing:
            continue
        found |= {key: _plain(values[-1]) for key, values in settings.items()}
    name, email = found.get("user.name", ""), found.get("user.email", "")
    preferences = {key: value for key, value in found.items() if key in HARMLESS and value and key not in _NAMES}
    return PersonsGit(Identity(name, email) if name and email else None, preferences)


def config_text(workspace: str, person: PersonsGit, agent: Identity | None) -> str:
    """In place of the machine's own, which is included: what stands there holds against the agent's identity, not
    against the person's. Only the workspace itself is trusted whoever owns it."""
    parts = (
        *(_user(agent) if agent is not None else ()),
        "[include]",
        f"\tpath = {_MACHINE_CONFIG}",
        *(_user(person.identity) if person.identity is not None else ()),
        *(line for key, value in sorted(person.preferences.items()) for line in _setting(key, value)),
        "[safe]",
        f"\tdirectory = {_quoted(workspace)}",
    )
    return "".join(f"{line}\n" for line in parts)


def _user(identity: Identity) -> tuple[str, ...]:
    return ("[user]", f"\tname = {_quoted(identity.name)}", f"\temail = {_quoted(identity.email)}")


def _setting(key: str, value: str) -> tuple[str, ...]:
    section, _, name = key.partition(".")
    return (f"[{section}]", f"\t{name} = {_quoted(value)}")


def _quoted(value: str) -> str:
    return f'"{value.translate(_ESCAPED)}"'


def _plain(value: str) -> str:
    return "".join(char for char in value if char.isprintable())[:_VALUE_CHARS].strip()
