"""The rules' verdict on a call, as the turn machine takes it."""

from typing import Protocol, assert_never

from lodger_daemon.turns.core.calls import CallProgress, MustAsk, Permitted, Refused, RefusedBy
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, Denied, NeedsPerson, Suggestion, Verdict


class Judge(Protocol):
    """The permission rules of this machine; implemented by `lodger_tools.permissions`."""

    def judge(self, call: CallToJudge, mode: Mode) -> Verdict: ...

    def looks_at_paths(self, tool_name: str) -> bool:
        """Whether some rule is about the paths of this tool: then it should be told where their links lead."""
        ...

    async def save_rule(self, suggestion: Suggestion, workspace: str) -> None:
        """Remember a rule that a person accepted together with an answer."""
        ...


def as_progress(verdict: Verdict, arguments: JsonObject) -> CallProgress:
    match verdict:
        case Allowed():
            return Permitted(arguments)
        case NeedsPerson(reason=reason, rule=rule, suggestions=suggestions):
            return MustAsk(reason, suggestions, rule)
        case Denied(reason=reason, rule=rule):
            return Refused(reason, RefusedBy.RULES, rule)
        case _:
            assert_never(verdict)
