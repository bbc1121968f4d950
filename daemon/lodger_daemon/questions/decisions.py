"""What the audit log keeps of each decision about a call: who decided, why, by which rule, about exactly what.

The arguments themselves stand in journal and questions; here is their digest, so that no secret gets in.
"""

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import CallKey, ConversationKey
from lodger_daemon.store.audit_rows import AuditRow
from lodger_daemon.turns.core.events import QuestionAsked
from lodger_tools.json_value import JsonObject


def question_row(
    key: ConversationKey,
    asked: QuestionAsked,
    digest: str,
    at: WallTime,
    actor: str,
    status: str,
    rule: str | None = None,
) -> AuditRow:
    """`question.asked`, and later one of `question.allowed`, `.denied`, `.expired` and `.withdrawn`."""
    detail = _of_conversation(key)
    detail |= {"run": asked.run_id, "question": asked.question_id, "tool": asked.tool_name, "arguments": digest}
    if status == "asked":
        detail |= {"reason": asked.reason, "rule": rule}
    return AuditRow(at, actor, f"question.{status}", asked.tool_call_id, detail)


def saved_rule_row(key: ConversationKey, rule: str, at: WallTime, actor: str) -> AuditRow:
    return AuditRow(at, actor, "rule.saved", rule, _of_conversation(key))


def call_row(call: CallKey, tool_name: str, at: WallTime, actor: str, allowed: bool, detail: JsonObject) -> AuditRow:
    """`call.allowed` or `call.refused`: the last word before a call runs, or does not.

    Args:
        actor: `rules`, `person`, or who else refused it.
        detail: `reason`, `rule` and `arguments` (their digest), as far as known.
    """
    whole: JsonObject = {**_of_conversation(call.conversation), "run": call.run_id, "tool": tool_name, **detail}
    return AuditRow(at, actor, "call.allowed" if allowed else "call.refused", call.tool_call_id, whole)


def _of_conversation(key: ConversationKey) -> JsonObject:
    return {"agent": key.agent_id, "conversation": key.conversation_id}
