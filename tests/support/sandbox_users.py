"""Users, folders and a small runner for tests that start real boxes."""

import fcntl
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lodger_sandbox.contract import BoxRequest, BoxUser, DetachedBox, RunnerStart
from lodger_sandbox.core.policy import Policy
from lodger_sandbox.launch import runner_program, start_with_policy
from lodger_sandbox.prepare import Rewrite, policy_for
from lodger_sandbox.users import DEFAULT_USER, box_user
from support.patience import LIMIT_S

STUB_RUNNER = Path(__file__).parents[1] / "attacks" / "sandbox" / "stub_runner"
VISIBLE_FOLDER = Path("/srv")
"""Not covered by any private folder of a box, so that only a mask can hide what lies here."""


def user_of_boxes() -> BoxUser:
    """As root, the dedicated user, made if it is missing; otherwise oneself."""
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(DEFAULT_USER)
        except KeyError:
            make = ("useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin")
            subprocess.run((*make, DEFAULT_USER), check=True, capture_output=True)
    return box_user()


def own(path: Path, user: BoxUser) -> None:
    """Give a tree to the box's user."""
    if os.geteuid() != user.uid:
        for entry in (path, *path.rglob("*")):
            os.chown(entry, user.uid, user.gid, follow_symlinks=False)


@contextmanager
def visible_folder(parent: Path = VISIBLE_FOLDER) -> Iterator[Path]:
    """A new folder that boxes can see."""
    folder = Path(tempfile.mkdtemp(prefix="lodger-test-", dir=parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class RunningBox:
    box: DetachedBox
    socket_path: Path
    lock_path: Path

    def run(self, command: str, *, limit_s: float = LIMIT_S) -> tuple[int, str]:
        """The exit code and output of a shell command inside; -1 when the runner is gone."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(limit_s)
                connection.connect(str(self.socket_path))
                connection.sendall(command.encode())
                connection.shutdown(socket.SHUT_WR)
                answer = b""
                while piece := connection.recv(65536):
                    answer += piece
        except OSError:
            return -1, ""
        code, _, output = answer.decode("utf-8", "replace").partition("\n")
        return (int(code), output) if code else (-1, "")

    def lock_is_held(self) -> bool:
        with self.lock_path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


@contextmanager
def running_box(
    request: BoxRequest, state: Path, *, wrap: Callable[[Policy], Policy] | None = None, rewrite: Rewrite | None = None
) -> Iterator[RunningBox]:
    """A detached box with the small runner in it; killed at the end."""
    with ExitStack() as opened:
        running = start_box(opened, request, state, wrap=wrap, rewrite=rewrite)
        try:
            yield running
        finally:
            kill(running.box.outer_pid)


def start_box(
    opened: ExitStack,
    request: BoxRequest,
    state: Path,
    *,
    wrap: Callable[[Policy], Policy] | None = None,
    rewrite: Rewrite | None = None,
) -> RunningBox:
    """Start a box and let go of everything of it."""
    socket_path, lock_path = state / "box.sock", state / "box.lock"
    with ExitStack() as briefly:
        listener = briefly.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(socket_path))
        opened.callback(socket_path.unlink, missing_ok=True)
        listener.listen()
        lock = briefly.enter_context(lock_path.open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX)
        token_read, token_write = os.pipe()
        os.write(token_write, b"token-of-the-runner")
        os.close(token_write)
        briefly.callback(os.close, token_read)
        runner = RunnerStart(str(STUB_RUNNER), listener.fileno(), token_read, lock.fileno())
        program = runner_program(runner)
        policy = policy_for(request, program)
        box = start_with_policy(wrap(policy) if wrap else policy, request, runner, rewrite)
    return RunningBox(box, socket_path, lock_path)


def kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass


def as_ordinary_user(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a user that is neither root nor the dedicated one. Root only: it shows the base interpreter,
    which may lie below a private home, at a place of its own in a mount namespace of its own."""
    repository = Path(__file__).parents[2]
    uid = "54321"
    environment = {
        "HOME": "/nonexistent",
        "PATH": "/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        # Stands for whatever the daemon's own environment holds.
        "PYTEST_CURRENT_TEST": "as an ordinary user",
        "PYTHONPATH": ":".join(str(repository / name) for name in ("sandbox", "tools", "daemon", "tests")),
    }
    shown = "/mnt"
    python = f"{shown}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    shell = (
        f'mount --bind "$1" {shown} && shift && exec setpriv --reuid {uid} --regid {uid} --clear-groups {python} "$@"'
    )
    return subprocess.run(
        ("unshare", "-m", "--propagation", "slave", "sh", "-c", shell, "sh", sys.base_prefix, str(script), *arguments),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
