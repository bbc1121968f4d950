# ruff: noqa: S608 - only constants of this module are put into statements; values are always bound.
"""What model steps cost, and how far persons raised a limit.

    add(connection, charge)                              one row per run; a second one for the same run is ignored
    raise_limit(connection, limit, now)                  absolute, so doing it twice changes nothing
    raised(connection, scope, unit, subject) -> int      0 when nobody raised it
    of_turn(connection, turn_id) -> Spent
    of_day(connection, day, agent_id=None) -> Spent
    agents_of_day(connection, day) -> tuple[AgentId, ...]
    unpriced_of_day(connection, day) -> tuple[str, ...]

A day is all that was written down since its first row, also under another date: when the clock was put back, nothing
that was spent is forgotten.
"""

import sqlite3
from dataclasses import dataclass
from typing import Final

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, TurnId
from lodger_daemon.spend.contract import Charge, LimitReached, LocalDay, SpendScope, SpendUnit

SPEND_STATEMENTS: Final = (
    """
CREATE TABLE spend (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL UNIQUE CHECK (run_id <> ''),
    turn_id TEXT NOT NULL CHECK (turn_id <> ''),
    agent_id TEXT NOT NULL CHECK (agent_id <> ''),
    handle TEXT NOT NULL,
    day TEXT NOT NULL CHECK (day GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]'),
    at REAL NOT NULL,
    prompt_tokens INTEGER NOT NULL CHECK (prompt_tokens >= 0),
    completion_tokens INTEGER NOT NULL CHECK (completion_tokens >= 0),
    cached_tokens INTEGER NOT NULL CHECK (cached_tokens >= 0),
    cache_written_tokens INTEGER NOT NULL CHECK (cache_written_tokens >= 0),
    cost_nano_usd INTEGER CHECK (cost_nano_usd >= 0),
    estimated INTEGER NOT NULL CHECK (estimated IN (0, 1))
) STRICT
""",
    "CREATE INDEX spend_by_day ON spend (day)",
    "CREATE INDEX spend_by_turn ON spend (turn_id)",
    """
CREATE TABLE spend_raises (
    scope TEXT NOT NULL CHECK (scope IN ('turn', 'agent', 'day')),
    unit TEXT NOT NULL CHECK (unit IN ('tokens', 'money', 'unpriced')),
    subject TEXT NOT NULL CHECK (subject <> ''),
    raised_to INTEGER NOT NULL CHECK (raised_to > 0),
    at REAL NOT NULL,
    PRIMARY KEY (scope, unit, subject)
) STRICT, WITHOUT ROWID
""",
    "CREATE TRIGGER spend_update_guard BEFORE UPDATE ON spend "
    "BEGIN SELECT RAISE(ABORT, 'illegal: what was spent stays as it is'); END",
    "CREATE TRIGGER spend_raises_update_guard BEFORE UPDATE ON spend_raises WHEN NEW.raised_to < OLD.raised_to "
    "BEGIN SELECT RAISE(ABORT, 'illegal: a raised limit is not lowered'); END",
)

_SUMS: Final = (
    "SELECT COUNT(*), COALESCE(SUM(prompt_tokens + completion_tokens), 0), COALESCE(SUM(cached_tokens), 0), "
    "COALESCE(SUM(cost_nano_usd), 0), COUNT(*) - COUNT(cost_nano_usd), COALESCE(SUM(estimated), 0) FROM spend"
)
_OF_DAY: Final = "number >= (SELECT MIN(number) FROM spend WHERE day = ?)"


@dataclass(frozen=True, slots=True)
class Spent:
    """Sums over steps."""

    steps: int = 0
    tokens: int = 0
    """In and out."""
    cached_tokens: int = 0
    """Of those, read from the provider's cache."""
    priced_nano_usd: int = 0
    """Of the steps whose price is known; with `unpriced_steps` above zero the whole is unknown."""
    unpriced_steps: int = 0
    estimated_steps: int = 0

    @property
    def cost_nano_usd(self) -> int | None:
        return None if self.unpriced_steps else self.priced_nano_usd


def add(connection: sqlite3.Connection, charge: Charge) -> None:
    connection.execute(
        "INSERT INTO spend (run_id, turn_id, agent_id, handle, day, at, prompt_tokens, completion_tokens, "
        "cached_tokens, cache_written_tokens, cost_nano_usd, estimated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (run_id) DO NOTHING",
        (
            charge.run_id,
            charge.turn_id,
            charge.agent_id,
            charge.handle,
            charge.day,
            charge.at,
            charge.prompt_tokens,
            charge.completion_tokens,
            charge.cached_tokens,
            charge.cache_written_tokens,
            charge.cost_nano_usd,
            int(charge.estimated),
        ),
    )


def raise_limit(connection: sqlite3.Connection, limit: LimitReached, now: WallTime) -> None:
    """What a person agreed to; a raise that went further stands."""
    connection.execute(
        "INSERT INTO spend_raises (scope, unit, subject, raised_to, at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (scope, unit, subject) DO UPDATE SET raised_to = excluded.raised_to, at = excluded.at "
        "WHERE excluded.raised_to > spend_raises.raised_to",
        (limit.scope.value, limit.unit.value, limit.subject, limit.raised_to, now),
    )


def raised(connection: sqlite3.Connection, scope: SpendScope, unit: SpendUnit, subject: str) -> int:
    row = connection.execute(
        "SELECT raised_to FROM spend_raises WHERE scope = ? AND unit = ? AND subject = ?",
        (scope.value, unit.value, subject),
    ).fetchone()
    return int(row[0]) if row else 0


def of_turn(connection: sqlite3.Connection, turn_id: TurnId) -> Spent:
    return Spent(*connection.execute(f"{_SUMS} WHERE turn_id = ?", (turn_id,)).fetchone())


def of_day(connection: sqlite3.Connection, day: LocalDay, agent_id: AgentId | None = None) -> Spent:
    """Of one agent, or of the whole machine."""
    if agent_id is None:
        return Spent(*connection.execute(f"{_SUMS} WHERE {_OF_DAY}", (day,)).fetchone())
    return Spent(*connection.execute(f"{_SUMS} WHERE {_OF_DAY} AND agent_id = ?", (day, agent_id)).fetchone())


def agents_of_day(connection: sqlite3.Connection, day: LocalDay) -> tuple[AgentId, ...]:
    """Those that spent something, by id."""
    rows = connection.execute(
        f"SELECT DISTINCT agent_id FROM spend WHERE {_OF_DAY} ORDER BY agent_id",
        (day,),
    )
    return tuple(AgentId(agent_id) for (agent_id,) in rows)


def unpriced_of_day(connection: sqlite3.Connection, day: LocalDay) -> tuple[str, ...]:
    """Handles of models that were used and whose price nobody knows."""
    rows = connection.execute(
        f"SELECT DISTINCT handle FROM spend WHERE {_OF_DAY} AND cost_nano_usd IS NULL ORDER BY handle",
        (day,),
    )
    return tuple(handle for (handle,) in rows)
