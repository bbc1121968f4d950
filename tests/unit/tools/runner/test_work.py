"""What starting work leaves behind, in a process of its own: the runner's loop takes the signals of where it runs."""

import subprocess
import sys
from pathlib import Path

import lodger_tools
from support.patience import LIMIT_S

RUNNER = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})

from lodger_tools.runner.calls import Call
from lodger_tools.runner.children import Children
from lodger_tools.runner.kept_output import KeptOutput
from lodger_tools.runner.memory_rank import NO_RANK, MemoryRank
from lodger_tools.runner.operations import Operations
from lodger_tools.runner.poll import Poll

poll = Poll()
children = Children(poll, MemoryRank(NO_RANK))
operations = Operations(poll, children, set)


def started(kind, args, cwd="/", payload=b""):
    call = Call("key", KeptOutput())
    operations.start(call, kind, args, cwd, {}, payload)
    return call


def ended(*request, **more):
    call = started(*request, **more)
    call.watchers.append(lambda: setattr(poll, "running", call.done is None))
    if call.done is None:
        poll.running = True
        poll.run()
    return call.done["status"], call.text.decode(), call.output.whole().decode()


def descriptors():
    return sorted((int(fd), os.readlink(f"/proc/self/fd/{fd}")) for fd in os.listdir("/proc/self/fd")[:-1])
"""


def told_by_runner(script: str) -> str:
    done = subprocess.run(
        (sys.executable, "-c", RUNNER + script),
        env={"PYTHONPATH": str(Path(lodger_tools.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_does_not_start_leaves_no_descriptor() -> None:
    told = told_by_runner(r"""
before = descriptors()
for bad in ("true \0", "true \ud800", "x" * 200_000):
    for how in ({}, {"session": True, "terminal": False}, {"session": True, "terminal": True}):
        print(ended("run_command", {"command": bad, "timeout_s": 9, **how})[1])
program = {"argv": ["true", "\0"], "timeout_s": 9, "stdout_limit_bytes": 99}
print(ended("run_program", program, payload=b"given")[1])
print(ended("run_command", {"command": "true", "timeout_s": 9}, cwd="/no/such/folder")[1])
assert descriptors() == before, (descriptors(), before)
""")
    said = ("null byte", "surrogates", "longer than the system takes")
    wanted = (*(words for words in said for _ in range(3)), "null byte", "/no/such/folder")
    assert [words in line for words, line in zip(wanted, told.splitlines(), strict=True)] == [True] * 11


def test_signals_that_the_runner_was_started_without_are_there_for_programs() -> None:
    told = told_by_runner("""
for how in ({}, {"session": True, "terminal": True}):
    command = "exec grep -E 'Sig(Ign|Blk)' /proc/self/status"
    print(ended("run_command", {"command": command, "timeout_s": 9, **how})[2])
""")
    names, sets = told.split()[::2], told.split()[1::2]
    assert names == ["SigBlk:", "SigIgn:"] * 2
    # What is above belongs to the C library, whose posix_spawn ignores two of its own.
    assert [int(one, 16) % 2**31 for one in sets] == [0] * 4
