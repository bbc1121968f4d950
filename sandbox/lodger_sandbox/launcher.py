"""The small process between the daemon and bubblewrap. Run as a program, never imported by the daemon.

    python -I -S -B launcher.py PLAN_FD

Forking a large, threaded daemon is slow and unsafe, so the daemon starts this file instead, which imports next to
nothing. It opens no path by name but /run: every source comes as an open descriptor. The plan is a list of NUL-ended
words `name=value` (made in `prepare.py`). Errors go to standard error; the exit code says whether it worked.

Started as root, it mounts the sources below a private /run, which only it and bwrap see, so that the box's user can
bind a folder that stands below a home it may not enter; then it becomes that user for good.
"""

import os
import resource
import signal
import sys

MS_NOSUID, MS_NODEV, MS_REC, MS_SLAVE = 2, 4, 16384, 1 << 19
CLONE_NEWNS = 0x00020000
SYS_OPEN_TREE, SYS_MOVE_MOUNT = 428, 429  # the same on every architecture; Linux 5.2 or newer
OPEN_TREE_CLONE, AT_RECURSIVE, AT_EMPTY_PATH, AT_FDCWD, MOVE_MOUNT_F_EMPTY_PATH = 1, 0x8000, 0x1000, -100, 4
STAGE = "/run"
PLAN_LIMIT_BYTES = 4 * 1024 * 1024
NO_ACCESS = 3
"""Exit code: the box's user cannot use the workspace."""


def read_plan(plan_fd: int) -> list[tuple[str, str]]:
    with open(plan_fd, "rb") as plan:
        words = plan.read(PLAN_LIMIT_BYTES).decode("utf-8", "surrogateescape").split("\0")
    return [(name, value) for name, _, value in (word.partition("=") for word in words if word)]


def values(plan: list[tuple[str, str]], wanted: str) -> list[str]:
    return [value for name, value in plan if name == wanted]


def stage_sources(descriptors: list[int]) -> None:
    """Bind each source onto /run/N in a mount namespace of our own. Needs root."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")

    def mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None) -> None:
        check(libc.mount(source, target, kind, ctypes.c_ulong(flags), data), f"mounting on {os.fsdecode(target)}")

    # Copies are taken before the namespace is left: afterwards the kernel would not bind what was opened here.
    trees = []
    for descriptor in descriptors:
        flags = OPEN_TREE_CLONE | AT_RECURSIVE | AT_EMPTY_PATH
        tree = libc.syscall(SYS_OPEN_TREE, descriptor, b"", flags)
        check(tree if tree < 0 else 0, "copying a mount")
        trees.append(tree)
    check(libc.unshare(CLONE_NEWNS), "a mount namespace of its own")
    # Slave: an unmount on the host still reaches us, so that a running box does not hold a disk.
    mount(b"none", b"/", None, MS_SLAVE | MS_REC, None)
    mount(b"tmpfs", STAGE.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=0755,size=4m")
    for descriptor, tree in zip(descriptors, trees, strict=True):
        place = f"{STAGE}/{descriptor}"
        if os.fstat(descriptor).st_mode & 0o170000 == 0o040000:
            os.mkdir(place, 0o755)  # noqa: PTH102 - pathlib costs 8 ms to import
        else:
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
        result = libc.syscall(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, place.encode(), MOVE_MOUNT_F_EMPTY_PATH)
        check(result, f"mounting on {place}")
        os.close(tree)
        os.close(descriptor)


def become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def check_access(path: str, mode: int) -> None:
    if not os.access(path, mode):
        sys.exit(NO_ACCESS)


def detach(gate_fd: int) -> None:
    """Fork and end the parent; the child goes on once the daemon has seen the parent end.

    bwrap's death signal then belongs to init. Waiting for the parent's own end of file would be a race: the kernel
    closes files before it gives a process a new parent. The child's pid goes to standard output.
    """
    os.setsid()
    child = os.fork()
    if child:
        os.write(1, b"%d\n" % child)
        os._exit(0)
    leave_standard_streams()
    if os.read(gate_fd, 1) != b"!":
        os._exit(1)  # the daemon went away in mid-start
    os.close(gate_fd)


def limit_processes(pid_fd: int, done_fd: int, most: int) -> None:
    """Leave a helper behind that limits the box's processes once its user namespace exists, and then ends.

    Before that, the limit would count all of the user's boxes together. Only a process of the box's own user may do it
    where root lacks CAP_SYS_RESOURCE, as in most containers.
    """
    if os.fork():
        os.close(pid_fd)
        os.close(done_fd)
        return
    leave_standard_streams()
    # Above all bwrap's report, whose end would otherwise not be seen, and the runner's lock.
    first, second = sorted((pid_fd, done_fd))
    os.closerange(3, first)
    os.closerange(first + 1, second)
    os.closerange(second + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    word = os.read(pid_fd, 32)
    if word:
        resource.prlimit(int(word), resource.RLIMIT_NPROC, (most, most))
        os.write(done_fd, b"!")
    os._exit(0)


def leave_standard_streams() -> None:
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


def main() -> None:
    plan = read_plan(int(sys.argv[1]))
    for word in values(plan, "group"):
        # While we are who made it: older kernels ask who writes, newer ones who opened it.
        os.write(int(word), b"0")
        os.close(int(word))
    for user in values(plan, "user"):
        uid, gid = (int(word) for word in user.split(":"))
        stage_sources([int(word) for word in values(plan, "stage")])
        become(uid, gid)
    for word in values(plan, "access"):
        mode, _, path = word.partition(":")
        check_access(path, int(mode))
    for word in values(plan, "nice"):
        os.nice(int(word))
    for word in values(plan, "close"):
        os.close(int(word))
    for word in values(plan, "limit"):
        kind, most = (int(part) for part in word.split(":"))
        hard = resource.getrlimit(kind)[1]
        lower = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (lower, lower))
    os.umask(0o022)
    for word in values(plan, "limiter"):
        pid_fd, done_fd, most = (int(part) for part in word.split(":"))
        limit_processes(pid_fd, done_fd, most)
    for word in values(plan, "detach"):
        detach(int(word))
    command = values(plan, "argv")
    if not command:
        return
    # Python ignores these; whatever runs inside must not.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    # On a terminal, Ctrl-C is for the command; bwrap must outlive it to hand on the exit code.
    for word in values(plan, "ignore"):
        signal.signal(int(word), signal.SIG_IGN)
    # bwrap gets an environment of nothing as well: it reads no variable that we want it to read.
    os.execve(command[0], command, {})  # noqa: S606


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
