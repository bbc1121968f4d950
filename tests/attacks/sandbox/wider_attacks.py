"""More ways out of a box than the incidents name: every kind of change to a read-only file, calls into the kernel that
the filter closes, what processes share besides files, and using up what a machine has."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attack_catalogue import (
    Attack,
    Options,
    _python,
    host_processes,
    swapped,
    without,
    without_filter,
    without_git_guard,
)

from lodger_sandbox.core.policy import Policy

GIB = 1024**3


def writable_root(options: Options) -> Options:
    return swapped(("--ro-bind", "/", "/"), ("--bind", "/", "/"))(options)


def with_limits(**limits: int) -> Callable[[Policy], Policy]:
    def open_policy(policy: Policy) -> Policy:
        sizes = {"tmp_bytes": ("/tmp", "/var/tmp", "/dev/shm"), "home_bytes": (policy.home,)}
        private = policy.private
        for name, value in limits.items():
            private = tuple(
                replace(item, size_bytes=value) if item.path in sizes.get(name, ()) else item for item in private
            )
        return replace(policy, limits=replace(policy.limits, **limits), private=private)

    return open_policy


def own_name(options: Options) -> Options:
    return without("--hostname", "lodger")(without("--unshare-uts")(options))


def in_kernel(name: str, x86_64: int, aarch64: int, *arguments: Any) -> Attack:
    """A system call that an ordinary user has, and the filter takes away; whatever else it answers, it was let in."""
    numbers = json.dumps({"x86_64": x86_64, "aarch64": aarch64}).replace('"', "")
    for machine in ("x86_64", "aarch64"):
        numbers = numbers.replace(machine, f'"{machine}"')
    values = ", ".join(f"ctypes.c_long({value})" if isinstance(value, int) else value for value in arguments)
    program = (
        "import ctypes, errno, os; c = ctypes.CDLL(None, use_errno=True); "
        f"n = {numbers}[os.uname().machine]; r = c.syscall(ctypes.c_long(n), {values}); "
        "raise SystemExit(r < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS))"
    )
    return Attack(f"kernel-{name}", _python(program), open_options=without_filter)


_MMAP = """
import mmap, os
fd = os.open("{outside}/there", os.O_RDWR)
with mmap.mmap(fd, 5) as m:
    m[:5] = b"EVIL!"
"""
_RACE = """
import os
for _ in range(300):
    os.symlink("{outside}", "l") if not os.path.islink("l") else None
    try:
        with open("l/raced", "w") as f: f.write("x")
    except OSError:
        pass
    os.unlink("l"); os.mkdir("l"); os.rmdir("l")
"""
_SHARED_MEMORY = "import ctypes; raise SystemExit(ctypes.CDLL(None).shmget({shm_key}, 0, 0) < 0)"
_QUEUE = 'import ctypes; raise SystemExit(ctypes.CDLL(None).mq_open(b"/{abstract_name}", 0) < 0)'
_FORKS = """
import os, signal
alive = []
try:
    for _ in range(700):
        child = os.fork()
        if not child:
            signal.pause()
        alive.append(child)
except OSError:
    pass
for child in alive:
    os.kill(child, 9)
raise SystemExit(len(alive) < 700)
"""
_MEMORY = f"import mmap as m; m.mmap(-1, {5 * GIB}, flags=m.MAP_PRIVATE | m.MAP_ANONYMOUS)"
_MORE = GIB + GIB // 8
_AGAIN = "exec 9<{outside}/there && echo EVIL > /proc/self/fd/9"
_LIST = "grep -qlz 1000 /proc/{pid}/cmdline && test -d /proc/{pid}/task"
_FCHMODAT = 'import os; os.close(os.open("s", os.O_CREAT)); os.chmod("s", 0o6755, dir_fd=os.open(".", os.O_RDONLY))'
_KEY = ('b"user"', 'b"lodger"', 'b"x"', 1, -3)

READ_ONLY = (
    Attack("write-again-by-descriptor", _AGAIN, open_options=writable_root),
    Attack("rename-outside", "mv {outside}/there {outside}/gone", open_options=writable_root),
    Attack("remove-outside", "rm -f {outside}/there", open_options=writable_root),
    Attack("mode-outside", "chmod 600 {outside}/there", open_options=writable_root),
    Attack("time-outside", "touch -d 2001-01-01 {outside}/there", open_options=writable_root),
    Attack("fifo-outside", "mkfifo {outside}/fifo", open_options=writable_root),
    Attack("link-outside", "ln -s /etc/passwd {outside}/link", open_options=writable_root),
    Attack("truncate-outside", "truncate -s 0 {outside}/there", open_options=writable_root),
    Attack("mapped-write", _python(_MMAP), open_options=writable_root),
    Attack(
        "archive-with-absolute-paths",
        "mkdir a && echo x > a/f && tar -cPf t --transform 's,^a/f,{outside}/unpacked,' a/f && tar -xPf t",
        open_options=writable_root,
        escaped=lambda around: (around.outside / "unpacked").exists(),
    ),
    Attack(
        "archive-with-parent-paths",
        "mkdir a && echo x > a/f && tar -cPf t --transform 's,^a/f,../outside/unpacked,' a/f && tar -xPf t",
        open_options=writable_root,
        escaped=lambda around: (around.outside / "unpacked").exists(),
    ),
    Attack(
        "race-of-links",
        _python(_RACE),
        open_options=writable_root,
        escaped=lambda around: (around.outside / "raced").exists(),
    ),
)  # fmt: skip

GIT = (
    Attack(
        "F2-remove-git",
        "rm -rf .git; mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
        open_policy=without_git_guard,
        escaped=lambda around: (around.workspace / ".git/hooks/pre-commit").exists(),
    ),
    Attack(
        "F2-hooks-swapped-for-a-link",
        "rm -rf .git/hooks; ln -s {outside} .git/hooks",
        open_policy=without_git_guard,
        escaped=lambda around: (around.workspace / ".git/hooks").is_symlink(),
    ),
)

SHARED = (
    Attack("N8-list-of-processes", _LIST, open_options=host_processes),
    Attack("stop-outside", "kill -STOP {pid}", open_options=host_processes),
    Attack("N7-sockets-of-the-host", "grep -q :{port_hex} /proc/net/tcp", open_options=without("--unshare-net")),
    Attack("shared-memory-of-the-host", _python(_SHARED_MEMORY), open_options=without("--unshare-ipc")),
    Attack("message-queue-of-the-host", _python(_QUEUE), open_options=without("--unshare-ipc")),
    Attack("name-of-the-host", 'test "$(uname -n)" = "{host_name}"', open_options=own_name),
    Attack("write-in-run", "echo x > /run/x", open_options=without("--remount-ro", "/run")),
)  # fmt: skip

KERNEL = (
    in_kernel("kcmp", 312, 272, "os.getpid()", "os.getpid()", 0, 0, 1),
    in_kernel("userfaultfd", 323, 282, 1),
    in_kernel("keyring", 250, 219, 0, -3, 1),
    in_kernel("add-key", 248, 217, *_KEY),
    in_kernel("take-descriptor", 438, 438, "c.syscall(434, os.getpid(), 0)", 1, 0),
    in_kernel("write-other-memory", 311, 271, "os.getpid()", 0, 0, 0, 0, 0),
    in_kernel("copy-mount", 428, 428, -100, 'b"/"', 0),
    in_kernel("watch-all-files", 300, 262, 0x200, 0),
    in_kernel("handle-of-a-file", 303, 264, -100, 'b"/"', 0, 0, 0),
    in_kernel("ring-of-calls", 425, 425, 1, 0),
    Attack("set-group-by-chmod", "mkdir s && chmod 2755 s && test -g s", open_options=without_filter),
    Attack("set-id-by-fchmodat", _python(_FCHMODAT), open_options=without_filter),
)

RESOURCES = (
    Attack("fork-bomb", _python(_FORKS), open_policy=with_limits(processes=4096)),
    Attack("memory-of-one-process", _python(_MEMORY), open_policy=with_limits(memory_bytes=64 * GIB)),
    Attack("endless-file", f"truncate -s {9 * GIB} f", open_policy=with_limits(file_size_bytes=64 * GIB)),
    Attack("fill-tmp", f"fallocate -l {_MORE} /tmp/f", open_policy=with_limits(tmp_bytes=2 * GIB)),
    Attack("fill-shared-memory", f"fallocate -l {_MORE} /dev/shm/f", open_policy=with_limits(tmp_bytes=2 * GIB)),
    Attack("fill-home", f"fallocate -l {_MORE} {{home}}/f", open_policy=with_limits(home_bytes=2 * GIB)),
)  # fmt: skip

ATTACKS = (*READ_ONLY, *GIT, *SHARED, *KERNEL, *RESOURCES)
