"""What a turn costs, and whether it may cost more: the questions the turn machine asks of this room.

    limit = await spend.reached(agent_id, turn_id, handle)         # before each model step; None = go ahead
    charge = spend.charge(StepUse(…))                              # when a step ended, in whatever way
    spend_rows.add(connection, charge)                             # in the same commit as the step's end
    spend_rows.raise_limit(connection, limit, now)                 # in the commit that takes a person's "go on"

`reached` reads what is committed, so it holds after a crash and for every conversation at once. A limit is judged
between steps: each turn that runs beside others may pass it by one step, never by two. A raise is absolute ("up to
2 USD") and is what the question's text said, so taking it twice changes nothing. `LimitReached` goes into a durable
question as `limit_to_json` and comes back by `limit_from_json`.

Money is counted in whole nano-dollars (1e-9 USD): the cheapest token costs some tens of them, and sums stay exact.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Protocol

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, RunId, TurnId
from lodger_daemon.models.contract import ModelRequest, Usage
from lodger_tools.json_value import Json, JsonObject

LocalDay = NewType("LocalDay", str)
"""A date of this machine as `2026-11-30`."""


class SpendScope(StrEnum):
    TURN = "turn"
    AGENT = "agent"
    """One agent in one day."""
    DAY = "day"
    """Everything on this machine in one day."""


class SpendUnit(StrEnum):
    TOKENS = "tokens"
    """What went in and what came out; cached tokens count like others."""
    MONEY = "money"
    """In nano-dollars."""
    UNPRICED = "unpriced"
    """Steps whose price nobody knows, while a money limit is set: that limit cannot be kept without a word from the
    person."""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """No further step before a person says so."""

    scope: SpendScope
    unit: SpendUnit
    subject: str
    """Whose: the turn's id; `agent id day`; the day. Of UNPRICED the model's handle stands in front."""
    spent: int
    limit: int
    """In force now: the setting, or what a person raised it to."""
    raised_to: int
    """What the limit becomes when the person lets it go on: as much again as the setting, from what is spent now."""
    words: str
    """For the person: what is spent, of which limit, and what going on would allow."""


@dataclass(frozen=True, slots=True)
class StepUse:
    """One model step as it ended: whole, failed, aborted or cut."""

    run_id: RunId
    agent_id: AgentId
    turn_id: TurnId
    """The turn that pays; of a subagent's step its parent's turn, if the parent is to pay."""
    request: ModelRequest
    usage: Usage | None
    """As the provider told it. None or all zero = it told nothing; then tokens are estimated from the texts."""
    received_characters: int = 0
    """Of answer, reasoning and call arguments; for the estimate."""


@dataclass(frozen=True, slots=True)
class Charge:
    """One row of what was spent; never changed once written."""

    run_id: RunId
    agent_id: AgentId
    turn_id: TurnId
    handle: str
    day: LocalDay
    at: WallTime
    prompt_tokens: int
    """Cached ones included."""
    completion_tokens: int
    cached_tokens: int
    cache_written_tokens: int
    cost_nano_usd: int | None
    """None = the price is not known. Never 0 for that."""
    estimated: bool
    """The provider told no usage: tokens are a guess from the texts, four characters each."""


class SpendBook(Protocol):
    async def reached(self, agent_id: AgentId, turn_id: TurnId, handle: str) -> LimitReached | None:
        """The first limit that stands in the way of one more step of this turn with this model; None = go ahead."""
        ...

    def charge(self, use: StepUse) -> Charge | None:
        """What to write down for a step; None when nothing was sent to a model. Never waits, never raises."""
        ...

    async def status(self) -> JsonObject:
        """The section `spend` of the daemon's status."""
        ...


def limit_to_json(reached: LimitReached) -> JsonObject:
    return {
        "scope": reached.scope.value,
        "unit": reached.unit.value,
        "subject": reached.subject,
        "spent": reached.spent,
        "limit": reached.limit,
        "raised_to": reached.raised_to,
        "words": reached.words,
    }


def limit_from_json(stored: Json) -> LimitReached | None:
    """None for anything `limit_to_json` did not write."""
    try:
        match stored:
            case {
                "scope": str(scope),
                "unit": str(unit),
                "subject": str(subject),
                "spent": int(spent),
                "limit": int(limit),
                "raised_to": int(raised_to),
                "words": str(words),
            }:
                scopes = SpendScope(scope), SpendUnit(unit)
                return LimitReached(*scopes, subject, spent, limit, raised_to, words)
            case _:
                return None
    except ValueError:
        return None
