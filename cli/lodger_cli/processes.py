"""Starting the daemon and the hub as processes, and finding those that run already."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from lodger_cli.terminal import note

READY_LIMIT_S: Final = 60.0
"""A first start makes a database, a repository and a box; on a slow disk that takes seconds, never a minute."""
STOP_LIMIT_S: Final = 20.0
END_LIMIT_S: Final = 2.0
"""For a process that did not come up."""


class StartError(Exception):
    """A process did not come up. The text is the last thing it said."""


@dataclass(slots=True)
class Child:
    """A process of ours whose first line on standard output was JSON: what it has to say about itself.

    It holds the read end of a pipe whose write end is ours (`--while-fd`): when we are gone, however that happened, it
    stops in good order.
    """

    process: asyncio.subprocess.Process
    first_line: dict[str, Any]
    alive_fd: int

    @classmethod
    async def start(cls, arguments: list[str], environment: Mapping[str, str], log_path: str) -> Self:
        """Start `lodger ARGUMENTS` and wait for its first line. Raises: StartError.

        It logs to `log_path`, with rotation; what it says beside its log, such as why it cannot start, goes to a file
        next to it that begins anew each time.
        """
        read_end, write_end = os.pipe()
        words_path = f"{log_path.removesuffix('.log')}.start.log"
        words = await asyncio.to_thread(open, words_path, "wb")
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                # Without -P Python would import from the folder the person stands in: a stranger's repository, perhaps.
                "-P",
                "-m",
                "lodger_cli.main",
                *arguments,
                "--log-file",
                log_path,
                "--while-fd",
                str(read_end),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=words,
                pass_fds=(read_end,),
                env=dict(environment),
                start_new_session=True,
            )
        finally:
            os.close(read_end)
            words.close()
        try:
            line = await asyncio.wait_for(_first_line(process), READY_LIMIT_S)
            return cls(process, line, write_end)
        except (TimeoutError, ValueError) as error:
            os.close(write_end)
            await _end(process)
            raise StartError(f"`lodger {arguments[0]}` did not come up: {_last_words(words_path)}") from error

    async def stop(self) -> None:
        """End it in good order; kill it when it does not end within the limit."""
        with contextlib.suppress(OSError):
            os.close(self.alive_fd)
        _signal(self.process, signal.SIGTERM)
        try:
            await asyncio.wait_for(self.process.wait(), STOP_LIMIT_S)
        except TimeoutError:
            note(f"process {self.process.pid} did not stop within {STOP_LIMIT_S:.0f} s; killing it")
            _signal(self.process, signal.SIGKILL)
            await self.process.wait()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Most have ended by themselves, or are about to: the pipe they watch is closed."""
    try:
        await asyncio.wait_for(process.wait(), END_LIMIT_S)
    except TimeoutError:
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    # Not `process.send_signal`: it may collect the exit status before asyncio does, which then warns about a stranger.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


async def _first_line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    value = json.loads(line or b"null")
    if not isinstance(value, dict):
        raise ValueError("no first line")
    return value


def _last_words(log_path: str) -> str:
    try:
        with open(log_path, encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log.read()[-4000:].splitlines() if line.strip()]
    except OSError:
        lines = []
    return lines[-1].removeprefix("lodger: ") if lines else f"it said nothing (its log is {log_path})"
