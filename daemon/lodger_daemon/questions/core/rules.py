"""The rules of questions (BEHAVIOUR.md A10): one effect, an end in time, an answer for exactly one call."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import QuestionId, ToolCallId
from lodger_daemon.questions.core.arguments import arguments_digest
from lodger_daemon.turns.contract import Allow, Answer, Deny
from lodger_tools.json_value import JsonObject

DEFAULT_LIMIT_S: Final = 30 * 60.0
"""ARCHITECTURE.md section 3: then nobody answered, and the turn goes on."""


class QuestionStatus(StrEnum):
    """Values are the words of `QuestionSettled.outcome`, and `open`."""

    OPEN = "open"
    ALLOWED = "allowed"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Settlement:
    """The one effect of an answer: what may run, or why nothing may."""

    status: QuestionStatus
    answer: Answer | None
    approved_digest: str | None
    """Of the exact arguments that may run: the person's own if they changed them. None unless allowed."""


def settle(answer: Answer, tool_name: str, asked_arguments: JsonObject) -> Settlement:
    match answer:
        case Allow(updated_input=updated):
            arguments = asked_arguments if updated is None else updated
            return Settlement(QuestionStatus.ALLOWED, answer, arguments_digest(tool_name, arguments))
        case Deny():
            return Settlement(QuestionStatus.DENIED, answer, None)


def permits(settlement: Settlement, tool_name: str, arguments: JsonObject) -> bool:
    """Whether the answer covers this call, checked again right before it runs."""
    return settlement.approved_digest is not None and settlement.approved_digest == arguments_digest(
        tool_name, arguments
    )


def remaining_s(asked_at: WallTime, expires_at: WallTime, now: WallTime) -> float:
    """How long a question found at start may still wait.

    Between zero and its whole limit, so that a clock that was set back meanwhile cannot keep it open for days. While a
    daemon runs it counts monotonic time, which no clock change touches.
    """
    return min(max(expires_at - now, 0.0), expires_at - asked_at)


class CallState(StrEnum):
    """Where one call of a batch stands."""

    UNDECIDED = "undecided"
    """Needs a person, who has not been asked yet."""
    ASKED = "asked"
    ALLOWED = "allowed"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class BatchCall:
    tool_call_id: ToolCallId
    state: CallState


@dataclass(frozen=True, slots=True)
class AskNext:
    """People are asked one call at a time."""

    tool_call_id: ToolCallId


@dataclass(frozen=True, slots=True)
class JudgeAgain:
    """The person saved a rule, which may decide calls that still wait."""

    tool_call_ids: tuple[ToolCallId, ...]


@dataclass(frozen=True, slots=True)
class BatchDecided:
    """Every call may run or may not."""


@dataclass(frozen=True, slots=True)
class StillAsking:
    tool_call_id: ToolCallId


BatchStep: TypeAlias = AskNext | JudgeAgain | BatchDecided | StillAsking


def next_step(calls: Sequence[BatchCall], rule_saved: bool = False) -> BatchStep:
    """What a batch of calls needs next, in call order.

    Args:
        rule_saved: the latest answer accepted a suggestion; the calls not asked yet are judged by the new rules first.
    """
    for call in calls:
        if call.state is CallState.ASKED:
            return StillAsking(call.tool_call_id)
    undecided = tuple(call.tool_call_id for call in calls if call.state is CallState.UNDECIDED)
    if not undecided:
        return BatchDecided()
    return JudgeAgain(undecided) if rule_saved else AskNext(undecided[0])


def after_answer(
    calls: Sequence[BatchCall], answered: ToolCallId, settlement: Settlement
) -> tuple[tuple[BatchCall, ...], BatchStep]:
    """The batch once a question of it is settled, and its next step. An answer for a call that was not asked changes
    nothing."""
    decided = CallState.ALLOWED if settlement.status is QuestionStatus.ALLOWED else CallState.DENIED
    rule_saved = isinstance(settlement.answer, Allow) and bool(settlement.answer.suggestion_ids)
    changed = tuple(
        BatchCall(call.tool_call_id, decided)
        if call.tool_call_id == answered and call.state is CallState.ASKED
        else call
        for call in calls
    )
    return changed, next_step(changed, rule_saved)


def question_id_for(tool_call_id: ToolCallId) -> QuestionId:
    """The id on the wire."""
    return QuestionId(f"perm-{tool_call_id}")
