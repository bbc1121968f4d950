"""How a memory that agents share may be called: one rule for the hub, the daemon and the command line.

A name stands in addresses and names a folder on every machine. So there is one way to write each: what file systems
take for the same name, here is the same text or no name.
"""

import re
from typing import Final

MAX_NAME_LENGTH: Final = 64
"""As in the reference (BEHAVIOUR.md F13)."""
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9_-])?")
_TAKEN: Final = frozenset({"memory"})
"""The agent's own."""
_DEVICES: Final = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{digit}" for port in ("com", "lpt") for digit in range(10)}
)
_GITS_OWN: Final = (".git", ".lock")


def shared_name_fault(name: str) -> str | None:
    """What is wrong with a name, in words for a person; None when it may be used."""
    if not name or len(name) > MAX_NAME_LENGTH:
        return f"a name has 1 to {MAX_NAME_LENGTH} characters"
    if _NAME.fullmatch(name) is None:
        return "a name is made of a-z, 0-9, dot, _ and -, begins with a letter or digit and does not end with a dot"
    if name in _TAKEN:
        return f"{name} is each agent's own"
    if name.split(".", 1)[0] in _DEVICES:
        return "the name is a device on Windows"
    if name.endswith(_GITS_OWN):
        return "a name does not end with .git or .lock"
    return None
