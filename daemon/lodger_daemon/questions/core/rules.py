"""The rules of questions (BEHAVIOUR.md A10): one effect, an end in time, an answer for exactly one call."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lodger_daemon.clock import WallTime
from lodger_daemon.questions.core.arguments import arguments_digest
from lodger_daemon.turns.contract import Allow, Answer, Deny
from lodger_tools.box.contract import PinnedFile
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
    pinned: tuple[PinnedFile, ...] = ()
    """The script files that may run with them, as they were when the person was asked (ATTACKS.md A7)."""


def settle(
    answer: Answer, tool_name: str, asked_arguments: JsonObject, pinned: tuple[PinnedFile, ...] = ()
) -> Settlement:
    match answer:
        case Allow(updated_input=updated):
            arguments = asked_arguments if updated is None else updated
            return Settlement(QuestionStatus.ALLOWED, answer, arguments_digest(tool_name, arguments), pinned)
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
