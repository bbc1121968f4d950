"""Addresses of git hosts that a person names for their agents' memories."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

PLACE: Final = "{agent}"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ALLOWED: Final = re.compile(r"[A-Za-z0-9._~:/@%+{}\[\]-]{1,500}")
_USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._%+-]{0,99}")


class BadAddress(ValueError):
    """An address that memory is not sent to; the text says why."""


@dataclass(frozen=True, slots=True)
class GitAddress:
    """Where memories go. It never holds a password."""

    scheme: str
    """`https`, `http` (to this machine only) or `ssh`."""
    origin: str
    """Scheme, host and port: what a credential is meant for."""
    template: str
    """The whole address, with a place for the agent's id; for HTTP without the user."""
    user: str
    """For HTTP, who the token belongs to; most hosts look at the token only."""

    def url(self, agent_id: str) -> str:
        return self.template.replace(PLACE, agent_id)


def parse_git_address(text: str) -> GitAddress:
    """Raises: BadAddress."""
    if _ALLOWED.fullmatch(text) is None or text.count(PLACE) != 1 or text.count("{") + text.count("}") != 2:
        raise BadAddress(f"an address must have {PLACE} once, where the agent's id goes, and no odd characters")
    parts = urlsplit(text.replace(PLACE, "agent-x"))
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadAddress("the port is no number") from None
    if not host or host.startswith("-") or "%" in host:
        raise BadAddress("the address has no host")
    if parts.scheme not in {"https", "http", "ssh"}:
        raise BadAddress("an address must begin with https:// or ssh://")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise BadAddress("plain http:// would show your memory to everybody on the way; use https://")
    if parts.password is not None:
        raise BadAddress("no password may stand in an address; store it with `lodger memory token`")
    user = parts.username
    if user is not None and _USER.fullmatch(user) is None:
        raise BadAddress("the user in the address has odd characters")
    if PLACE in text.split("/", 3)[2] or "/../" in parts.path or "agent-x" not in parts.path:
        raise BadAddress(f"{PLACE} belongs into the path")
    shown_host = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{shown_host}" + ("" if port is None else f":{port}")
    if parts.scheme == "ssh":
        return GitAddress("ssh", origin, text, user or "")
    return GitAddress(parts.scheme, origin, origin + "/" + text.split("/", 3)[3], user or "git")
