"""What git in a box is told beside the repository's own configuration, which wins over it. Pure."""

from typing import Final

from lodger_daemon.memory.core.commits import Identity
from lodger_sandbox.core.git_config import UnreadableListing, parse_listing

CONFIG_INSIDE: Final = "/run/lodger/gitconfig"
AGENT_NAME: Final = "Lodger agent"
_MACHINE_CONFIG: Final = "/etc/gitconfig"
_VALUE_CHARS: Final = 200
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\b": "\\b"})


def identity_in(listings: tuple[bytes, ...]) -> Identity | None:
    """The person's, from what git listed of each file, the later one winning; None when a half of it is missing."""
    found: dict[str, str] = {}
    for listing in listings:
        try:
            settings = parse_listing(listing)
        except UnreadableListing:
            continue
        found |= {key: _plain(values[-1]) for key, values in settings.items()}
    name, email = found.get("user.name", ""), found.get("user.email", "")
    return Identity(name, email) if name and email else None


def config_text(workspace: str, person: Identity | None, agent: Identity | None) -> str:
    """In place of the machine's own, which is included: what stands there holds against the agent's identity, not
    against the person's. Only the workspace itself is trusted whoever owns it."""
    parts = (
        *(_user(agent) if agent is not None else ()),
        "[include]",
        f"\tpath = {_MACHINE_CONFIG}",
        *(_user(person) if person is not None else ()),
        "[safe]",
        f"\tdirectory = {_quoted(workspace)}",
    )
    return "".join(f"{line}\n" for line in parts)


def _user(identity: Identity) -> tuple[str, ...]:
    return ("[user]", f"\tname = {_quoted(identity.name)}", f"\temail = {_quoted(identity.email)}")


def _quoted(value: str) -> str:
    return f'"{value.translate(_ESCAPED)}"'


def _plain(value: str) -> str:
    return "".join(char for char in value if char.isprintable())[:_VALUE_CHARS].strip()
