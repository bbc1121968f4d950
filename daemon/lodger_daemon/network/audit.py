"""Decisions about connections, in the audit log. What repeats is written once a minute, and a flood is counted."""

from typing import Final

from lodger_daemon.clock import Clock, MonoTime
from lodger_daemon.network.contract import WorkIn, WorkInBox
from lodger_daemon.store.audit_log import AuditLog
from lodger_tools.box.contract import BoxKey
from lodger_tools.json_value import JsonObject

WINDOW_S: Final = 60.0
ROWS_PER_WINDOW: Final = 200
"""A program in a box that tries every port must not fill the disk with the story of it."""


class NetworkAudit:
    def __init__(self, log: AuditLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._work_in: tuple[WorkIn, ...] = ()
        self._began = clock.mono()
        self._written: set[tuple[BoxKey, str, str, tuple[WorkInBox, ...]]] = set()
        self._left_out = 0

    def learn_from(self, *work_in: WorkIn) -> None:
        """From now on rows say what ran in the box. Which of several it was cannot be told: they share its network."""
        self._work_in = work_in

    def note(self, box: BoxKey, decision: str, to: str, reason: str) -> None:
        """Returns at once; the row is written soon, since no program waits for it.

        Args:
            decision: `passed` or `denied`.
        """
        now = self._clock.mono()
        if now - self._began >= WINDOW_S:
            self._next_window(now)
        work = tuple(one for work_in in self._work_in for one in work_in(box))
        name = (box, decision, to, work)
        if name in self._written:
            return
        if len(self._written) >= ROWS_PER_WINDOW:
            self._left_out += 1
            return
        self._written.add(name)
        detail: JsonObject = {"reason": reason, "workspace": box.workspace, "work": [one.as_json() for one in work]}
        self._log.note(box.agent_id, f"network.{decision}", to, detail)

    def _next_window(self, now: MonoTime) -> None:
        if self._left_out:
            self._log.note("daemon", "network.left_out", "", {"decisions": self._left_out})
        self._began = now
        self._written.clear()
        self._left_out = 0
