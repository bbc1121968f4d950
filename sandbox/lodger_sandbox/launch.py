"""Starting a box that outlives the daemon."""

import fcntl
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from lodger_sandbox.cgroups import group_for, remove_left_groups
from lodger_sandbox.contract import BoxRequest, DetachedBox, RunnerStart, SandboxUnavailable
from lodger_sandbox.core.bwrap_arguments import Style
from lodger_sandbox.core.make_policy import Program
from lodger_sandbox.core.policy import Policy
from lodger_sandbox.launcher import NO_ACCESS
from lodger_sandbox.prepare import Prepared, Rewrite, policy_for, prepared_box, unavailable
from lodger_sandbox.process_facts import name_and_start
from lodger_sandbox.users import refuse_workspace

START_LIMIT_S: Final = 10.0
"""A start takes 40 ms on an idle machine; a loaded one may need a hundred times that."""

_INFO_LIMIT_BYTES: Final = 4096
_ERRORS_LIMIT_BYTES: Final = 16 * 1024
_LOOK_AGAIN_MS: Final = 1


def start_detached(request: BoxRequest, runner: RunnerStart) -> DetachedBox:
    """Start a box and let go of it. Blocks for some 40 ms: call it in a thread.

    When this returns, the runner's interpreter has been started as PID 1 with `LISTEN TOKEN LOCK` as its arguments;
    its descriptors have the numbers they have here. If this process dies in mid-start, either nothing runs or the box
    is complete and its lock is held.

    Raises:
        SandboxUnavailable: nothing runs. `PolicyRefused` and `WorkspaceRefused` are kinds of it.
    """
    return start_with_policy(policy_for(request, runner_program(runner)), request, runner)


def runner_program(runner: RunnerStart) -> Program:
    descriptors = (runner.listener_fd, runner.token_fd, runner.lock_fd)
    return Program(runner.program_folder, tuple(str(number) for number in descriptors), runner.extra_folders)


def start_with_policy(
    policy: Policy, request: BoxRequest, runner: RunnerStart, rewrite: Rewrite | None = None
) -> DetachedBox:
    """As `start_detached`, under a policy made before; tests take one protection out of it."""
    with ExitStack() as opened:
        errors_fd = os.memfd_create("lodger-errors", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        opened.callback(os.close, errors_fd)
        gate_read_fd, gate_write_fd = os.pipe()
        opened.callback(os.close, gate_read_fd)
        gate = opened.enter_context(open(gate_write_fd, "wb", buffering=0))
        remove_left_groups()
        group = opened.enter_context(group_for(policy.limits))
        prepared = opened.enter_context(
            prepared_box(policy, request, Style(detached=True), gate_fd=gate_read_fd, group=group, rewrite=rewrite)
        )
        deadline_mono = time.monotonic() + START_LIMIT_S
        outer_pid = _start_launcher(prepared, request, runner, (gate_read_fd,), errors_fd)
        # Taken while bwrap waits at the gate, so the descriptor names that process and no other.
        outer = opened.enter_context(_killed_unless_kept(outer_pid))
        gate.write(b"!")
        runner_pid = first_process(prepared, deadline_mono)
        start_ticks = None if runner_pid is None else _see_it_run(runner_pid, deadline_mono)
        if runner_pid is None or start_ticks is None:
            raise unavailable(_read_errors(errors_fd), request, policy)
        outer.keep()
        group.kept = True
        _close_errors(errors_fd)
        return DetachedBox(outer_pid, runner_pid, start_ticks, group.path)


class _Outer:
    def __init__(self) -> None:
        self.kept = False

    def keep(self) -> None:
        self.kept = True


@contextmanager
def _killed_unless_kept(pid: int) -> Iterator[_Outer]:
    """A start that failed or took too long leaves nothing running."""
    pidfd = os.pidfd_open(pid)
    outer = _Outer()
    try:
        yield outer
    finally:
        if not outer.kept:
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.close(pidfd)


def _start_launcher(
    prepared: Prepared, request: BoxRequest, runner: RunnerStart, started_with: tuple[int, ...], errors_fd: int
) -> int:
    """The pid that bwrap will have. The launcher has ended when this returns."""
    inherited = (*prepared.inherited, *started_with, runner.listener_fd, runner.token_fd, runner.lock_fd)
    try:
        started = subprocess.run(
            prepared.launcher,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors_fd,
            pass_fds=inherited,
            env={},
            cwd="/",
            check=False,
            timeout=START_LIMIT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise _too_slow() from error
    if started.returncode == NO_ACCESS:
        raise refuse_workspace(request.user, prepared.policy.workspace)
    if started.returncode != 0 or not started.stdout:
        raise unavailable(_read_errors(errors_fd), request, prepared.policy)
    return int(started.stdout)


def first_process(prepared: Prepared, deadline_mono: float) -> int | None:
    """The pid of the box's first process, its number of processes limited; None when bwrap ended without one.

    Raises: SandboxUnavailable.
    """
    prepared.close_others()
    report = b""
    while len(report) < _INFO_LIMIT_BYTES:
        piece = _read_soon(prepared.info_read_fd, deadline_mono)
        report += piece
        if report.rstrip().endswith(b"}"):
            pid = int(json.loads(report)["child-pid"])
            os.write(prepared.pid_write_fd, b"%d" % pid)
            if _read_soon(prepared.limited_read_fd, deadline_mono) != b"!":
                return None
            if prepared.hold_write_fd is not None:
                os.write(prepared.hold_write_fd, b"!")
            return pid
        if not piece:
            return None
    return None


def _too_slow() -> SandboxUnavailable:
    return SandboxUnavailable(
        f"The box did not start within {START_LIMIT_S:.0f} s; try again when the machine is less busy."
    )


def _read_soon(descriptor: int, deadline_mono: float) -> bytes:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    if not poller.poll(max(0.0, deadline_mono - time.monotonic()) * 1000):
        raise _too_slow()
    return os.read(descriptor, _INFO_LIMIT_BYTES)


def _see_it_run(pid: int, deadline_mono: float) -> int | None:
    """Wait until bwrap has become the program; its start time, or None when it ended before."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        while not ended.poll(_LOOK_AGAIN_MS):
            name, start_ticks = name_and_start(pid)
            if name != "bwrap":
                return start_ticks
            if time.monotonic() > deadline_mono:
                raise _too_slow()
    except (ProcessLookupError, FileNotFoundError):
        return None
    finally:
        os.close(pidfd)
    return None


def _read_errors(errors_fd: int) -> str:
    return os.pread(errors_fd, _ERRORS_LIMIT_BYTES, 0).decode("utf-8", "replace")


def _close_errors(errors_fd: int) -> None:
    """It stays the runner's standard error for the life of the box: nothing more may be written there."""
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(errors_fd, fcntl.F_ADD_SEALS, seals)
