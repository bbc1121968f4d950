"""Starting one box around its socket, lock and token. Blocks; runs in a thread."""

import hashlib
import os
import py_compile
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeAlias

import lodger_sandbox
import lodger_tools.runner
from lodger_sandbox.contract import BoxRequest, DetachedBox, RunnerStart, SandboxUnavailable
from lodger_tools.box import record as records
from lodger_tools.box.contract import BoxKey, BoxUnavailable

StartDetached: TypeAlias = Callable[[BoxRequest, RunnerStart], DetachedBox]
RequestFor: TypeAlias = Callable[[BoxKey], BoxRequest]


@dataclass(frozen=True, slots=True)
class Starter:
    """What is the same for every box of this daemon."""

    boxes: Path
    request_for: RequestFor
    """Blocking; may look at the disk. Raises: BoxUnavailable, SandboxUnavailable."""
    start_detached: StartDetached
    extra_folders: tuple[tuple[str, str], ...] = ()


def runner_folder() -> Path:
    return Path(lodger_tools.runner.__path__[0])


def compile_runner() -> None:
    """Have byte code of the runner at hand: compiling it inside would add half to the start of each box. The box does
    not write it (`-B`), and a read-only installation brings its own."""
    for source in runner_folder().glob("*.py"):
        try:
            cached = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
            if not cached.exists() or cached.stat().st_mtime < source.stat().st_mtime:
                py_compile.compile(str(source), doraise=True)
        except (OSError, py_compile.PyCompileError):
            return


def fingerprint(starter: Starter, request: BoxRequest) -> str:
    """Whether an adopted box is the one that would be started now: the same request, rendered and served by the same
    code. After an upgrade an old box finishes its calls and begins none."""
    code = code_stamp(
        str(runner_folder()), str(lodger_sandbox.__path__[0]), *(folder for folder, _ in starter.extra_folders)
    )
    parts = (sorted(asdict(request).items()), starter.extra_folders, code)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@cache
def code_stamp(*folders: str) -> str:
    """Of every Python file in these folders; read once, as the code of this process is."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(Path(folder).rglob("*.py")):
            digest.update(str(file).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def start_box(starter: Starter, key: BoxKey) -> records.FoundBox:
    """Start a box and record it. On failure nothing is left behind.

    Raises: BoxUnavailable with the sandbox's words.
    """
    try:
        request = starter.request_for(key)
    except SandboxUnavailable as error:
        raise BoxUnavailable(str(error)) from error
    try:
        folder = records.make_folder(starter.boxes)
    except OSError as error:
        raise BoxUnavailable(f"The folder for boxes cannot be used: {error}") from error
    try:
        return start_in(starter, key, request, folder)
    except SandboxUnavailable as error:
        records.remove_folder(folder)
        raise BoxUnavailable(str(error)) from error
    except OSError as error:
        records.remove_folder(folder)
        raise BoxUnavailable(f"The box could not be started: {error}") from error


def start_in(starter: Starter, key: BoxKey, request: BoxRequest, folder: Path) -> records.FoundBox:
    record = records.BoxRecord(key, fingerprint(starter, request))
    records.write_record(folder, record)
    token = records.make_token(folder)
    opened = [records.make_lock(folder)]
    try:
        listener = records.make_listener(folder)
        with listener:
            token_read, token_write = os.pipe2(os.O_CLOEXEC)
            opened.append(token_read)
            os.write(token_write, token.encode())
            os.close(token_write)
            runner = RunnerStart(str(runner_folder()), listener.fileno(), token_read, opened[0], starter.extra_folders)
            started = starter.start_detached(request, runner)
    finally:
        for fd in opened:
            os.close(fd)
    record = replace(
        record,
        outer_pid=started.outer_pid,
        runner_pid=started.runner_pid,
        runner_start_ticks=started.runner_start_ticks,
        group=started.group,
    )
    records.write_record(folder, record)
    return records.FoundBox(folder, record, token)
