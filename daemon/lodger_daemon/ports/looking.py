"""What listens in a box, as the kernel tells it outside of the box. Blocks; runs in a thread."""

from pathlib import Path
from typing import Final

from lodger_sandbox.ports.core.listeners import listening_ports
from lodger_tools.box.record import BoxRecord, start_ticks

TABLE_LIMIT_BYTES: Final = 128 * 1024
"""Some 850 sockets. The kernel lists those that listen first; a box with more of them is not worth a longer look."""


def look(record: BoxRecord) -> frozenset[int]:
    """The ports that can be reached over the box's loopback; none when the box has ended.

    Nothing inside is asked: the tables are of the network that the box's first process lives in.
    """
    pid = record.runner_pid
    if pid <= 1 or start_ticks(pid) != record.runner_start_ticks:
        return frozenset()
    try:
        tables = [_table(Path(f"/proc/{pid}/net/{name}")) for name in ("tcp", "tcp6")]
    except OSError:
        return frozenset()
    # The number may have gone to another process meanwhile, which lives in another network.
    return listening_ports(*tables) if start_ticks(pid) == record.runner_start_ticks else frozenset()


def _table(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(TABLE_LIMIT_BYTES)
    except FileNotFoundError:
        return b""
