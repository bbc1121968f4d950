"""Commands on the caller's terminal."""

import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lodger_sandbox import foreground
from lodger_sandbox.contract import BoxRequest, SandboxUnavailable
from lodger_sandbox.foreground import policy_for_command, run_in_box, run_with_policy
from lodger_sandbox.launch import first_process
from lodger_sandbox.prepare import Prepared
from support.patience import LIMIT_S
from support.sandbox_users import own, user_of_boxes, visible_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs folders outside every private folder")
A_SECOND_S = 1.0
"""A command that nothing holds back has spoken by then."""
ROOT = Path(__file__).parents[3]
RUN = (
    # Whoever started these tests may have had it ignored (nohup does), which programs inherit.
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    "import sys; from lodger_sandbox.contract import BoxRequest\n"
    "from lodger_sandbox.foreground import run_in_box\nfrom lodger_sandbox.users import box_user\n"
    "request = BoxRequest(sys.argv[1], 'person', box_user(), sys.argv[2], environment={'PATH': '/usr/bin:/bin'})\n"
    "sys.exit(run_in_box(request, sys.argv[3:]))\n"
)
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "sandbox"), "PATH": "/usr/bin:/bin"}


@pytest.fixture
def request_here() -> Iterator[BoxRequest]:
    with visible_folder() as base:
        user = user_of_boxes()
        for name in ("workspace", "home"):
            (base / name).mkdir()
        own(base, user)
        environment = {"PATH": "/usr/bin:/bin"}
        yield BoxRequest(str(base / "workspace"), "person", user, str(base / "home"), environment=environment)


def start(request: BoxRequest, *argv: str, **more: object) -> "subprocess.Popen[bytes]":
    command = (sys.executable, "-c", RUN, request.workspace, request.home, *argv)
    return subprocess.Popen(command, env=ENVIRONMENT, **more)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(("command", "code"), [("exit 0", 0), ("exit 3", 3), ("exit 41", 41), ("kill -9 $$", 137)])
def test_the_exit_code_is_the_commands(request_here: BoxRequest, command: str, code: int) -> None:
    assert run_in_box(request_here, ("sh", "-c", command)) == code


def test_a_command_that_is_not_there(request_here: BoxRequest) -> None:
    policy = policy_for_command(request_here, ("no-such-command",))
    with tempfile.TemporaryFile() as errors:
        assert run_with_policy(policy, request_here, stderr=errors) == 127
        errors.seek(0)
        assert errors.read() == b"no-such-command: No such file or directory\n"


def test_a_limit_ends_it(request_here: BoxRequest) -> None:
    policy = policy_for_command(request_here, ("sleep", "1000"))
    with pytest.raises(SandboxUnavailable, match="did not end within"):
        run_with_policy(policy, request_here, limit_s=0.2)


def test_the_command_begins_after_its_number_of_processes_is_limited(
    request_here: BoxRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_for_command(request_here, ("bash", "-c", "ulimit -Hu"))
    with tempfile.TemporaryFile() as output:

        def when_the_machine_is_slow(prepared: Prepared, deadline_mono: float) -> int | None:
            ends = time.monotonic() + A_SECOND_S
            while os.fstat(output.fileno()).st_size == 0 and time.monotonic() < ends:
                select.select([], [], [], 0.01)
            return first_process(prepared, deadline_mono)

        monkeypatch.setattr(foreground, "first_process", when_the_machine_is_slow)
        assert run_with_policy(policy, request_here, stdin=subprocess.DEVNULL, stdout=output) == 0
        output.seek(0)
        assert int(output.read()) == policy.limits.processes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_reach_the_command(request_here: BoxRequest, number: signal.Signals) -> None:
    script = f'trap "echo got it; exit 9" {number.name[3:]}; echo ready; while :; do sleep 0.05; done'
    process = start(request_here, "sh", "-c", script, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert process.communicate(timeout=LIMIT_S)[0] == b"got it\n"
    assert process.returncode == 9


def test_the_terminal_works_and_ctrl_c_is_the_commands(request_here: BoxRequest) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        script = 'trap "echo interrupted; exit 5" INT; test -t 0 && echo ready; while :; do sleep 0.05; done'
        argv = [sys.executable, "-c", RUN, request_here.workspace, request_here.home, "sh", "-c", script]
        os.execve(sys.executable, argv, ENVIRONMENT)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    while b"interrupted" not in shown:
        shown += os.read(terminal, 1000)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    os.close(terminal)


def test_the_command_starts_with_default_signals_and_no_extra_descriptor(request_here: BoxRequest) -> None:
    policy = policy_for_command(request_here, ("sh", "-c", "grep SigIgn /proc/self/status; ls /proc/self/fd"))
    with tempfile.TemporaryFile() as output:
        run_with_policy(policy, request_here, stdin=subprocess.DEVNULL, stdout=output)
        output.seek(0)
        ignored, *descriptors = output.read().split()[1:]
    # Signals 32 and 33 are the C library's own: no program can set them, and make hands them down ignored.
    assert (int(ignored, 16) & ~0b11 << 31, descriptors) == (0, [b"0", b"1", b"2", b"3"])
