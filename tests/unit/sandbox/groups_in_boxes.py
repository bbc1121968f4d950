"""Works in real boxes where control groups are delegated, and tells what the kernel did. Run by `run_there`."""

import asyncio
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lodger_sandbox.cgroups import Groups, end_group, groups_here, limits_in_words
from lodger_sandbox.contract import BoxLimits, BoxRequest
from lodger_sandbox.foreground import policy_for_command, run_with_policy
from lodger_sandbox.users import box_user
from lodger_tools.box.contract import BoxCall, BoxKey, BoxLost, RunCommand
from lodger_tools.box.manager import BoxManager
from support.groups_machine import tell

MIB = 1024**2
LIMITS = BoxLimits(memory_bytes=96 * MIB, processes=40, tmp_bytes=24 * MIB, home_bytes=8 * MIB, processors=0.9)
LIMIT_S = 60.0
BUSY = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
BASE = Path("/media")
HOG = """exec python3 -c "import os
fd = os.memfd_create('hidden')
os.truncate(fd, 1 << 30)
while True: os.write(fd, bytes(1 << 20))"
"""
"""Memory that is in no process."""
FORKS = """exec python3 -c "import os
children = []
try:
    for _ in range(60): children.append(os.posix_spawnp('sleep', ['sleep', '100'], os.environ))
except OSError: pass
print(len(children))
for child in children: os.kill(child, 9)"
"""
"""Too many processes, each so small that their memory stays within the limit."""


def request(key: BoxKey) -> BoxRequest:
    return BoxRequest(
        workspace=key.workspace,
        profile=key.profile.value,
        user=box_user(),
        home=str(BASE / "home"),
        masks=(str(BASE / "state"),),
        environment={"PATH": "/usr/bin:/bin", "HOME": str(BASE / "home")},
        limits=LIMITS,
    )


def read(group: str, name: str) -> str:
    return Path(group, name).read_text().strip()


def in_a_group_alone(groups: Groups) -> dict[str, object]:
    """Without a box: what the kernel itself does."""
    group = groups.make(LIMITS)
    told: dict[str, object] = {}
    fd = os.open(f"{group}/cgroup.procs", os.O_WRONLY)
    for name, program in (
        ("memory", "x = [bytearray(1 << 20) for _ in range(400)]"),
        ("sleeps", "print(1, flush=True); input()"),
    ):
        words = ("python3", "-c", f"import os; os.write({fd}, b'0')\n{program}")
        process = subprocess.Popen(words, pass_fds=(fd,), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        if name == "sleeps":
            process.stdout.readline()
            told["within"] = int(read(group, "pids.current"))
            end_group(group)
        told[name] = process.wait(30)
        if name == "memory":
            told["events"] = read(group, "memory.events")
    told["gone"] = not Path(group).exists()
    return told


def by_hand(groups: Groups, key: BoxKey) -> dict[str, object]:
    """A command on the caller's terminal, beside the box that is there already."""
    there = set(Path(groups.base).glob("box-*"))
    one = request(key)
    program = Path(one.workspace, "waits")
    program.write_text("#!/bin/sh\necho begun; read x; exit 7\n")
    program.chmod(0o755)
    told: dict[str, object] = {}
    (given_read, given_write), (said_read, said_write) = os.pipe(), os.pipe()
    with ThreadPoolExecutor(1) as pool, open(given_read) as given, open(said_write, "w") as said:
        ended = pool.submit(
            run_with_policy, policy_for_command(one, (str(program),)), one, stdin=given, stdout=said, limit_s=LIMIT_S
        )
        assert os.read(said_read, 100) == b"begun\n"
        (group,) = set(Path(groups.base).glob("box-*")) - there
        told["by_hand"] = {name: read(str(group), name) for name in ("memory.max", "pids.max", "cpu.max")} | {
            "members": len(read(str(group), "cgroup.procs").split())
        }
        os.close(given_write)
        code = ended.result(LIMIT_S)
    told["after_by_hand"] = [code, len(set(Path(groups.base).glob("box-*")))]
    return told


async def work() -> dict[str, object]:
    workspace = BASE / "workspace"
    for folder in (workspace, BASE / "home", BASE / "state"):
        folder.mkdir()
        os.chown(folder, box_user().uid, box_user().gid)
    groups = groups_here()
    if groups is None:
        return {"words": limits_in_words(), "own": Path("/proc/self/cgroup").read_text()}
    manager = BoxManager(BASE / "state/boxes", request)
    key = BoxKey("agent-1", str(workspace))
    count = iter(range(1000))

    async def run(command: str) -> tuple[int, str]:
        try:
            outcome = await manager.run(key, BoxCall(f"c/{next(count)}", RunCommand(command), str(workspace)))
        except BoxLost:
            return -1, "lost"
        return outcome.exit_code if outcome.exit_code is not None else -2, outcome.text

    told: dict[str, object] = {"words": limits_in_words(), "base": groups.base}
    inside = await run("cat /proc/self/cgroup; cat /proc/self/stat | cut -d' ' -f19")
    group = str(next(Path(groups.base).glob("box-*")))
    told["inside"] = inside
    told["files"] = {
        name: read(group, name) for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.weight", "cpu.max")
    }
    told["members"] = sorted(
        Path(f"/proc/{pid}/comm").read_text().strip() for pid in read(group, "cgroup.procs").split()
    )
    await run(BUSY)
    told["throttled"] = int(dict(line.split() for line in read(group, "cpu.stat").splitlines())["nr_throttled"])
    told |= await asyncio.to_thread(by_hand, groups, key)
    fill = (
        "for d in /tmp /var/tmp /dev/shm ~; do head -c 30M /dev/zero > $d/f; done; rm -f /tmp/f /var/tmp/f /dev/shm/f"
    )
    told["full_folders"] = (await run(fill))[0]
    hog = await manager.run(key, BoxCall("hog", RunCommand(HOG), str(workspace)))
    told["hog"] = [hog.exit_code, hog.out_of_memory]
    told["after_hog"] = await run("echo still here")
    told["many"] = await run(FORKS)
    told["peak"] = int(read(group, "memory.peak"))
    told["alone"] = in_a_group_alone(groups)
    told["write"] = await run(f"test -e {group}/memory.max && echo max > {group}/memory.max")
    told["events"] = read(group, "memory.events") if Path(group).exists() else ""
    began = time.monotonic()
    for box in manager.statuses():
        await manager.end(box.key)
    told["ended_s"] = time.monotonic() - began
    told["left"] = [path.name for path in Path(groups.base).glob("box-*")]
    await manager.aclose()
    return told


tell(asyncio.run(work()))
