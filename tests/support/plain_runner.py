"""The real runner as a plain process, without a sandbox around it: for tests of what runner and manager do by
themselves, and for machines without bwrap."""

import os
import subprocess
import sys
from pathlib import Path

from lodger_sandbox.contract import BoxRequest, BoxUser, DetachedBox, RunnerStart
from lodger_tools.box.contract import BoxKey
from lodger_tools.box.record import start_ticks
from support.patience import LIMIT_S


class PlainStarter:
    """Stands in for `lodger_sandbox.launch.start_detached`; remembers what it started, to end it."""

    def __init__(self, orphan_s: float = 60.0, leaked_fds: tuple[int, ...] = ()) -> None:
        self.orphan_s = orphan_s
        self.leaked_fds = leaked_fds
        self.started_by: tuple[str, ...] = ()
        """Words before the runner's own, of a program that becomes it."""
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, request: BoxRequest, runner: RunnerStart) -> DetachedBox:
        fds = (runner.listener_fd, runner.token_fd, runner.lock_fd)
        argv = [
            *self.started_by,
            sys.executable,
            "-I",
            "-S",
            "-B",
            str(Path(runner.program_folder) / "main.py"),
            *map(str, fds),
        ]
        process = subprocess.Popen(
            [*argv, str(self.orphan_s)],
            pass_fds=(*fds, *self.leaked_fds),
            env=dict(request.environment),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.started.append(process)
        return DetachedBox(process.pid, process.pid, start_ticks(process.pid))

    def end_all(self) -> None:
        for process in self.started:
            process.kill()
            process.wait(LIMIT_S)


def plain_request(key: BoxKey) -> BoxRequest:
    return BoxRequest(
        workspace=key.workspace,
        profile=key.profile.value,
        user=BoxUser(os.getuid(), os.getgid(), "me"),
        home=key.workspace,
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": key.workspace, "LANG": "C.UTF-8"},
    )
