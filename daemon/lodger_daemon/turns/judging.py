"""The rules' verdict on a call, as the turn machine takes it."""

from typing import Protocol, assert_never

from lodger_daemon.turns.core.calls import CallProgress, MustAsk, Permitted, Refused
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, Denied, NeedsPerson, Suggestion, Verdict


class Judge(Protocol):
    """The permission rules of this machine; implemented by `lodger_tools.permissions`."""

    def judge(self, call: CallToJudge, mode: Mode) -> Verdict: ...

    async def save_rule(self, suggestion: Suggestion, workspace: str) -> None:
        """Remember a rule that a person accepted together with an answer."""
        ...


def as_progress(verdict: Verdict, call: CallToJudge) -> CallProgress:
    match verdict:
        case Allowed():
            return Permitted(call.arguments)
        case NeedsPerson(reason=reason, suggestions=suggestions):
            return MustAsk(reason, suggestions)
        case Denied(reason=reason):
            return Refused(reason)
        case _:
            assert_never(verdict)
