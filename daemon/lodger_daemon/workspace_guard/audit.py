"""What the guard put back and what a person allowed, in the audit log."""

from lodger_daemon.network.contract import WorkIn
from lodger_daemon.store.audit_log import AuditLog
from lodger_tools.box.contract import BoxKey
from lodger_tools.json_value import JsonObject


class GuardAudit:
    """Implements `Audit`."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._work_in: tuple[WorkIn, ...] = ()

    def learn_from(self, *work_in: WorkIn) -> None:
        """From now on rows say what ran in the box; one of its calls, or what it left behind, made the change."""
        self._work_in = work_in

    def note(self, box: BoxKey, decision: str, what: str) -> None:
        work = [one.as_json() for work_in in self._work_in for one in work_in(box)]
        detail: JsonObject = {"what": what, "work": [*work]}
        self._log.note(box.agent_id, f"git.{decision}", box.workspace, detail)
