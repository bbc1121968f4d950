"""Whether a port of this machine at which a model server may run is one to talk to.

Nobody chose such a server by name: it was found at the port its kind uses, where another person's process could wait
for conversations to be sent to it.
"""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_LISTENING: Final = "0A"
_FIRST_PERSONS_UID: Final = 1000
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def is_trusted(base_url: str, own_uid: int) -> bool:
    """Whether whoever listens there is this person or a service of the system; True where the kernel does not tell.

    False when nobody listens. Blocking, for a millisecond.
    """
    owners = _owners(urlsplit(base_url).port or 80)
    if owners is None:
        return True
    return bool(owners) and all(uid == own_uid or uid < _FIRST_PERSONS_UID for uid in owners)


def _owners(port: int) -> set[int] | None:
    """Users who listen at this port; None where there is no such table."""
    owners: set[int] | None = None
    for table in _TABLES:
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        owners = set() if owners is None else owners
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTENING and int(fields[1].rsplit(":", 1)[1], 16) == port:
                owners.add(int(fields[7]))
    return owners
