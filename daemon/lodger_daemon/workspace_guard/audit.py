"""What the guard put back and what a person allowed, in the audit log."""

from lodger_daemon.store.audit_log import AuditLog


class GuardAudit:
    """Implements `Audit`."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def note(self, agent_id: str, decision: str, workspace: str, what: str) -> None:
        self._log.note(agent_id, f"git.{decision}", workspace, {"what": what})
