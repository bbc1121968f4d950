"""The one loop of the runner: descriptors, timers and the deaths of children, in one thread."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of signal, whose enums cost 5 ms
import os
import select
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
LONGEST_WAIT_S = 3600.0
IGNORED_BY_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)
"""For its own sake: not in what we start."""


class Poll:
    __slots__ = ("_epoll", "_handlers", "_next_timer", "_timers", "on_child", "running")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._timers: dict[int, tuple[float, Callable[[], None]]] = {}
        self._next_timer = 0
        self.running = True
        self.on_child: Callable[[], None] = lambda: None
        self._take_signals()

    def _take_signals(self) -> None:
        # Python's own SIGINT handler would let a tool interrupt PID 1; the default action is ignored for PID 1.
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        # Whoever started us may have ignored or blocked signals, and what we start would inherit that.
        for number in range(1, _signal.NSIG):
            if _signal.getsignal(number) == _signal.SIG_IGN and number not in IGNORED_BY_PYTHON:
                _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        _signal.signal(_signal.SIGCHLD, lambda number, frame: None)
        _signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

        def woken(mask: int) -> None:
            os.read(wake_read, 4096)
            self.on_child()

        self.watch(wake_read, READABLE, woken)

    def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, mask)

    def change(self, fd: int, mask: int) -> None:
        self._epoll.modify(fd, mask)

    def forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def after(self, delay_s: float, callback: Callable[[], None]) -> int:
        self._next_timer += 1
        self._timers[self._next_timer] = (monotonic() + delay_s, callback)
        return self._next_timer

    def drop_timer(self, timer: int) -> None:
        self._timers.pop(timer, None)

    def run(self) -> None:
        while self.running:
            for fd, mask in self._epoll.poll(self._wait_s()):
                # An earlier handler of this round may have closed this one's descriptor.
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(mask)
            self._run_timers()

    def _wait_s(self) -> float:
        if not self._timers:
            return LONGEST_WAIT_S
        return max(0.0, min(deadline for deadline, _ in self._timers.values()) - monotonic())

    def _run_timers(self) -> None:
        if not self._timers:
            return
        now = monotonic()
        for timer, (deadline, callback) in list(self._timers.items()):
            if deadline <= now and self._timers.pop(timer, None) is not None:
                callback()
