"""Attacks from inside a box. Each names the one protection that stops it and how to take that protection away."""

import ctypes
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lodger_sandbox.contract import BoxRequest, BoxUser
from lodger_sandbox.core.policy import Policy
from lodger_sandbox.foreground import policy_for_command, run_with_policy
from support.sandbox_users import own, visible_folder

CANARY = "canary-3f9c"
SHARED_KEY = 0x10D6E5
"""Of a piece of System V shared memory outside."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A machine in small: what an attacker would like to reach. All of it is within the box user's own rights, so
    that nothing but the box stands in the way."""

    workspace: Path
    outside: Path
    home: Path
    state: Path
    port: int
    abstract_name: str
    tmp_socket: Path
    state_socket: Path
    neighbour: subprocess.Popen[bytes]

    def words(self) -> dict[str, str]:
        names = ("workspace", "outside", "home", "state", "port", "abstract_name", "tmp_socket", "state_socket")
        more = {"port_hex": f"{self.port:04X}", "shm_key": str(SHARED_KEY), "host_name": socket.gethostname()}
        own = {"pid": str(self.neighbour.pid), "canary": CANARY}
        return {name: str(getattr(self, name)) for name in names} | own | more

    def request(self, user: BoxUser, *, profile: str = "agent") -> BoxRequest:
        return BoxRequest(
            workspace=str(self.workspace),
            profile=profile,  # type: ignore[arg-type]
            user=user,
            home=str(self.home),
            masks=(str(self.state),),
            environment={"PATH": "/usr/bin:/bin", "HOME": str(self.home)},
        )


Options = tuple[str, ...]


def _same(policy: Policy) -> Policy:
    return policy


def _all(options: Options) -> Options:
    return options


@dataclass(frozen=True, slots=True)
class Attack:
    """`command` is a shell script that exits with 0 when it got through; `escaped` looks from outside instead."""

    id: str
    command: str
    open_policy: Callable[[Policy], Policy] = _same
    open_options: Callable[[Options], Options] = _all
    escaped: Callable[[Surroundings], bool] | None = None


def without(*unwanted: str) -> Callable[[Options], Options]:
    """Without one option and its values, wherever it stands."""
    width = len(unwanted)

    def rewrite(options: Options) -> Options:
        kept: list[str] = []
        index = 0
        while index < len(options):
            if options[index : index + width] == unwanted:
                index += width
            else:
                kept.append(options[index])
                index += 1
        return tuple(kept)

    return rewrite


def swapped(before: Options, after: Options) -> Callable[[Options], Options]:
    def rewrite(options: Options) -> Options:
        for index in range(len(options)):
            if options[index : index + len(before)] == before:
                return (*options[:index], *after, *options[index + len(before) :])
        raise AssertionError(f"{before} is not among the options")

    return rewrite


def without_filter(options: Options) -> Options:
    index = options.index("--seccomp")
    return (*options[:index], *options[index + 2 :])


def without_git_guard(policy: Policy) -> Policy:
    git = f"{policy.workspace}/.git"
    return replace(policy, shown=tuple(item for item in policy.shown if not item.target.startswith(git)), to_create=())


def without_masks(policy: Policy) -> Policy:
    return replace(policy, hidden=())


def without_private(name: str) -> Callable[[Policy], Policy]:
    def open_policy(policy: Policy) -> Policy:
        path = policy.home if name == "home" else name
        return replace(
            policy,
            private=tuple(item for item in policy.private if item.path != path),
            shown=tuple(item for item in policy.shown if item.target == policy.workspace),
        )

    return open_policy


_host_processes = swapped(("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"), ("--ro-bind", "/proc", "/proc"))


def host_processes(options: Options) -> Options:
    return without("--unshare-pid")(_host_processes(options))


def _python(text: str) -> str:
    """`python3` of the machine may be missing; the box's own interpreter is not."""
    return f"exec \"$BOX_PYTHON\" -I -S -c '{text}'"


_CONNECT = (
    "import socket; c = socket.socket(socket.AF_{family}); c.settimeout(2); c.connect({address}); "
    'assert c.recv(99) == b"{{canary}}"'
)
_TIOCSTI = """
import errno, fcntl, os, termios
os.setsid() if os.getpid() != os.getsid(0) else None
main, side = os.openpty()
fcntl.ioctl(side, termios.TIOCSCTTY, 0)
try:
    fcntl.ioctl(side, termios.TIOCSTI, b"x")
except OSError as error:
    # A newer kernel refuses it by itself, with another number than the filter.
    raise SystemExit(0 if error.errno == errno.EIO else 1)
"""
_SET_ID_BY_OPEN = """
import os
os.umask(0)
fd = os.open("s", os.O_CREAT | os.O_WRONLY, 0o4755)
assert os.fstat(fd).st_mode & 0o4000
"""
_SET_ID_BY_TEMPORARY = """
import os
os.umask(0)
fd = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755)
assert os.fstat(fd).st_mode & 0o4000
"""
_READ_NEIGHBOUR = """
import ctypes, os
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
child = os.fork()
if not child:
    os.pause() if hasattr(os, "pause") else __import__("_signal").pause()
there = ctypes.create_string_buffer(b"secret")
here = ctypes.create_string_buffer(6)
local, remote = Part(ctypes.addressof(here), 6), Part(ctypes.addressof(there), 6)
got = ctypes.CDLL(None).process_vm_readv(child, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
os.kill(child, 9)
assert got == 6
"""

ATTACKS = (
    Attack(
        "F1-working-folder-is-root",
        "cd / && echo x > {outside}/f1",
        open_options=swapped(("--ro-bind", "/", "/"), ("--bind", "/", "/")),
        escaped=lambda around: (around.outside / "f1").exists(),
    ),
    Attack(
        "F1-parent-of-workspace",
        "echo x > {workspace}/../outside/f1",
        open_options=swapped(("--ro-bind", "/", "/"), ("--bind", "/", "/")),
        escaped=lambda around: (around.outside / "f1").exists(),
    ),
    Attack(
        "F2-absent-hook",
        "mkdir -p .git/hooks; echo x > .git/hooks/post-commit",
        open_policy=without_git_guard,
        escaped=lambda around: (around.workspace / ".git/hooks/post-commit").exists(),
    ),
    Attack(
        "F2-absent-commondir",
        "rm -f .git/commondir; echo ../evil > .git/commondir",
        open_policy=without_git_guard,
        escaped=lambda around: "evil" in (around.workspace / ".git/commondir").read_text(),
    ),
    Attack(
        "F2-absent-config-worktree",
        "rm -f .git/config.worktree; echo evil > .git/config.worktree",
        open_policy=without_git_guard,
        escaped=lambda around: "evil" in (around.workspace / ".git/config.worktree").read_text(),
    ),
    Attack(
        "F2-rename-git",
        "mv .git elsewhere && mkdir .git",
        open_policy=without_git_guard,
        escaped=lambda around: (around.workspace / "elsewhere").exists(),
    ),
    Attack("F4-masked-file", "grep -q {canary} {state}/memory", open_policy=without_masks),
    Attack("F4-by-link", "ln -sf {state}/memory l; grep -q {canary} l", open_policy=without_masks),
    Attack("F4-by-proc-root", "grep -q {canary} /proc/self/root{state}/memory", open_policy=without_masks),
    Attack("F4-by-proc-1-root", "grep -q {canary} /proc/1/root{state}/memory", open_policy=without_masks),
    Attack("F4-by-descriptor", "exec 9<{state} && grep -q {canary} /proc/self/fd/9/memory", open_policy=without_masks),
    Attack("F4-by-mode", "chmod 755 {state}; grep -q {canary} {state}/memory", open_policy=without_masks),
    Attack("F4-unmount", "umount {state}; grep -q {canary} {state}/memory", open_policy=without_masks),
    Attack(
        "F4-fill-mask",
        "chmod 700 {state} && echo x > {state}/fake",
        open_options=lambda options: options[: options.index("--remount-ro")] + options[options.index("--seccomp") :],
    ),
    Attack("F4-ssh-key", "grep -q {canary} {home}/.ssh/id", open_policy=without_private("home")),
    Attack(
        "F4-made-later",
        "grep -q {canary} {home}/.new-secret",
        open_policy=without_private("home"),
    ),
    Attack("F13-terminal-input", _python(_TIOCSTI), open_options=without_filter),
    Attack(
        "N1-loopback",
        _python(_CONNECT.format(family="INET", address='("127.0.0.1", {port})')),
        open_options=without("--unshare-net"),
    ),
    Attack(
        "N7-abstract-socket",
        _python(_CONNECT.format(family="UNIX", address='"\\0{abstract_name}"')),
        open_options=without("--unshare-net"),
    ),
    Attack(
        "N7-socket-in-tmp",
        _python(_CONNECT.format(family="UNIX", address='"{tmp_socket}"')),
        open_policy=without_private("/tmp"),
    ),
    Attack(
        "N7-own-socket", _python(_CONNECT.format(family="UNIX", address='"{state_socket}"')), open_policy=without_masks
    ),
    Attack("N8-processes-of-others", "grep -qz sleep /proc/{pid}/cmdline", open_options=host_processes),
    Attack(
        "N8-environment-of-the-daemon",
        "cat /proc/*/environ | grep -qz ^PYTEST_CURRENT_TEST= || env | grep -q ^PYTEST_CURRENT_TEST=",
        open_policy=lambda policy: replace(policy, environment={**os.environ, **policy.environment}),
    ),
    Attack(
        "kill-outside",
        "kill -9 {pid}",
        open_options=host_processes,
        escaped=lambda around: around.neighbour.poll() is not None,
    ),
    Attack("memory-without-limit", "echo x > /dev/fill", open_options=without("--remount-ro", "/dev")),
    Attack("set-id-by-chmod", "touch s; chmod 4755 s", open_options=without_filter),
    Attack("set-id-by-open", _python(_SET_ID_BY_OPEN), open_options=without_filter),
    Attack("set-id-by-temporary-file", _python(_SET_ID_BY_TEMPORARY), open_options=without_filter),
    Attack("memory-of-others", _python(_READ_NEIGHBOUR), open_options=without_filter),
    Attack(
        "new-namespace",
        "unshare -U true",
        open_options=lambda options: without("--disable-userns")(without_filter(options)),
    ),
)


@contextmanager
def surroundings(user: BoxUser, parent: Path) -> Iterator[Surroundings]:
    with visible_folder(parent) as base:
        folders = [base / name for name in ("workspace", "outside", "home", "state")]
        with furnished(user, *folders) as around:
            yield around


@contextmanager
def furnished(user: BoxUser, workspace: Path, outside: Path, home: Path, state: Path) -> Iterator[Surroundings]:
    """With what there is to reach. The box's user owns all but a state that is there already."""
    with ExitStack() as opened:
        owned = [workspace, outside, home, *([] if state.exists() else [state])]
        for folder in (workspace / ".git", outside, home / ".ssh", state):
            folder.mkdir(parents=True, exist_ok=True)
        for name in ("commondir", "config.worktree"):
            # Absent at first in the tests that need it; these hold what git takes for nothing.
            assert not (workspace / ".git" / name).exists()
        (workspace / ".git/config").write_text("")
        (outside / "there").write_text("there")
        for path in (home / ".ssh/id", home / ".new-secret", state / "memory"):
            path.write_text(CANARY)
        name = workspace.parent.name
        tmp_socket = Path(f"/tmp/{name}.sock")
        opened.callback(tmp_socket.unlink, missing_ok=True)
        abstract_name = name
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        greeted = [listener]
        for address in (f"\0{abstract_name}", str(tmp_socket), str(state / "own.sock")):
            unix = opened.enter_context(socket.socket(socket.AF_UNIX))
            unix.bind(address)
            unix.listen()
            greeted.append(unix)
        opened.enter_context(_shared_things(abstract_name))
        for folder in owned:
            own(folder, user)
        tmp_socket.chmod(0o777)
        stop_read, stop_write = os.pipe()
        greeter = _greet(greeted, stop_read)
        opened.callback(greeter.join)
        opened.callback(os.close, stop_write)
        neighbour = _neighbour(user)
        opened.callback(neighbour.wait)
        opened.callback(neighbour.kill)
        port = listener.getsockname()[1]
        yield Surroundings(
            workspace, outside, home, state, port, abstract_name, tmp_socket, state / "own.sock", neighbour
        )


@contextmanager
def _shared_things(name: str) -> Iterator[None]:
    """Shared memory and a message queue that everybody outside may open."""
    libc = ctypes.CDLL(None, use_errno=True)
    memory = libc.shmget(SHARED_KEY, 64, 0o1666)
    queue = libc.mq_open(f"/{name}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    assert memory >= 0 and queue >= 0, os.strerror(ctypes.get_errno())
    libc.fchmod(queue, 0o666)
    try:
        yield
    finally:
        os.close(queue)
        libc.mq_unlink(f"/{name}".encode())
        libc.shmctl(memory, 0, None)


def _greet(listeners: list[socket.socket], stop_fd: int):  # type: ignore[no-untyped-def]
    import select
    import threading

    def serve() -> None:
        while True:
            ready, _, _ = select.select([stop_fd, *listeners], [], [])
            if stop_fd in ready:
                os.close(stop_fd)
                return
            for listener in ready:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(CANARY.encode())

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def _neighbour(user: BoxUser) -> subprocess.Popen[bytes]:
    """A process of the same user outside, with a secret in its environment."""
    command = ("sleep", "1000")
    if os.geteuid() != user.uid:
        prefix = ("setpriv", "--reuid", str(user.uid), "--regid", str(user.gid), "--clear-groups")
        command = (*prefix, *command)
    neighbour = subprocess.Popen(command, env={"PATH": os.defpath, "SECRET": CANARY})
    # `setpriv` becomes `sleep`; only then is it the user's.
    while (Path("/proc") / str(neighbour.pid) / "comm").read_text().strip() != "sleep":
        os.sched_yield()
    return neighbour


def spelled_out(attack: Attack, around: Surroundings) -> str:
    script = attack.command
    for name, value in around.words().items():
        script = script.replace("{" + name + "}", value).replace("{{" + name + "}}", value)
    return script


def gets_through(attack: Attack, user: BoxUser, parent: Path, *, protected: bool) -> bool:
    """Run one attack in a box of its own."""
    with surroundings(user, parent) as around:
        request = around.request(user)
        script = spelled_out(attack, around)
        policy = policy_for_command(request, ("sh", "-c", script))
        policy = replace(policy, environment={**policy.environment, "BOX_PYTHON": policy.command[0]})
        if not protected:
            policy = attack.open_policy(policy)
        code = run_with_policy(
            policy,
            request,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("LODGER_TEST_SHOW") else subprocess.DEVNULL,
            limit_s=10,
            rewrite=None if protected else attack.open_options,
        )
        return got_through(attack, around, code)


def got_through(attack: Attack, around: Surroundings, exit_code: int) -> bool:
    if attack.escaped is not None:
        try:
            return attack.escaped(around)
        except FileNotFoundError:
            return False
    return exit_code == 0
