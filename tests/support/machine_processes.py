"""The processes of this machine as they are when they are looked at, and whose children they are."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


def start_ticks(pid: int) -> int:
    """With the pid it names a process for ever; 0 when it is gone or only waits to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as it was when it was looked at."""

    pid: int
    ticks: int
    command: str

    @property
    def alive(self) -> bool:
        return self.ticks != 0 and start_ticks(self.pid) == self.ticks


def processes() -> Iterable[tuple[int, int, Seen]]:
    """Every process of this machine with its parent's pid."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        yield int(entry.name), int(stat[1]), Seen(int(entry.name), start_ticks(int(entry.name)), command)


def descendants(pid: int) -> list[Seen]:
    """The process and everything below it, as far as its parents still live."""
    children: dict[int, list[int]] = {}
    found: dict[int, Seen] = {}
    for own, parent, seen in processes():
        children.setdefault(parent, []).append(own)
        found[own] = seen
    todo, tree = [pid], []
    while todo:
        one = todo.pop()
        if one in found:
            tree.append(found[one])
        todo += children.get(one, [])
    return tree
