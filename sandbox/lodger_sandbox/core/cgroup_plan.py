"""Where control groups for boxes can be had, and what is written into one. Version 2 only."""

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from lodger_sandbox.contract import BoxLimits
from lodger_sandbox.core.allowlist import PRIVATE_SHARED

DAEMON_GROUP: Final = "daemon"
"""What our unit calls the group of the daemon itself (`DelegateSubgroup=`): boxes get groups beside it. Without that,
systemd could not start a next daemon while boxes of the last one live: a group with limited ones below it takes no
process."""
ROOT_GROUP: Final = "lodger"
"""Made at the top of the hierarchy by a daemon that is root and was delegated none."""
WANTED: Final = ("cpu", "memory", "pids")
ROOM: Final = 8
"""So many parts of the memory limit make one more, between what the watch in the box does, which says why, and what the
kernel does."""
CPU_WEIGHT: Final = 50
"""Half of what everything else on the machine has by itself (100)."""
CPU_PERIOD_US: Final = 100_000
"""The kernel's own: within each, a box has its share of time."""
RUNNER_PROCESSES: Final = 8
"""bwrap and the runner, beside what a box may start."""
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Base:
    """A group below which boxes get theirs."""

    above: str
    """Whose controllers must be handed down first; the hierarchy's mount point or a delegated group."""
    name: str
    """Of the group to be made below `above`; empty when `above` itself holds the boxes'."""

    @property
    def path(self) -> str:
        return f"{self.above}/{self.name}" if self.name else self.above


def find_base(own_groups: str, mounts: str, *, is_root: bool) -> Base | None:
    """
    Args:
        own_groups: `/proc/self/cgroup`.
        mounts: `/proc/self/mountinfo`.
    """
    mounted = _hierarchy(mounts)
    own = next((line[3:] for line in own_groups.splitlines() if line.startswith("0::/")), None)
    if mounted is None or own is None:
        return None
    place, root = mounted
    above, _, name = own.rpartition("/")
    if name == DAEMON_GROUP and f"{above}/".startswith(f"{root.rstrip('/')}/") and above:
        return Base(f"{place}/{above.removeprefix(root.rstrip('/')).lstrip('/')}".rstrip("/"), "")
    return Base(place, ROOT_GROUP) if is_root else None


def _hierarchy(mounts: str) -> tuple[str, str] | None:
    """Where version 2 is mounted, and which of its groups is seen there."""
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        words = fields.split(" ")
        if kind.startswith("cgroup2 ") and len(words) > 5:
            place = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), words[4])
            return place, words[3]
    return None


def limit_files(limits: BoxLimits, controllers: Set[str]) -> tuple[tuple[str, str], ...]:
    """What is written into the group of one box, file by file."""
    files: list[tuple[str, str]] = []
    if "memory" in controllers:
        # Full private folders alone must not reach it: no process that is killed would make room then.
        folders_bytes = len(PRIVATE_SHARED) * limits.tmp_bytes + limits.home_bytes
        memory_bytes = max(limits.memory_bytes, folders_bytes) + limits.memory_bytes // ROOM
        files += [
            ("memory.max", str(memory_bytes)),
            # Else as much again could lie in the swap.
            ("memory.swap.max", "0"),
        ]
    if "pids" in controllers:
        files.append(("pids.max", str(limits.processes + RUNNER_PROCESSES)))
    if "cpu" in controllers:
        files.append(("cpu.weight", str(CPU_WEIGHT)))
        if limits.processors:
            files.append(("cpu.max", f"{round(limits.processors * CPU_PERIOD_US)} {CPU_PERIOD_US}"))
    return tuple(files)


def in_words(controllers: Set[str]) -> str:
    """For status and doctor."""
    if not controllers:
        return "memory watched for each box, other limits for each process (no control group was delegated)"
    return f"control groups limit each box ({', '.join(name for name in WANTED if name in controllers)})"
