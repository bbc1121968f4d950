"""Decisions about connections, in the audit log. What repeats is written once a minute, and a flood is counted."""

from typing import Final

from lodger_daemon.clock import Clock, MonoTime
from lodger_daemon.store.audit_log import AuditLog

WINDOW_S: Final = 60.0
ROWS_PER_WINDOW: Final = 200
"""A program in a box that tries every port must not fill the disk with the story of it."""


class NetworkAudit:
    def __init__(self, log: AuditLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._began = clock.mono()
        self._written: set[tuple[str, str, str]] = set()
        self._left_out = 0

    def note(self, agent_id: str, decision: str, to: str, reason: str) -> None:
        """Returns at once; the row is written soon, since no program waits for it.

        Args:
            decision: `passed` or `denied`.
        """
        now = self._clock.mono()
        if now - self._began >= WINDOW_S:
            self._next_window(now)
        name = (agent_id, decision, to)
        if name in self._written:
            return
        if len(self._written) >= ROWS_PER_WINDOW:
            self._left_out += 1
            return
        self._written.add(name)
        self._log.note(agent_id, f"network.{decision}", to, {"reason": reason})

    def _next_window(self, now: MonoTime) -> None:
        if self._left_out:
            self._log.note("daemon", "network.left_out", "", {"decisions": self._left_out})
        self._began = now
        self._written.clear()
        self._left_out = 0
