"""The practice model's process, started when it is first needed and ended with the daemon."""

import asyncio
import json
import secrets
import subprocess
import sys
from typing import Final

from lodger_daemon.models.contract import FailureKind, ModelFailure

_START_LIMIT_S: Final = 10.0
_LINE_LIMIT_BYTES: Final = 4096


class PracticeProcess:
    """Keeps one practice model running. It ends when its standard input is closed, hence also when we are killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ("", "")
        self._lock = asyncio.Lock()

    async def address(self) -> tuple[str, str]:
        """Its base address and the token it asks for. Raises: ModelFailure."""
        async with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._address = await self._start()
            return self._address

    async def aclose(self) -> None:
        async with self._lock:
            process, self._process = self._process, None
            if process is not None:
                await asyncio.to_thread(_end, process)

    async def _start(self) -> tuple[str, str]:
        # Over standard input, which no other user can see; arguments and files could be read.
        token = secrets.token_urlsafe(32)
        starting = asyncio.ensure_future(asyncio.to_thread(_popen))
        try:
            process = self._process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._process = await starting
            raise
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(token.encode() + b"\n")
            process.stdin.flush()
            async with asyncio.timeout(_START_LIMIT_S):
                line = await asyncio.to_thread(process.stdout.readline, _LINE_LIMIT_BYTES)
            return str(json.loads(line)["url"]), token
        except (TimeoutError, ValueError, KeyError, OSError):
            process.kill()
            raise ModelFailure(FailureKind.WORKER_LOST, "The practice model did not start.") from None


def _popen() -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-P", "-m", "lodger_daemon.models.practice"]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", env={"LANG": "C.UTF-8"})


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None
    # At once: it keeps nothing.
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
