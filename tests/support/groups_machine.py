"""A kernel of its own with control groups of version 2, for tests that need what this machine may not offer.

User-mode Linux runs as one process of whoever starts it, on this machine's files, which it sees read-only. It starts in
some seconds. Debian and Ubuntu package it; `scripts/system-packages.sh test` asks for it.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lodger_sandbox.host import base_interpreter
from support.needed_programs import needed

KERNEL: Final = "linux.uml"
LIMIT_S: Final = 240.0
MEMORY: Final = "1G"
MARK: Final = "RESULT "
_ROOT: Final = Path(__file__).parents[2]
_WHOLE_REGISTERS: Final = Path(__file__).with_name("whole_registers.c")
_START: Final = """#!/bin/sh
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/shm
for place in /run /tmp /dev/shm; do mount -t tmpfs tmpfs $place; done
echo '+cpu +memory +pids' > /sys/fs/cgroup/cgroup.subtree_control
export PYTHONPATH={path} PYTHONDONTWRITEBYTECODE=1 HOME=/media/home LANG=C.UTF-8
{runs}
poweroff -f
"""
_RUN: Final = """
mount -t tmpfs tmpfs /media
chown {uid} /media
# What systemd does for a unit with Delegate= and DelegateSubgroup=.
unit=/sys/fs/cgroup/unit-{number}
mkdir -p $unit/daemon
chown {uid} $unit $unit/cgroup.procs $unit/cgroup.subtree_control $unit/daemon $unit/daemon/cgroup.procs
(
  echo 0 > {group}/cgroup.procs
  cd /media
  exec setpriv --reuid {uid} --regid {uid} --clear-groups {python} {script}
) 2>&1
umount -l /media
"""


@dataclass(frozen=True, slots=True)
class As:
    """Who runs a script, and where."""

    uid: int
    delegated: bool
    """In the group that systemd would give the daemon of our unit, else at the top."""


def run_there(script: Path, *ways: As) -> list[Any]:
    """Run a script there once for each way; it prints one line with `tell`, and these values are returned."""
    kernel = needed(KERNEL)
    runs = "".join(
        _RUN.format(
            uid=way.uid,
            number=number,
            group=f"/sys/fs/cgroup/unit-{number}/daemon" if way.delegated else "/sys/fs/cgroup",
            python=base_interpreter().executable,
            script=script,
        )
        for number, way in enumerate(ways)
    )
    path = ":".join(str(_ROOT / name) for name in ("sandbox", "tools", "daemon", "tests"))
    with tempfile.TemporaryDirectory(prefix="lodger-uml-", dir="/var/tmp") as folder:
        start = Path(folder) / "start.sh"
        start.write_text(_START.format(path=path, runs=runs))
        start.chmod(0o755)
        shown = _boot(kernel, start, folder)
    lines = [line.partition(MARK)[2] for line in shown.splitlines() if MARK in line]
    assert len(lines) == len(ways), shown[-4000:]
    return [json.loads(line) for line in lines]


def _boot(kernel: str, start: Path, folder: str) -> str:
    words = ("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"mem={MEMORY}", f"init={start}")
    argv = (kernel, *words, "con=null", "con0=fd:0,fd:1", "quiet")
    library = Path(folder) / "whole_registers.so"
    subprocess.run((needed("gcc"), "-shared", "-fPIC", "-o", str(library), str(_WHOLE_REGISTERS), "-ldl"), check=True)
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # Its memory is a file: on a disk it would be slow.
        env={"HOME": folder, "TMPDIR": "/dev/shm", "PATH": os.environ["PATH"], "LD_PRELOAD": str(library)},
        check=False,
        timeout=LIMIT_S,
    )
    return done.stdout.decode("utf-8", "replace").replace("\r", "")


def tell(result: Any) -> None:
    """For the script: hand its result out."""
    sys.stdout.write(f"\n{MARK}{json.dumps(result)}\n")
    sys.stdout.flush()
