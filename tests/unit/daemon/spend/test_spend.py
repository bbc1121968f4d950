"""Limits over a real database: what stops, what a person's word changes, what a crash or a moved clock cannot."""

import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, RunId, TurnId
from lodger_daemon.models.contract import ModelRequest, SystemMessage, Usage, UserMessage
from lodger_daemon.models.core.billing import Billing
from lodger_daemon.spend.contract import (
    Charge,
    LimitReached,
    LocalDay,
    SpendScope,
    SpendUnit,
    StepUse,
    limit_from_json,
    limit_to_json,
)
from lodger_daemon.spend.core.limits import NANO_PER_USD, Limits, SpendLimits
from lodger_daemon.spend.price_list import PriceList
from lodger_daemon.spend.spend import Spend, local_day
from lodger_daemon.store import run_rows, spend_rows
from lodger_daemon.store.errors import StateConflict, StoreError
from lodger_daemon.store.run_rows import RunStatus
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.store_rows import NOW, RUN, TURN, HandClock, open_database, start_run

AGENT = AgentId("agent-1")
OTHER_AGENT = AgentId("agent-2")
OTHER_TURN = TurnId("turn-2")
HANDLE = "openai/gpt-5"
UNKNOWN = "mine/unknown"
DAY_S = 24 * 3600


def billing(handle: str) -> Billing | None:
    return Billing.PUBLIC if handle.startswith("openai/") else Billing.ELSEWHERE


def utc_day(at: WallTime) -> LocalDay:
    return LocalDay(f"2027-01-{int(at - NOW + DAY_S // 2) // DAY_S + 10:02d}")


class Rig:
    """One machine: a database, a clock, limits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = HandClock()
        self.database = open_database(folder, self.clock)
        self.steps = 0

    def spend(self, limits: SpendLimits | None = None) -> Spend:
        return Spend(self.database, self.clock, limits or SpendLimits(), PriceList({}, billing), day_of=utc_day)

    def charge(
        self, usage: Usage | None, agent: AgentId = AGENT, turn: TurnId = TURN, handle: str = HANDLE, text: int = 0
    ) -> Charge | None:
        self.steps += 1
        use = StepUse(RunId(f"run-{self.steps}"), agent, turn, request(handle), usage, text)
        return self.spend().charge(use)

    async def use(
        self, usage: Usage | None, agent: AgentId = AGENT, turn: TurnId = TURN, handle: str = HANDLE, text: int = 0
    ) -> Charge:
        charge = self.charge(usage, agent, turn, handle, text)
        assert charge is not None
        await self.database.write(lambda connection: spend_rows.add(connection, charge))
        return charge

    async def go_on(self, reached: LimitReached) -> None:
        stored = limit_from_json(limit_to_json(reached))
        assert stored == reached
        await self.database.write(lambda connection: spend_rows.raise_limit(connection, stored, self.clock.wall()))


def request(handle: str) -> ModelRequest:
    return ModelRequest(handle, (SystemMessage("s" * 400), UserMessage(({"type": "text", "text": "u" * 40},))), ())


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    await rig.database.aclose()


def tokens(turn: int | None = None, agent: int | None = None, day: int | None = None) -> SpendLimits:
    return SpendLimits(Limits(turn), Limits(agent), Limits(day))


async def test_without_limits_nothing_stops(rig: Rig) -> None:
    await rig.use(Usage(prompt=10**9))
    assert await rig.spend().reached(AGENT, TURN, UNKNOWN) is None


@pytest.mark.parametrize(
    ("limits", "scope"),
    [
        (tokens(turn=100), SpendScope.TURN),
        (tokens(agent=100), SpendScope.AGENT),
        (tokens(day=100), SpendScope.DAY),
        (tokens(turn=101, agent=100, day=100), SpendScope.AGENT),
    ],
)
async def test_each_scope_stops_where_its_limit_is_reached(rig: Rig, limits: SpendLimits, scope: SpendScope) -> None:
    spend = rig.spend(limits)
    await rig.use(Usage(prompt=60, completion=39, cached=50))
    assert await spend.reached(AGENT, TURN, HANDLE) is None
    await rig.use(Usage(completion=1))
    reached = await spend.reached(AGENT, TURN, HANDLE)
    assert reached is not None
    assert (reached.scope, reached.unit, reached.spent, reached.limit) == (scope, SpendUnit.TOKENS, 100, 100)
    assert "100 tokens" in reached.words
    assert "up to 200 tokens" in reached.words


async def test_what_others_spend_counts_only_where_it_should(rig: Rig) -> None:
    spend = rig.spend(tokens(turn=100, agent=150, day=1000))
    await rig.use(Usage(prompt=90), turn=OTHER_TURN)
    await rig.use(Usage(prompt=500), agent=OTHER_AGENT, turn=TurnId("turn-3"))
    assert await spend.reached(AGENT, TURN, HANDLE) is None
    await rig.use(Usage(prompt=60))
    reached = await spend.reached(AGENT, TURN, HANDLE)
    assert reached is not None
    assert (reached.scope, reached.spent) == (SpendScope.AGENT, 150)


async def test_money_is_counted_in_the_price_of_each_model(rig: Rig) -> None:
    spend = rig.spend(SpendLimits(turn=Limits(nano_usd=NANO_PER_USD // 100)))
    await rig.use(Usage(prompt=7000, cached=1000))
    assert await spend.reached(AGENT, TURN, HANDLE) is None
    await rig.use(Usage(completion=300))
    reached = await spend.reached(AGENT, TURN, HANDLE)
    assert reached is not None
    assert reached.unit is SpendUnit.MONEY
    assert reached.spent == 6000 * 1250 + 1000 * 125 + 300 * 10_000
    assert reached.words.startswith("This turn has used $0.01, and the limit is $0.01.")


async def test_a_persons_word_raises_a_limit_once_however_often_it_is_taken(rig: Rig) -> None:
    spend = rig.spend(tokens(turn=100))
    await rig.use(Usage(prompt=170))
    reached = await spend.reached(AGENT, TURN, HANDLE)
    assert reached is not None
    assert reached.raised_to == 270
    await rig.go_on(reached)
    await rig.go_on(reached)
    assert await spend.reached(AGENT, TURN, HANDLE) is None
    await rig.use(Usage(prompt=99))
    assert await spend.reached(AGENT, TURN, HANDLE) is None
    await rig.use(Usage(prompt=1))
    again = await spend.reached(AGENT, TURN, HANDLE)
    assert again is not None
    assert (again.spent, again.limit, again.raised_to) == (270, 270, 370)
    await rig.go_on(again)
    await rig.go_on(reached)  # an older word that arrives late lowers nothing
    assert await spend.reached(AGENT, TURN, HANDLE) is None
    fresh = await spend.reached(AGENT, OTHER_TURN, HANDLE)
    assert fresh is None


async def test_what_was_spent_and_allowed_survives_a_restart(rig: Rig) -> None:
    limits = tokens(day=100)
    await rig.use(Usage(prompt=150))
    reached = await rig.spend(limits).reached(AGENT, TURN, HANDLE)
    assert reached is not None
    await rig.go_on(reached)
    await rig.use(Usage(prompt=100))
    await rig.database.aclose()
    rig.database = open_database(rig.folder, rig.clock)
    after = await rig.spend(limits).reached(AGENT, TURN, HANDLE)
    assert after is not None
    assert (after.spent, after.limit) == (250, 250)


async def test_a_charge_and_the_end_of_its_run_are_one_change(rig: Rig) -> None:
    charge = rig.charge(Usage(prompt=5))
    assert charge is not None

    def end(connection: sqlite3.Connection) -> None:
        spend_rows.add(connection, replace(charge, run_id=RUN))
        run_rows.end(connection, RUN, RunStatus.COMPLETED, StopReason.END_TURN, NOW)

    with pytest.raises(StateConflict):
        await rig.database.write(end)
    assert (await rig.database.read(lambda connection: spend_rows.of_turn(connection, TURN))).steps == 0
    await start_run(rig.database)
    await rig.database.write(end)
    assert (await rig.database.read(lambda connection: spend_rows.of_turn(connection, TURN))).tokens == 5


async def test_what_was_spent_is_never_rewritten(rig: Rig) -> None:
    charge = await rig.use(Usage(prompt=5))
    await rig.database.write(lambda connection: spend_rows.add(connection, replace(charge, prompt_tokens=1)))
    for sql in ("UPDATE spend SET prompt_tokens = 0", "UPDATE spend_raises SET raised_to = 1"):
        await rig.go_on(LimitReached(SpendScope.DAY, SpendUnit.TOKENS, "d", 5, 5, 10, ""))
        with pytest.raises(StoreError):
            await rig.database.write(lambda connection, sql=sql: connection.execute(sql))
    assert (await rig.database.read(lambda c: spend_rows.of_turn(c, TURN))).tokens == 5


async def test_an_unknown_price_is_asked_for_when_money_has_a_limit(rig: Rig) -> None:
    limits = SpendLimits(day=Limits(nano_usd=NANO_PER_USD))
    spend = rig.spend(limits)
    reached = await spend.reached(AGENT, TURN, UNKNOWN)
    assert reached is not None
    assert reached.unit is SpendUnit.UNPRICED
    assert UNKNOWN in reached.words
    await rig.go_on(reached)
    assert await spend.reached(AGENT, TURN, UNKNOWN) is None
    assert await spend.reached(AGENT, TURN, "mine/other") is not None
    assert await rig.spend(replace(limits, unpriced_allowed=True)).reached(AGENT, TURN, "mine/other") is None
    assert await rig.spend(tokens(day=100)).reached(AGENT, TURN, "mine/other") is None
    rig.clock.pass_time(DAY_S)
    assert await spend.reached(AGENT, TURN, UNKNOWN) is not None


async def test_what_the_provider_says_it_charges_is_taken_where_no_list_knows(rig: Rig) -> None:
    spend = rig.spend(SpendLimits(day=Limits(nano_usd=1000)))
    use = StepUse(RunId("run-x"), AGENT, TURN, request(UNKNOWN), Usage(prompt=5, cost_nano_usd=400), 0)
    charge = spend.charge(use)
    assert charge is not None
    assert charge.cost_nano_usd == 400
    assert await spend.reached(AGENT, TURN, UNKNOWN) is None
    nothing = spend.charge(replace(use, usage=Usage(prompt=5, cost_nano_usd=0)))
    assert nothing is not None
    assert nothing.cost_nano_usd is None
    listed = spend.charge(replace(use, request=request(HANDLE)))
    assert listed is not None
    assert listed.cost_nano_usd == 5 * 1250


async def test_unknown_is_never_shown_as_nothing(rig: Rig) -> None:
    await rig.use(Usage(prompt=1000))
    await rig.use(Usage(prompt=1000), handle=UNKNOWN)
    status = await rig.spend(tokens(day=7)).status()
    today = status["today"]
    assert isinstance(today, dict)
    assert (today["usd"], today["usd_known"], today["unpriced_steps"]) == (None, 0.00125, 1)
    assert status["unpriced_models"] == [UNKNOWN]
    assert status["limits"] == {"day": {"tokens": 7, "usd": None}}
    agents = status["agents"]
    assert isinstance(agents, dict)
    assert list(agents) == [AGENT]


async def test_a_step_that_reported_nothing_is_estimated_and_says_so(rig: Rig) -> None:
    charge = await rig.use(None, text=41)
    assert (charge.prompt_tokens, charge.completion_tokens, charge.estimated) == (110, 11, True)
    zero = await rig.use(Usage(), text=41)
    assert zero.estimated
    assert rig.charge(None) is None


async def test_a_report_of_nonsense_is_written_down_and_stops_what_has_a_limit(rig: Rig) -> None:
    """A row that did not fit would hold up the commit of the step's own end."""
    most = 2**53 - 1
    for _ in range(3):
        await rig.use(Usage(prompt=most, completion=most, cached=most, cache_written=most, reasoning=most))
    await rig.use(Usage(prompt=1, cost_nano_usd=2**62), handle=UNKNOWN)
    reached = await rig.spend(SpendLimits(day=Limits(nano_usd=NANO_PER_USD))).reached(AGENT, TURN, HANDLE)
    assert reached is not None
    assert reached.spent == 4 * 10**15


async def test_a_new_day_begins_with_nothing_and_a_clock_put_back_forgets_nothing(rig: Rig) -> None:
    spend = rig.spend(tokens(day=100))
    await rig.use(Usage(prompt=60))
    rig.clock.pass_time(DAY_S)
    assert await spend.reached(AGENT, TURN, HANDLE) is None
    await rig.use(Usage(prompt=60))
    # Back over midnight: what was spent "tomorrow" still counts today.
    rig.clock.wall_s -= DAY_S
    reached = await spend.reached(AGENT, TURN, HANDLE)
    assert reached is not None
    assert reached.spent == 120
    await rig.use(Usage(prompt=30))
    rig.clock.wall_s += DAY_S
    again = await spend.reached(AGENT, TURN, HANDLE)
    assert again is None  # 60 + 30 since this day's first row
    await rig.use(Usage(prompt=10))
    assert await spend.reached(AGENT, TURN, HANDLE) is not None


async def test_a_leap_into_the_future_and_back_leaves_no_day_blocked(rig: Rig) -> None:
    spend = rig.spend(tokens(day=100))
    rig.clock.wall_s += 11 * DAY_S
    await rig.use(Usage(prompt=500))
    rig.clock.wall_s -= 11 * DAY_S
    assert await spend.reached(AGENT, TURN, HANDLE) is None
    await rig.use(Usage(prompt=100))
    assert await spend.reached(AGENT, TURN, HANDLE) is not None
    rig.clock.wall_s += DAY_S
    assert await spend.reached(AGENT, TURN, HANDLE) is None


@pytest.mark.parametrize("at", [0.0, -1.0, 2**31 + 5.0, 4e9, 1_800_000_000.5])
def test_every_instant_has_a_date(at: float) -> None:
    assert len(local_day(WallTime(at)).split("-")) == 3


@pytest.mark.parametrize(
    "stored",
    [
        None,
        3,
        {},
        {"scope": "turn"},
        limit_to_json(LimitReached(SpendScope.DAY, SpendUnit.MONEY, "d", 1, 1, 2, "w")) | {"scope": "year"},
    ],
)
def test_a_limit_that_was_not_written_by_us_is_none(stored: object) -> None:
    assert limit_from_json(stored) is None  # type: ignore[arg-type]
