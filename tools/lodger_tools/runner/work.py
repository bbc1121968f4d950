"""One call that runs in processes: its pipes, its limits and its one end.

The end is decided by reaping, never by the end of the pipe: a child left in the background holds that open. What was
written before the death is drained for up to 150 ms.
"""

from __future__ import annotations

import os

from lodger_tools.runner.children import SIGKILL, SIGTERM, kill_quietly, now_ticks, signal_group
from lodger_tools.runner.kept_output import KeptOutput
from lodger_tools.runner.poll import READABLE, WRITABLE
from lodger_tools.runner.session_input import SessionInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lodger_tools.runner.calls import Call
    from lodger_tools.runner.children import Children
    from lodger_tools.runner.poll import Poll

DRAIN_S = 0.15
GRACE_S = 2.0
"""From TERM to KILL (BEHAVIOUR.md C5)."""
DEATH_S = 1.0
"""From KILL to the end of waiting for those that even that does not end."""
LOOK_AGAIN_S = 0.02
READ_BYTES = 64 * 1024
STDERR_LIMIT_BYTES = 32 * 1024


class Work:
    """Owns the pipes of one call. `finish` makes the outcome of exit code, standard error and how it ended."""

    __slots__ = (
        "_call",
        "_children",
        "_errors",
        "_exit_code",
        "_finish",
        "_input",
        "_open_pipes",
        "_poll",
        "_running_pids",
        "_started_ticks",
        "_stdin",
        "_stdin_fd",
        "_stops_at_limit",
        "_timer",
        "ended_by",
        "output",
    )

    def __init__(
        self,
        poll: Poll,
        children: Children,
        call: Call,
        running_pids: Callable[[], set[int]],
        captured: KeptOutput | None = None,
    ) -> None:
        """With `captured`, standard output is for `finish` alone and is not streamed."""
        self.output = call.output if captured is None else captured
        self._poll = poll
        self._children = children
        self._call = call
        self._running_pids = running_pids
        self._errors = KeptOutput(STDERR_LIMIT_BYTES // 2, STDERR_LIMIT_BYTES // 2)
        self._exit_code: int | None = None
        self._finish: Callable[[Work, int], tuple[str, str, dict[str, Any]]] = plain_finish
        self._input: SessionInput | None = None
        self._open_pipes: dict[int, KeptOutput] = {}
        self._started_ticks = now_ticks()
        self._stdin = b""
        self._stdin_fd: int | None = None
        self._stops_at_limit = False
        self._timer = 0
        self.ended_by = ""
        """`timeout`, `cancel`, `limit`, `memory`, or empty when it ended by itself."""
        call.cancel = self.cancel
        call.out_of_memory = self.out_of_memory

    @property
    def errors(self) -> str:
        return self._errors.whole().decode("utf-8", "replace")

    def start_program(
        self,
        argv: list[str],
        cwd: str,
        environment: dict[str, str],
        timeout_s: float | None,
        *,
        stdin: bytes | None = None,
        joined: bool = False,
        stops_at_limit: bool = False,
        finish: Callable[[Work, int], tuple[str, str, dict[str, Any]]] | None = None,
    ) -> None:
        """With `joined`, standard error goes where standard output goes. Raises: OSError; nothing runs then."""
        if finish is not None:
            self._finish = finish
        self._stops_at_limit = stops_at_limit
        kept: list[int] = []
        given: list[int] = []
        try:
            out_read, out_write = open_pipe(kept, given)
            err_read, err_write = (out_read, out_write) if joined else open_pipe(kept, given)
            in_read, in_write = (None, None) if stdin is None else open_pipe(given, kept)
            self._call.pid = self._children.spawn(argv, cwd, environment, in_read, out_write, err_write, self._exited)
            kept.clear()
        finally:
            # Whatever it was that did not start: words with a NUL are no OSError.
            close_all(kept, given)
        os.set_blocking(out_read, False)
        self._watch(out_read, self.output)
        if not joined:
            os.set_blocking(err_read, False)
            self._watch(err_read, self._errors)
        if in_write is not None:
            self._feed_stdin(in_write, stdin or b"")
        if timeout_s is not None:
            self._timer = self._poll.after(timeout_s, self._timed_out)

    def start_session(
        self, argv: list[str], cwd: str, environment: dict[str, str], timeout_s: float | None, *, terminal: bool
    ) -> None:
        """A program whose standard input stays open for what comes later: a terminal, or a pipe. Raises: OSError;
        nothing runs then."""
        kept: list[int] = []
        given: list[int] = []
        name = None
        try:
            if terminal:
                from lodger_tools.runner.terminal import open_terminal

                ours, theirs, name = open_terminal(kept, given)
                in_read, inputs = theirs, os.dup(ours)
                kept.append(inputs)
            else:
                ours, theirs = open_pipe(kept, given)
                in_read, inputs = open_pipe(given, kept)
            self._call.pid = self._children.spawn(
                argv, cwd, environment, in_read, theirs, theirs, self._exited, terminal=name
            )
            kept.clear()
        finally:
            close_all(kept, given)
        os.set_blocking(ours, False)
        self._watch(ours, self.output)
        self._input = SessionInput(self._poll, inputs)
        self._call.write = self._input.write
        if timeout_s is not None:
            self._timer = self._poll.after(timeout_s, self._timed_out)

    def start_fork(
        self,
        work: Callable[[], tuple[bool, str]],
        cwd: str,
        timeout_s: float,
        finish: Callable[[Work, int], tuple[str, str, dict[str, Any]]],
    ) -> None:
        """Raises: OSError; nothing runs then."""
        self._finish = finish
        self._stops_at_limit = True
        kept: list[int] = []
        given: list[int] = []
        try:
            out_read, out_write = open_pipe(kept, given)
            os.set_blocking(out_read, False)
            self._call.pid = self._children.fork(work, cwd, out_write, self._exited)
            kept.clear()
        finally:
            close_all(kept, given)
        self._watch(out_read, self.output)
        self._timer = self._poll.after(timeout_s, self._timed_out)

    def cancel(self) -> None:
        self._terminate("cancel")

    def out_of_memory(self) -> None:
        """Kill it all at once: who uses too much would use more while it is asked."""
        if self.ended_by or self._call.done is not None:
            return
        self.ended_by = "memory"
        self._poll.drop_timer(self._timer)
        self._kill()

    def _timed_out(self) -> None:
        self._terminate("timeout")

    def _watch(self, fd: int, kept: KeptOutput) -> None:
        self._open_pipes[fd] = kept
        self._poll.watch(fd, READABLE, lambda mask: self._read(fd))

    def _read(self, fd: int, *, tells: bool = True) -> None:
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._poll.forget(fd)
            os.close(fd)
            del self._open_pipes[fd]
            self._maybe_end()
            return
        if self._call.done is not None:
            # A process left behind still writes; closing the pipe would kill it, so it is read and thrown away.
            return
        kept = self._open_pipes[fd]
        kept.append(data)
        if self._stops_at_limit and kept is self.output and kept.total_bytes > kept.head_limit_bytes:
            self._terminate("limit")
        if tells:
            self._call.changed()

    def _feed_stdin(self, fd: int, data: bytes) -> None:
        os.set_blocking(fd, False)
        self._stdin = data
        self._stdin_fd = fd
        if not self._write_stdin():
            self._poll.watch(fd, WRITABLE, lambda mask: self._stdin_writable())

    def _stdin_writable(self) -> None:
        fd = self._stdin_fd
        if fd is not None and self._write_stdin():
            self._poll.forget(fd)

    def _write_stdin(self) -> bool:
        """Whether all has been written (or nobody reads any more) and the pipe is closed."""
        fd = self._stdin_fd
        if fd is None:
            return True
        view = memoryview(self._stdin)
        try:
            while view:
                view = view[os.write(fd, view) :]
        except BlockingIOError:
            self._stdin = bytes(view)
            return False
        except OSError:
            pass
        self._stdin = b""
        self._stdin_fd = None
        self._poll.forget(fd)
        os.close(fd)
        return True

    def _terminate(self, why: str) -> None:
        if self.ended_by or self._call.done is not None:
            return
        self.ended_by = why
        pid = self._call.pid
        if pid is not None:
            signal_group(pid, SIGTERM)
        self._poll.drop_timer(self._timer)
        self._timer = self._poll.after(GRACE_S, self._kill)
        self._maybe_end()

    def _kill(self) -> None:
        pid = self._call.pid
        if pid is None:
            return
        signal_group(pid, SIGKILL)
        for process in self._children.processes():
            if process.session == pid:
                kill_quietly(process.pid, SIGKILL)
        self._timer = self._poll.after(DEATH_S, self._end)
        self._maybe_end()

    def _exited(self, exit_code: int) -> None:
        self._exit_code = exit_code
        if self._open_pipes and not self.ended_by:
            self._poll.drop_timer(self._timer)
            self._timer = self._poll.after(DRAIN_S, self._end)
        # What stands in the pipes already is read at once: mostly that and the end, so that nothing is waited for, and
        # all of it is told as one.
        for fd in tuple(self._open_pipes):
            self._read(fd, tells=False)
            if fd in self._open_pipes:
                self._read(fd, tells=False)
        self._maybe_end()
        if self._call.done is None:
            self._call.changed()

    def _maybe_end(self) -> None:
        if self._exit_code is None or self._call.done is not None:
            return
        pid = self._call.pid
        if self.ended_by and pid is not None and signal_group(pid, 0):
            # The leader is gone, others of its group are not yet; a timer ends the waiting for them.
            self._poll.after(LOOK_AGAIN_S, self._maybe_end)
            return
        if self._open_pipes and not self.ended_by:
            return
        self._end()

    def _end(self) -> None:
        if self._call.done is not None or self._exit_code is None:
            return
        self._poll.drop_timer(self._timer)
        if self._input is not None:
            self._input.close()
        if self._stdin_fd is not None:
            self._poll.forget(self._stdin_fd)
            os.close(self._stdin_fd)
            self._stdin_fd = None
        pid = self._call.pid
        # 128 + number is how shells write a death by signal.
        exit_code = self._exit_code if self._exit_code >= 0 else 128 - self._exit_code
        status, text, details = self._finish(self, exit_code)
        self._children.reap()
        running = self._running_pids() - {pid or 0}
        leftovers = 0 if self._children.alone else self._children.leftovers(running, pid, self._started_ticks)
        self._call.finish(
            status,
            text,
            exit_code=exit_code,
            timed_out=self.ended_by == "timeout",
            cancelled=self.ended_by == "cancel",
            out_of_memory=self.ended_by == "memory",
            leftovers=leftovers,
            details=details,
        )


def plain_finish(work: Work, exit_code: int) -> tuple[str, str, dict[str, Any]]:
    """Success is exit code 0; the text is standard error (empty when it was joined)."""
    good = exit_code == 0 and not work.ended_by
    return ("success" if good else "error"), work.errors, {}


def open_pipe(readers: list[int], writers: list[int]) -> tuple[int, int]:
    """Its ends, each also put where `close_all` will find it. Raises: OSError."""
    read, write = os.pipe2(os.O_CLOEXEC)
    readers.append(read)
    writers.append(write)
    return read, write


def close_all(kept: list[int], given: list[int]) -> None:
    """However a start went.

    Args:
        kept: our ends; emptied before, once the program runs.
        given: the program's, which it has for itself by now.
    """
    for fd in (*kept, *given):
        os.close(fd)
