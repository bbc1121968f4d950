"""What a person can do when ssh did not let a memory through."""

import re
from typing import Final
from urllib.parse import urlsplit

from lodger_daemon.memory.core.git_addresses import GitAddress

_CHANGED: Final = re.compile(r"host key for \S+ has changed|remote host identification has changed", re.IGNORECASE)
_UNKNOWN: Final = re.compile(r"no \S+ host key is known for", re.IGNORECASE)
_TOO_MANY: Final = re.compile(r"too many authentication failures", re.IGNORECASE)
_DENIED: Final = re.compile(r"permission denied \(", re.IGNORECASE)


def ssh_advice(text: str, address: GitAddress, has_agent: bool) -> str:
    """What to do about it, in words of ours only; empty when ssh said something else.

    Args:
        text: all that git and ssh printed.
        has_agent: whether the daemon was started with an SSH agent at hand.
    """
    host, by_hand, entry = _names(address)
    if _CHANGED.search(text):
        return (
            f"the SSH host key of {host} is another than your known_hosts has, so nothing was sent or taken. If its"
            f" owner says that the key was changed: `ssh-keygen -R '{entry}'`, then `{by_hand}` once by hand,"
            " and compare the fingerprint"
        )
    if _UNKNOWN.search(text):
        return (
            f"the SSH host key of {host} is not in your known_hosts, so nothing was sent or taken. `{by_hand}` once"
            " by hand, and compare the fingerprint"
        )
    if _TOO_MANY.search(text):
        return f"{host} was offered too many SSH keys: name one for it in ~/.ssh/config (IdentityFile, IdentitiesOnly)"
    if _DENIED.search(text):
        agent = "`ssh-add -l` lists what your agent holds" if has_agent else "the daemon was started without an agent"
        return f"{host} took none of your SSH keys: {agent}, and of files only those without a passphrase are tried"
    return ""


def _names(address: GitAddress) -> tuple[str, str, str]:
    """The host as people write it, the command that connects to it by hand, its entry in known_hosts."""
    parts = urlsplit(address.origin)
    name = parts.hostname or ""
    login = f"{address.user}@{name}" if address.user else name
    if parts.port is None or parts.port == 22:
        return name, f"ssh {login}", name
    return f"{name}:{parts.port}", f"ssh -p {parts.port} {login}", f"[{name}]:{parts.port}"
