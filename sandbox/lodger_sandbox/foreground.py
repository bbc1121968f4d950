"""A command in a box on the caller's terminal: `lodger sandbox run -- CMD`."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO, Final

from lodger_sandbox.access import workspace_access
from lodger_sandbox.cgroups import group_for
from lodger_sandbox.contract import BoxRequest, SandboxUnavailable
from lodger_sandbox.core.bwrap_arguments import Style
from lodger_sandbox.core.make_policy import Program
from lodger_sandbox.core.policy import Policy
from lodger_sandbox.launch import START_LIMIT_S, first_process
from lodger_sandbox.prepare import Rewrite, policy_for, prepared_box

_ENTRY: Final = """
import os, sys, _signal
for number in (_signal.SIGINT, _signal.SIGQUIT, _signal.SIGPIPE, _signal.SIGXFSZ):
    _signal.signal(number, _signal.SIG_DFL)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.stderr.write(f"{sys.argv[1]}: {error.strerror}\\n")
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
"""
"""bwrap is started with the terminal's signals ignored; the command must get them back."""

_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)


def run_in_box(request: BoxRequest, argv: Sequence[str]) -> int:
    """Run `argv` in a box, with this process's standard streams and terminal. Blocks until it ends.

    Returns the command's exit code, 128 + N when signal N ended it, 127 when there is no such command. Signals that
    this process gets are passed on while the main thread is the one that waits.

    Raises: SandboxUnavailable; nothing was run.
    """
    policy = policy_for_command(request, argv)
    workspace_access(request.user, policy.workspace, writable=policy.workspace_is_writable)
    return run_with_policy(policy, request)


def policy_for_command(request: BoxRequest, argv: Sequence[str] = ()) -> Policy:
    """What `run_in_box` would confine `argv` with; for `explain`."""
    return policy_for(request, Program(None, ("-I", "-S", "-B", "-c", _ENTRY, *argv)))


def run_with_policy(
    policy: Policy,
    request: BoxRequest,
    *,
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    limit_s: float | None = None,
    rewrite: Rewrite | None = None,
) -> int:
    """As `run_in_box`, under a policy made before. After `limit_s` the box is killed and SandboxUnavailable raised."""
    ignored = tuple(int(number) for number in _FROM_TERMINAL)
    with (
        group_for(policy.limits) as group,
        prepared_box(
            policy,
            request,
            Style(detached=False),
            group=group,
            ignored_signals=ignored,
            rewrite=rewrite,
        ) as prepared,
    ):
        process = subprocess.Popen(
            prepared.launcher,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=prepared.inherited,
            env={},
            cwd="/",
        )
        try:
            init_pid = first_process(prepared, time.monotonic() + START_LIMIT_S)
            if init_pid is None:
                code = process.wait(timeout=START_LIMIT_S)
                raise SandboxUnavailable(f"The box could not be started (exit code {code}); its message is above.")
            with _signals_passed_on(init_pid):
                return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            raise SandboxUnavailable(f"The command did not end within {limit_s} s.") from error
        finally:
            process.kill()
            process.wait()


@contextmanager
def _signals_passed_on(init_pid: int) -> Iterator[None]:
    """The command is the child of the box's first process; bwrap itself would die of these without telling it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for pid in _children(init_pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def leave(_number: int, _frame: FrameType | None) -> None:
        """The terminal has sent it to the command as well."""

    on_terminal = os.isatty(sys.__stdin__.fileno()) if sys.__stdin__ else False
    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    before |= {number: signal.signal(number, leave if on_terminal else pass_on) for number in _FROM_TERMINAL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
