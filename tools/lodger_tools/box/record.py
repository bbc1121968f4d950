"""What stands on disk of a box, so that a later daemon finds it: one private folder each, below `Paths.boxes`.

    lock      held by the runner; whoever can lock it knows that the box has ended
    socket    where the runner listens; it has no path inside the box
    token     what a connection must show
    box.json  which box it is, written before it starts and again when its processes are known

All functions here block; they run in a thread.
"""

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_tools.box.contract import BoxKey, BoxProfile
from lodger_tools.json_value import JsonObject

RECORD_LIMIT_BYTES: Final = 64 * 1024
TOKEN_LIMIT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class BoxRecord:
    """A box as `box.json` names it. `runner_pid` is 0 until it has started."""

    key: BoxKey
    fingerprint: str
    """Of the request it was started with: under another policy it may finish calls, but begin none."""
    outer_pid: int = 0
    runner_pid: int = 0
    runner_start_ticks: int = 0
    group: str = ""
    """The control group of its own, if it has one."""


@dataclass(frozen=True, slots=True)
class FoundBox:
    folder: Path
    record: BoxRecord
    token: str


def make_folder(boxes: Path) -> Path:
    """A fresh private folder for one box."""
    boxes.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = boxes / secrets.token_hex(8)
    folder.mkdir(mode=0o700)
    return folder


def make_lock(folder: Path) -> int:
    """A locked descriptor; every copy of it holds the lock."""
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def make_token(folder: Path) -> str:
    token = secrets.token_hex(32)
    fd = os.open(folder / "token", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(token)
    return token


def make_listener(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_folder(folder) as short:
        listener.bind(f"{short}/socket")
    (folder / "socket").chmod(0o600)
    listener.listen(8)
    return listener


def connect(folder: Path) -> socket.socket:
    """Raises: OSError when nobody listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Only the backlog could make this wait, and that is never full for long.
        connection.settimeout(5.0)
        with short_folder(folder) as short:
            connection.connect(f"{short}/socket")
        connection.setblocking(False)
    except OSError:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def short_folder(folder: Path) -> Iterator[str]:
    """A name of the folder that fits into the 108 bytes of a socket's address, however deep it lies."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def write_record(folder: Path, record: BoxRecord) -> None:
    text = json.dumps(
        {
            "agent_id": record.key.agent_id,
            "workspace": record.key.workspace,
            "profile": record.key.profile.value,
            "fingerprint": record.fingerprint,
            "outer_pid": record.outer_pid,
            "runner_pid": record.runner_pid,
            "runner_start_ticks": record.runner_start_ticks,
            "group": record.group,
        }
    )
    temporary = folder / "box.json.new"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
    temporary.rename(folder / "box.json")


def read_record(folder: Path) -> BoxRecord | None:
    try:
        with (folder / "box.json").open() as file:
            value: JsonObject = json.loads(file.read(RECORD_LIMIT_BYTES))
        key = BoxKey(str(value["agent_id"]), str(value["workspace"]), BoxProfile(str(value["profile"])))
        pids = [value[name] for name in ("outer_pid", "runner_pid", "runner_start_ticks")]
        outer, runner, ticks = (pid if isinstance(pid, int) else 0 for pid in pids)
        return BoxRecord(key, str(value["fingerprint"]), outer, runner, ticks, str(value.get("group", "")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_alive(folder: Path) -> bool:
    """Whether a box still holds the folder's lock."""
    try:
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            return True
        raise
    finally:
        os.close(fd)
    return False


def find_boxes(boxes: Path) -> tuple[FoundBox, ...]:
    """The boxes that an earlier daemon left running. Folders of ended ones are removed."""
    found = []
    for folder in sorted(boxes.iterdir()) if boxes.is_dir() else ():
        if not folder.is_dir():
            continue
        record = read_record(folder)
        if not is_alive(folder):
            remove_folder(folder)
        elif record is not None:
            with contextlib.suppress(OSError), (folder / "token").open() as file:
                found.append(FoundBox(folder, record, file.read(TOKEN_LIMIT_BYTES)))
    return tuple(found)


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def kill_box(record: BoxRecord) -> bool:
    """KILL to PID 1 of the box, which ends all in it; only if the process is still the one that was recorded."""
    if record.runner_pid <= 1:
        return False
    try:
        fd = os.pidfd_open(record.runner_pid)
    except (ProcessLookupError, OSError):
        return False
    try:
        if start_ticks(record.runner_pid) != record.runner_start_ticks:
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0 when there is no such process."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = data.rpartition(b")")[2].split()
    return int(fields[19]) if len(fields) > 19 else 0
