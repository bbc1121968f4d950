"""What this machine spends on models, kept in the database and held against the person's limits."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from typing import Final

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.identity import AgentId, TurnId
from lodger_daemon.models.contract import (
    AssistantMessage,
    ModelRequest,
    SystemMessage,
    ToolMessage,
    Usage,
    UserMessage,
)
from lodger_daemon.spend.contract import Charge, LimitReached, LocalDay, SpendScope, SpendUnit, StepUse
from lodger_daemon.spend.core.limits import (
    NANO_PER_USD,
    Limits,
    SpendLimits,
    Standing,
    first_reached,
    unpriced,
)
from lodger_daemon.spend.core.prices import cost_nano_usd
from lodger_daemon.spend.price_list import PriceList
from lodger_daemon.store import spend_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.spend_rows import Spent
from lodger_tools.json_value import Json, JsonObject

CHARACTERS_PER_TOKEN: Final = 4
"""The usual rule of thumb for English text; only where a provider tells no usage."""
MOST_TOKENS: Final = 10**12
MOST_NANO_USD: Final = 10**15
"""A million dollars. What a provider reports beyond is nonsense, and sums of it would not fit into the database."""


def local_day(at: WallTime) -> LocalDay:
    """The date of this machine, in its own zone."""
    return LocalDay(time.strftime("%Y-%m-%d", time.localtime(at)))


class Spend:
    """Implements `SpendBook`."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        limits: SpendLimits,
        prices: PriceList,
        day_of: Callable[[WallTime], LocalDay] = local_day,
    ) -> None:
        self._database = database
        self._clock = clock
        self._limits = limits
        self._prices = prices
        self._day_of = day_of
        self._looked_up: set[str] = set()
        self._priced_by_provider: set[str] = set()
        """Models whose provider told what a step had cost."""

    async def reached(self, agent_id: AgentId, turn_id: TurnId, handle: str) -> LimitReached | None:
        if handle not in self._looked_up:
            # Also without limits: the price must be at hand when the step ends, and its table is a file.
            await asyncio.to_thread(self._prices.of, handle)
            self._looked_up.add(handle)
        price = self._prices.of(handle)
        if not self._limits.any:
            return None
        day = self._day_of(self._clock.wall())
        standings = await self._database.read(lambda connection: _standings(connection, agent_id, turn_id, day))
        is_unknown = price is None and handle not in self._priced_by_provider
        if is_unknown and self._limits.any_money and not self._limits.unpriced_allowed:
            asked = unpriced(handle, day, steps=0)
            allowed = await self._database.read(
                lambda connection: spend_rows.raised(connection, asked.scope, asked.unit, asked.subject)
            )
            if not allowed:
                return asked
        return first_reached(self._limits, standings)

    def charge(self, use: StepUse) -> Charge | None:
        told = use.usage if use.usage is not None and (use.usage.prompt or use.usage.completion) else None
        if told is None and not use.received_characters:
            return None
        usage = told or estimated_usage(use.request, use.received_characters)
        handle, now = use.request.handle, self._clock.wall()
        return Charge(
            run_id=use.run_id,
            agent_id=use.agent_id,
            turn_id=use.turn_id,
            handle=handle,
            day=self._day_of(now),
            at=now,
            prompt_tokens=min(usage.prompt, MOST_TOKENS),
            completion_tokens=min(usage.completion, MOST_TOKENS),
            cached_tokens=min(usage.cached, MOST_TOKENS),
            cache_written_tokens=min(usage.cache_written, MOST_TOKENS),
            cost_nano_usd=min(cost, MOST_NANO_USD) if (cost := self._cost(handle, usage)) is not None else None,
            estimated=told is None,
        )

    async def status(self) -> JsonObject:
        now = self._clock.wall()
        day = self._day_of(now)
        today, agents, unpriced_models = await self._database.read(lambda connection: _of_today(connection, day))
        return {
            "as_of": now,
            "day": day,
            "today": _shown(today),
            "agents": {agent_id: _shown(spent) for agent_id, spent in agents.items()},
            "limits": {
                scope.value: _limits_shown(limits)
                for scope in SpendScope
                if (limits := self._limits.of(scope)) != Limits()
            },
            "unpriced_models": list[Json](unpriced_models),
        }

    def _cost(self, handle: str, usage: Usage) -> int | None:
        """By the list of prices; else what the provider said; else unknown."""
        price = self._prices.of(handle)
        if price is not None:
            return cost_nano_usd(price, usage)
        # Nothing at all is what gateways say that do not know either.
        if usage.cost_nano_usd:
            self._priced_by_provider.add(handle)
            return usage.cost_nano_usd
        return None


def estimated_usage(request: ModelRequest, received_characters: int) -> Usage:
    """By the length of the texts; pictures are left out."""
    sent = sum(len(tool.description) + len(str(tool.parameters)) for tool in request.tools)
    for message in request.messages:
        match message:
            case SystemMessage(text) | ToolMessage(text=text):
                sent += len(text)
            case UserMessage(parts):
                sent += sum(len(str(part.get("text", ""))) for part in parts)
            case AssistantMessage():
                sent += len(message.text) + sum(len(call.arguments_json) for call in message.tool_calls)
    return Usage(prompt=_tokens(sent), completion=_tokens(received_characters))


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


def _standings(
    connection: sqlite3.Connection, agent_id: AgentId, turn_id: TurnId, day: LocalDay
) -> tuple[Standing, ...]:
    return (
        _standing(connection, SpendScope.TURN, turn_id, spend_rows.of_turn(connection, turn_id)),
        _standing(connection, SpendScope.AGENT, f"{agent_id} {day}", spend_rows.of_day(connection, day, agent_id)),
        _standing(connection, SpendScope.DAY, day, spend_rows.of_day(connection, day)),
    )


def _standing(connection: sqlite3.Connection, scope: SpendScope, subject: str, spent: Spent) -> Standing:
    return Standing(
        scope,
        subject,
        tokens=spent.tokens,
        nano_usd=spent.priced_nano_usd,
        tokens_raised_to=spend_rows.raised(connection, scope, SpendUnit.TOKENS, subject),
        nano_usd_raised_to=spend_rows.raised(connection, scope, SpendUnit.MONEY, subject),
    )


def _of_today(connection: sqlite3.Connection, day: LocalDay) -> tuple[Spent, dict[AgentId, Spent], tuple[str, ...]]:
    agents = spend_rows.agents_of_day(connection, day)
    of_each = {agent_id: spend_rows.of_day(connection, day, agent_id) for agent_id in agents}
    return spend_rows.of_day(connection, day), of_each, spend_rows.unpriced_of_day(connection, day)


def _shown(spent: Spent) -> JsonObject:
    """`usd` is None when the price of some step is not known; `usd_known` is the part that is."""
    cost = spent.cost_nano_usd
    return {
        "steps": spent.steps,
        "tokens": spent.tokens,
        "cached_tokens": spent.cached_tokens,
        "usd": cost / NANO_PER_USD if cost is not None else None,
        "usd_known": spent.priced_nano_usd / NANO_PER_USD,
        "unpriced_steps": spent.unpriced_steps,
        "estimated_steps": spent.estimated_steps,
    }


def _limits_shown(limits: Limits) -> JsonObject:
    return {
        "tokens": limits.tokens,
        "usd": limits.nano_usd / NANO_PER_USD if limits.nano_usd is not None else None,
    }
