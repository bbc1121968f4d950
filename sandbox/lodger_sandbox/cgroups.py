"""Control groups of boxes: one each, where the kernel offers them and they were delegated to this process.

They come on top of the limits of single processes, so that a machine without them is no special case. A group that
cannot be made is done without. Blocking, for well under a millisecond unless said otherwise.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from lodger_sandbox.contract import BoxLimits
from lodger_sandbox.core.cgroup_plan import WANTED, Base, find_base, in_words, limit_files

PREFIX: Final = "box-"
EMPTY_WITHIN_S: Final = 1.0
"""A killed group is empty when the kernel has taken its last process apart."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Where boxes get theirs, and what can be limited there."""

    base: str
    controllers: frozenset[str]

    def make(self, limits: BoxLimits) -> str:
        """The path of a new group with these limits; empty when it cannot be had."""
        path = Path(self.base) / f"{PREFIX}{secrets.token_hex(8)}"
        try:
            path.mkdir(mode=0o755)
            for name, value in limit_files(limits, self.controllers):
                with contextlib.suppress(FileNotFoundError):  # memory.swap.max: not where the kernel knows no swap
                    (path / name).write_text(value)
        except OSError:
            remove_group(str(path))
            return ""
        return str(path)


@cache
def groups_here() -> Groups | None:
    """None where no controller can be had. Looked up once."""
    try:
        own, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    except OSError:
        return None
    base = find_base(own, mounts, is_root=os.geteuid() == 0)
    return None if base is None else open_groups(base)


def open_groups(base: Base, *, wanted: tuple[str, ...] = WANTED) -> Groups | None:
    """Make the group of groups and hand the controllers down to it. None when that gives no controller."""
    try:
        offered = Path(base.above, "cgroup.controllers").read_text().split()
        if not os.access(f"{base.above}/cgroup.subtree_control", os.W_OK) or (wanted and not {*wanted} & {*offered}):
            return None
        _hand_down(base.above, wanted)
        if base.name:
            Path(base.path).mkdir(exist_ok=True)
            _hand_down(base.path, wanted)
        had = Path(base.path, "cgroup.subtree_control").read_text().split()
    except OSError:
        return None
    controllers = frozenset(had) & frozenset(wanted)
    return Groups(base.path, controllers) if controllers or not wanted else None


@cache
def remove_left_groups() -> None:
    """Of boxes that ended while nobody looked; once, before this process makes any. Only for who has the boxes of this
    machine: to anybody else, the group of a box that is about to start is an empty one too."""
    groups = groups_here()
    if groups is not None:
        remove_empty_groups(groups)


def remove_empty_groups(groups: Groups) -> None:
    for left in Path(groups.base).glob(f"{PREFIX}*"):
        remove_group(str(left))


@dataclass(slots=True)
class BoxGroup:
    path: str = ""
    """Empty where there is none."""
    fd: int | None = None
    """The door: who writes 0 into it is in the group from then on."""
    counts_memory: bool = False
    kept: bool = False
    """It stays when the block is left."""


@contextlib.contextmanager
def group_for(limits: BoxLimits) -> Iterator[BoxGroup]:
    """A new one for a box, where there are any. Ended with the block unless it is `kept`."""
    groups = groups_here()
    group = BoxGroup(groups.make(limits) if groups is not None else "")
    try:
        if group.path:
            group.fd = os.open(f"{group.path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            group.counts_memory = groups is not None and "memory" in groups.controllers
        yield group
    finally:
        if group.fd is not None:
            os.close(group.fd)
        if not group.kept:
            end_group(group.path)


def _hand_down(group: str, wanted: tuple[str, ...]) -> None:
    """Each by itself: one that is missing or in use elsewhere takes none of the others along."""
    for name in wanted:
        with contextlib.suppress(OSError):
            Path(group, "cgroup.subtree_control").write_text(f"+{name}")


def limits_in_words() -> str:
    found = groups_here()
    return in_words(found.controllers if found is not None else frozenset())


def memory_kills(group: str) -> int:
    """How many processes in it the kernel has killed for want of memory. Never raises."""
    try:
        rows = dict(line.split() for line in Path(group, "memory.events").read_text().splitlines())
        return int(rows.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0


def end_group(group: str) -> None:
    """Kill whatever is in it, also what nothing else reaches, and remove it. Waits for its end; never raises."""
    if not group or f"/{PREFIX}" not in group:
        return
    with contextlib.suppress(OSError):
        Path(group, "cgroup.kill").write_text("1")
    deadline = time.monotonic() + EMPTY_WITHIN_S
    while not remove_group(group) and time.monotonic() < deadline:
        time.sleep(0.005)


def remove_group(group: str) -> bool:
    """False while something is in it."""
    try:
        os.rmdir(group)  # noqa: PTH106 - a group is no folder with files that could be removed
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
