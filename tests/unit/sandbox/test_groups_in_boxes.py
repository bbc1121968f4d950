"""Control groups of boxes on a kernel that has them, in user-mode Linux: this machine's may offer none."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from lodger_sandbox.cgroups import end_group, open_groups, remove_empty_groups
from lodger_sandbox.contract import BoxLimits
from lodger_sandbox.core.cgroup_plan import Base, find_base, in_words, limit_files
from support.groups_machine import As, run_there
from support.sandbox_users import user_of_boxes

pytestmark = pytest.mark.timeout(300)
"""The kernel is there in some seconds, and on a machine with much else to do in more than a minute."""
MIB = 1024**2
OWN = "12:pids:/somewhere\n0::/system.slice/lodger-daemon.service/daemon\n"
MOUNTS = """24 30 0:22 / /proc rw,nosuid - proc proc rw
31 23 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate
"""
UNIT = "/sys/fs/cgroup/system.slice/lodger-daemon.service"
needs_root = pytest.mark.skipif(os.geteuid() != 0 or not sys.platform.startswith("linux"), reason="as root on Linux")


@pytest.mark.parametrize(
    ("own", "mounts", "is_root", "found"),
    [
        (OWN, MOUNTS, False, Base(UNIT, "")),
        (OWN, MOUNTS, True, Base(UNIT, "")),
        # A unit whose daemon is in the delegated group itself is not asked for groups: see DAEMON_GROUP.
        (OWN.replace("/daemon\n", "\n"), MOUNTS, False, None),
        (OWN.replace("/daemon\n", "\n"), MOUNTS, True, Base("/sys/fs/cgroup", "lodger")),
        ("0::/daemon\n", MOUNTS, False, None),
        (OWN, MOUNTS.replace(" cgroup2 ", " cgroup "), True, None),
        ("12:pids:/somewhere\n", MOUNTS, True, None),
        # In a container a part of the hierarchy may be mounted.
        (OWN, MOUNTS.replace(":27 / ", ":27 /system.slice "), False, Base("/sys/fs/cgroup/lodger-daemon.service", "")),
        (OWN, MOUNTS.replace(":27 / ", ":27 /elsewhere "), False, None),
        (OWN, MOUNTS.replace("/sys/fs/cgroup", "/sys/fs/c\\040g"), True, Base(UNIT.replace("cgroup", "c g"), "")),
    ],
)
def test_where_groups_are_looked_for(own: str, mounts: str, is_root: bool, found: Base | None) -> None:
    assert find_base(own, mounts, is_root=is_root) == found


def test_what_is_written_into_a_group() -> None:
    limits = BoxLimits(memory_bytes=1024 * MIB, processes=100, tmp_bytes=100 * MIB, home_bytes=100 * MIB)
    assert dict(limit_files(limits, {"memory", "pids", "cpu"})) == {
        "memory.max": str(1152 * MIB),
        "memory.swap.max": "0",
        "pids.max": "108",
        "cpu.weight": "50",
    }
    assert limit_files(limits, frozenset()) == ()
    assert dict(limit_files(BoxLimits(processors=1.5), {"cpu"}))["cpu.max"] == "150000 100000"
    larger_folders = BoxLimits(memory_bytes=80 * MIB, tmp_bytes=100 * MIB, home_bytes=100 * MIB)
    assert dict(limit_files(larger_folders, {"memory"}))["memory.max"] == str(410 * MIB), "full folders do not reach it"


@needs_root
def test_a_group_here_is_joined_and_killed_as_a_whole() -> None:
    """On this machine's own hierarchy of version 2, with or without controllers."""
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if " cgroup2 " in line]
    assert mounted, "this kernel has no control groups of version 2 mounted"
    assert shutil.which("sleep")
    groups = open_groups(Base(mounted[0], "lodger-test"), wanted=())
    assert groups is not None
    group = groups.make(BoxLimits())
    left = groups.make(BoxLimits())
    try:
        fd = os.open(f"{group}/cgroup.procs", os.O_WRONLY)
        pid = os.fork()
        if pid == 0:
            os.write(fd, b"0")
            os.setsid()
            os.execvp("sh", ["sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000"])
        os.close(fd)
        while len(Path(group, "cgroup.procs").read_text().split()) < 3:
            pass
        again = open_groups(Base(mounted[0], "lodger-test"), wanted=())
        assert again is not None and Path(left).exists(), "to look takes nothing away: it may be about to be joined"
        remove_empty_groups(again)
        assert Path(group).exists() and not Path(left).exists(), "what is in use stays; what an ended box left goes"
        end_group(group)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
        assert not Path(group).exists()
    finally:
        end_group(group)
        Path(groups.base).rmdir()


@pytest.fixture(scope="module")
def there() -> list[dict[str, Any]]:
    user_of_boxes()
    script = Path(__file__).with_name("groups_in_boxes.py")
    # One start of that kernel, some 5 s; what follows takes as long again for each.
    return run_there(script, As(54321, delegated=True), As(0, delegated=False), As(54321, delegated=False))


@needs_root
@pytest.mark.parametrize(("number", "base"), [(0, "/sys/fs/cgroup/unit-0"), (1, "/sys/fs/cgroup/lodger")])
def test_a_box_is_limited_as_a_whole(there: list[dict[str, Any]], number: int, base: str) -> None:
    """As an ordinary user to whom a group was delegated, and as root."""
    told = there[number]
    assert told["words"] == "control groups limit each box (cpu, memory, pids)"
    assert told["base"] == base
    most = (96 + 96 // 8) * MIB
    assert told["files"] == {
        "memory.max": str(most), "memory.swap.max": "0", "pids.max": "48", "cpu.weight": "50",
        "cpu.max": "90000 100000",
    }  # fmt: skip
    assert told["throttled"] > 0
    assert told["by_hand"] == {"memory.max": str(most), "pids.max": "48", "cpu.max": "90000 100000", "members": 3}
    assert told["after_by_hand"] == [7, 1], "its group ends with it"
    assert told["members"] == ["bwrap", "python3.11"]
    assert told["inside"] == [0, "0::/\n5\n"], "it sees no group of the machine, and yields to the daemon"
    assert told["full_folders"] == 0, "full private folders leave room to work, and to remove them"
    assert told["hog"] == [137, True], "memory that is in no process is limited too, and it is said"
    assert told["after_hog"] == [0, "still here\n"]
    assert told["peak"] <= most
    exit_code, started = told["many"]
    assert exit_code == 0 and 30 < int(started) < 48, told["many"]
    assert "Read-only file system" in told["write"][1], "no command raises a limit"
    assert told["left"] == []


@needs_root
@pytest.mark.parametrize("number", [0, 1])
def test_the_kernel_itself_ends_what_takes_too_much(there: list[dict[str, Any]], number: int) -> None:
    alone = there[number]["alone"]
    assert alone["memory"] == -9
    assert "oom_kill 1" in alone["events"]
    assert (alone["within"], alone["sleeps"], alone["gone"]) == (1, -9, True)


@needs_root
def test_without_a_group_of_its_own_it_says_so(there: list[dict[str, Any]]) -> None:
    assert there[2]["words"] == in_words(frozenset())
    assert "no control group" in there[2]["words"]
