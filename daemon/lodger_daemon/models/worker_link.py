"""The daemon's end of one model worker: start it, send it orders, hand its reports to those who wait for them."""

import asyncio
import contextlib
import json
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Final

from lodger_daemon.clock import Clock, MonoTime
from lodger_daemon.models.contract import (
    FailureKind,
    ModelChunk,
    ModelFailure,
    StepEnded,
)
from lodger_daemon.models.core.frames import (
    LINE_LIMIT_BYTES,
    CancelOrder,
    ForgetOrder,
    ListedModel,
    ListOrder,
    ModelsListed,
    Order,
    StepOrder,
    order_line,
    read_report,
)
from lodger_daemon.models.core.lines import LineReader
from lodger_daemon.models.core.providers import Provider
from lodger_daemon.models.reports import Reports

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 15.0
_STEADY_AFTER_S: Final = 60.0
_LIST_LIMIT_S: Final = 10.0
"""Somewhat longer than the worker's own limit, so that its words win."""
_BUFFER_BYTES: Final = 256 * 1024


class _Pipe(asyncio.Protocol):
    """One living worker. Lines are read as they come; a broken line ends the worker."""

    def __init__(self) -> None:
        self.transport: asyncio.WriteTransport | None = None
        self.requests: dict[int, Reports] = {}
        self.ready = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()
        self._lines = LineReader(LINE_LIMIT_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            lines = self._lines.feed(data)
        except ValueError:
            self.close()
            return
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        if not self.ready.done():
            self.ready.set_result(None)
            return
        try:
            number, report = read_report(json.loads(line))
        except (ValueError, TypeError, IndexError):
            self.close()
            return
        if request := self.requests.get(number):
            request.put(report)

    def send(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        if not self.ready.done():
            self.ready.cancel()
        for request in self.requests.values():
            request.put(ModelFailure(FailureKind.WORKER_LOST, "The model worker ended; a new one is being started."))


class WorkerLink:
    """A worker of one kind, started at first use and again whenever it ends.

    Args:
        module: run with `python -m`.
        environment: all the worker gets.
        start_limit_s: how long its start may take.
        idle_limit_s: ended when it had nothing to do for so long; None keeps it for the next step.
        memory_limit_bytes: one that grew beyond is replaced when it has nothing to do.
    """

    def __init__(
        self,
        module: str,
        secrets: Path,
        environment: Mapping[str, str],
        clock: Clock,
        *,
        start_limit_s: float = 20.0,
        idle_limit_s: float | None = None,
        memory_limit_bytes: int = 1 << 40,
    ) -> None:
        self._module = module
        self._secrets = secrets
        self._environment = dict(environment)
        self._clock = clock
        self._start_limit_s = start_limit_s
        self._idle_limit_s = idle_limit_s
        self._memory_limit_bytes = memory_limit_bytes
        self._idling: asyncio.Task[None] | None = None
        self._pipe: _Pipe | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = asyncio.Lock()
        self._number = 0
        self._recent_starts = 0
        self._started_at = MonoTime(float("-inf"))
        self._not_before = MonoTime(float("-inf"))
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Of the running worker."""
        return self._process.pid if self._pipe is not None and self._process is not None else None

    async def start(self) -> None:
        """Return when a worker is ready. Raises: ModelFailure."""
        await self._living()

    async def step(self, provider: Provider, model: str, body: bytes) -> AsyncGenerator[ModelChunk, None]:
        """Chunks of one step. Raises: ModelFailure. Closing the generator closes the request.

        Args:
            body: the request as JSON on one line.
        """
        if len(body) >= LINE_LIMIT_BYTES:
            raise ModelFailure(FailureKind.CONTEXT_OVERFLOW, "The request is larger than 64 MiB.")
        pipe = await self._living()
        number = self._next_number()
        request = pipe.requests[number] = Reports()
        ended = output_seen = False
        try:
            pipe.send(order_line(StepOrder(number, provider, model)) + body + b"\n")
            while not ended:
                report = await request.next()
                if isinstance(report, ModelFailure):
                    # Also when it was made on this side, for an answer without an end: then the worker must let go.
                    report.output_seen = report.output_seen or output_seen
                    raise report
                assert not isinstance(report, ModelsListed)
                ended = isinstance(report, StepEnded)
                output_seen = True
                yield report
        finally:
            del pipe.requests[number]
            if not ended:
                pipe.send(order_line(CancelOrder(number)))
            self._rest(pipe)

    async def list_models(self, provider: Provider) -> tuple[ListedModel, ...]:
        """Raises: ModelFailure."""
        pipe = await self._living()
        number = self._next_number()
        request = pipe.requests[number] = Reports()
        try:
            pipe.send(order_line(ListOrder(number, provider)))
            async with asyncio.timeout(_LIST_LIMIT_S):
                report = await request.next()
        except TimeoutError:
            raise ModelFailure(FailureKind.TIMEOUT, f"{provider.name} did not list its models in time.") from None
        finally:
            del pipe.requests[number]
            self._rest(pipe)
        if isinstance(report, ModelFailure):
            raise report
        return report.models if isinstance(report, ModelsListed) else ()

    def forget(self, provider_name: str) -> None:
        """Have the worker read this provider's key again."""
        if self._pipe is not None:
            self._send(self._pipe, ForgetOrder(provider_name))

    async def aclose(self) -> None:
        """End the worker; requests under way fail as `WORKER_LOST`."""
        self._closed = True
        if self._idling is not None:
            self._idling.cancel()
            await asyncio.gather(self._idling, return_exceptions=True)
        async with self._starting:
            await self._end()

    def _rest(self, pipe: _Pipe) -> None:
        """A request ended. When it was the last, see whether this worker is worth keeping."""
        if pipe.requests or pipe is not self._pipe or self._closed:
            return
        if self._idling is not None:
            self._idling.cancel()
        limit_s = 0.0 if self._is_too_big() else self._idle_limit_s
        self._idling = asyncio.create_task(self._end_idle(pipe, limit_s)) if limit_s is not None else None

    async def _end_idle(self, pipe: _Pipe, limit_s: float) -> None:
        await self._clock.sleep(limit_s)
        async with self._starting:
            # Whoever came meanwhile holds it, or another one.
            if pipe is self._pipe and not pipe.requests:
                await self._end()
                # It was ended by us and did not fail: the next may start at once.
                self._recent_starts, self._not_before = 0, MonoTime(float("-inf"))

    def _is_too_big(self) -> bool:
        """False where the kernel does not tell."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return False
        return pages * resource.getpagesize() > self._memory_limit_bytes

    def _send(self, pipe: _Pipe, order: Order) -> None:
        pipe.send(order_line(order))

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    async def _living(self) -> _Pipe:
        if self._pipe is not None and not self._pipe.lost.is_set():
            return self._pipe
        async with self._starting:
            if self._closed:
                raise ModelFailure(FailureKind.WORKER_LOST, "The daemon is ending.")
            if self._pipe is None or self._pipe.lost.is_set():
                await self._end()
                await self._pause()
                self._pipe = await self._spawn()
            return self._pipe

    async def _pause(self) -> None:
        wait_s = self._not_before - self._clock.mono()
        if wait_s > 0:
            await self._clock.sleep(wait_s)

    async def _spawn(self) -> _Pipe:
        # Workers that end soon after their start make the next one wait ever longer; a first loss costs nothing.
        now = self._clock.mono()
        if now - self._started_at > _STEADY_AFTER_S:
            self._recent_starts = 0
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self._recent_starts)
        self._not_before = MonoTime(now + pause_s)
        self._started_at = now
        self._recent_starts = min(self._recent_starts + 1, 10)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        starting = asyncio.ensure_future(asyncio.to_thread(self._popen, theirs))
        # The thread owns `theirs` until the process has it, even when nobody waits any more.
        starting.add_done_callback(lambda _: theirs.close())
        try:
            self._process = await asyncio.shield(starting)
            _, pipe = await asyncio.get_running_loop().create_unix_connection(_Pipe, sock=ours)
        except OSError as fault:
            ours.close()
            raise ModelFailure(FailureKind.WORKER_LOST, f"The model worker cannot be started: {fault}") from None
        except asyncio.CancelledError:
            # The half-started worker sees the closed end and goes; it still has to be waited for.
            ours.close()
            with contextlib.suppress(OSError):
                self._process = await starting
            raise
        try:
            await asyncio.wait({pipe.ready}, timeout=self._start_limit_s)
        finally:
            if pipe.ready.cancelled() or not pipe.ready.done():
                pipe.close()
        if pipe.ready.cancelled() or not pipe.ready.done():
            raise ModelFailure(FailureKind.WORKER_LOST, "The model worker ended while it was starting.")
        return pipe

    def _popen(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        # -P: the working directory must not be a place to import from.
        argv = [sys.executable, "-P", "-m", self._module, str(theirs.fileno()), str(self._secrets)]
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            env=self._environment,
            pass_fds=(theirs.fileno(),),
        )

    async def _end(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            await asyncio.to_thread(_reap, self._process)
            self._process = None


def _reap(process: subprocess.Popen[bytes]) -> None:
    """At once: a worker has nothing to write down, and its open requests end with it."""
    process.kill()
    process.wait()
