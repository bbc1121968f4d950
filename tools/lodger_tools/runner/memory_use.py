"""How much memory this box takes: in processes, and where no process shows it.

Files in its private folders, memory files, and segments and messages of System V stay in memory without being mapped
by anybody.
"""

# pathlib would cost the runner 8 ms of its start.
# ruff: noqa: PTH115, PTH116, PTH208
from __future__ import annotations

import os

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
INODE_BYTES = 1024
"""What a file without content takes in a folder in memory, with its name."""
PRIVATE_PLACES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - looked at, not used
DESCRIPTOR_LIMIT = 20_000
"""So many are looked at in one turn: some 30 ms."""
SOCKET_BUFFER_BYTES = 212_992
"""The kernel's own default (socket(7), wmem_default)."""
SOCKET_MESSAGE_BYTES = 32 * 1024
MESSAGE_BYTES = 64
"""What the kernel keeps of a message beside its content, which may be empty."""
MEMORY_FILE = "/memfd:"
"""So begins what /proc calls one. No file has such a path in a box, whose top cannot be written."""
UNNAMED_SHARED = b"/dev/zero (deleted)"
"""As /proc calls memory that a process shares with its children."""


class Use:
    """One look."""

    __slots__ = ("held", "held_bytes", "kept_bytes", "resident")

    def __init__(self, pids: list[int], places: tuple[str, ...]) -> None:
        self.resident = {pid: resident_bytes(pid) for pid in pids}
        self.held, self.held_bytes = held_files(pids)
        """In memory files, segments and messages: by process, and all together, each once."""
        kept: list[Segment | Queue] = [*segments(), *queues()]
        for one in kept:
            self.held_bytes += one.size_bytes
            for pid in one.known_to:
                self.held[pid] = self.held.get(pid, 0) + one.size_bytes
        self.kept_bytes = sum(map(folder_bytes, places))
        """In the private folders: no end of a process frees it."""

    @property
    def at_most_bytes(self) -> int:
        """Quickly: pages that several have in common count for each of them."""
        return sum(self.resident.values()) + self.held_bytes + self.kept_bytes

    def exactly(self) -> dict[int, int]:
        """What each process has by itself: without pages of files, which the kernel can drop, and with shared ones in
        equal parts. What it holds comes on top."""
        return {pid: own_bytes(pid, resident) for pid, resident in self.resident.items()}


def private_places() -> tuple[str, ...]:
    """The folders of this box that lie in memory."""
    wanted = {*PRIVATE_PLACES, os.environ.get("HOME", "")}
    found = []
    for line in read_whole("/proc/self/mountinfo").splitlines():
        fields, _, kind = line.partition(b" - ")
        words = fields.split(b" ")
        # Only the top of a mount: a workspace may lie in a folder in memory of the machine.
        if kind.startswith(b"tmpfs ") and len(words) > 4 and words[3] == b"/":
            place = os.fsdecode(words[4])
            if place in wanted:
                found.append(place)
    return tuple(dict.fromkeys(found))


def folder_bytes(place: str) -> int:
    try:
        found = os.statvfs(place)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize + (found.f_files - found.f_ffree) * INODE_BYTES


def held_files(pids: list[int]) -> tuple[dict[int, int], int]:
    """How much each process holds in memory files, and how much that is when each file counts once."""
    held: dict[int, int] = {}
    files: dict[int, int] = {}
    left = DESCRIPTOR_LIMIT
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        own: dict[int, int] = {}
        for name in names[:left]:
            try:
                # Only the name at first: to look at a file itself can take for ever where a network disk hangs.
                if os.readlink(f"{folder}/{name}").startswith(MEMORY_FILE):
                    found = os.stat(f"{folder}/{name}")
                    own[found.st_ino] = found.st_blocks * 512
            except OSError:
                continue
        left -= len(names)
        if own:
            held[pid] = sum(own.values())
            files.update(own)
        if left <= 0:
            break
    return held, sum(files.values())


def has_memory_files() -> bool:
    """They are there only where a control group counts all memory of the box, that in sockets too."""
    try:
        os.close(os.memfd_create("look"))
    except OSError:
        return False
    return True


def sockets_there() -> int:
    """All sockets of this box, also those that wait in another and those of processes that hide theirs."""
    for line in read_small("/proc/self/net/sockstat").splitlines():
        if line.startswith(b"sockets: used "):
            return int(line.rsplit(b" ", 1)[1])
    return 0


def socket_bytes() -> int:
    """What may wait in one at most, as it is born, with the last message that still went in."""
    given = read_small("/proc/sys/net/core/wmem_default").strip()
    return (int(given) if given.isdigit() else SOCKET_BUFFER_BYTES) + SOCKET_MESSAGE_BYTES


def sockets_of(pids: list[int], total: int) -> dict[int, int]:
    """How many each process has. Who lets nobody look is taken to have them all."""
    found = {}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            found[pid] = sum(_leads_to_socket(f"{folder}/{name}") for name in os.listdir(folder))
        except OSError:
            found[pid] = total
    return found


def _leads_to_socket(path: str) -> bool:
    try:
        return os.readlink(path).startswith("socket:")
    except OSError:
        return False


class Segment:
    """Shared memory of System V."""

    __slots__ = ("attached", "known_to", "number", "size_bytes")

    def __init__(self, row: list[bytes]) -> None:
        self.number = int(row[1])
        self.known_to = {int(row[4]), int(row[5])}
        """Who made it, and who attached or detached it last."""
        self.attached = int(row[6])
        self.size_bytes = int(row[14])


def segments() -> list[Segment]:
    rows = [line.split() for line in read_whole("/proc/sysvipc/shm").splitlines()[1:]]
    return [Segment(row) for row in rows if len(row) > 14]


class Queue:
    """Of messages of System V."""

    __slots__ = ("known_to", "number", "size_bytes")

    def __init__(self, row: list[bytes]) -> None:
        self.number = int(row[1])
        self.known_to = {int(row[5]), int(row[6])}
        """Who sent and who received last."""
        self.size_bytes = int(row[3]) + int(row[4]) * MESSAGE_BYTES


def queues() -> list[Queue]:
    rows = [line.split() for line in read_whole("/proc/sysvipc/msg").splitlines()[1:]]
    return [Queue(row) for row in rows if len(row) > 6]


def drop_abandoned(pids: list[int]) -> None:
    """Segments and messages stay when everybody who knew them has ended."""
    import ctypes

    library = ctypes.CDLL(None)
    for segment in segments():
        if not segment.attached:
            library.shmctl(segment.number, 0, None)  # IPC_RMID
    for queue in queues():
        if queue.size_bytes and not queue.known_to & set(pids):
            library.msgctl(queue.number, 0, None)


def resident_bytes(pid: int) -> int:
    data = read_small(f"/proc/{pid}/statm")
    return int(data.split()[1]) * PAGE_BYTES if data else 0


def own_bytes(pid: int, resident: int) -> int:
    """All that is resident when the kernel does not tell."""
    found = {}
    for line in read_small(f"/proc/{pid}/smaps_rollup").splitlines():
        name, _, rest = line.partition(b":")
        if name in (b"Pss", b"Pss_Anon", b"Pss_Shmem"):
            found[name] = int(rest.split()[0]) * 1024
    anonymous = found.get(b"Pss_Anon")
    if anonymous is None:
        return found.get(b"Pss", resident)
    return anonymous + (unnamed_shared_bytes(pid) if found.get(b"Pss_Shmem") else 0)


def unnamed_shared_bytes(pid: int) -> int:
    total, inside = 0, False
    for line in read_whole(f"/proc/{pid}/smaps").splitlines():
        if line.startswith(b"Pss:"):
            total += int(line.split()[1]) * 1024 if inside else 0
        elif b"-" in line.partition(b" ")[0]:
            inside = line.endswith(UNNAMED_SHARED)
    return total


def read_small(path: str) -> bytes:
    """Its first page; empty when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""
    finally:
        os.close(fd)


def read_whole(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
