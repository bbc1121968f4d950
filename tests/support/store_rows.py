"""A database in a folder of the test's own, a clock it moves by hand, and rows to start from."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from lodger_daemon.clock import MonoTime, WallTime
from lodger_daemon.identity import (
    AgentId,
    CallKey,
    ClientMessageId,
    ConversationId,
    ConversationKey,
    RunId,
    ToolCallId,
    TurnId,
)
from lodger_daemon.store import run_rows, turn_rows
from lodger_daemon.store.database import Database
from lodger_daemon.turns.contract import InputMessage, Submission
from support.patience import LIMIT_S

KEY = ConversationKey(AgentId("agent-1"), ConversationId("conv-1"))
OTHER_KEY = ConversationKey(AgentId("agent-1"), ConversationId("conv-2"))
TURN = TurnId("turn-1")
RUN = RunId("run-1")
CALL = CallKey(KEY, RUN, ToolCallId("call-1"))
NOW = WallTime(1_800_000_000.0)


class HandClock:
    """Implements `Clock`; stands still until it is moved."""

    def __init__(self) -> None:
        self.wall_s = float(NOW)
        self.mono_s = 1000.0

    def wall(self) -> WallTime:
        return WallTime(self.wall_s)

    def mono(self) -> MonoTime:
        return MonoTime(self.mono_s)

    def pass_time(self, delay_s: float) -> None:
        self.wall_s += delay_s
        self.mono_s += delay_s

    async def sleep(self, delay_s: float) -> None:
        self.pass_time(delay_s)
        await asyncio.sleep(0)


def open_database(folder: Path, clock: HandClock | None = None) -> Database:
    return Database.open(folder / "lodger.db", lock=folder / "daemon.lock", clock=clock or HandClock())


async def start_turn(database: Database, key: ConversationKey = KEY, turn: TurnId = TURN) -> None:
    await database.write(lambda connection: turn_rows.start(connection, key, turn, "message", NOW))


async def start_run(database: Database, key: ConversationKey = KEY, turn: TurnId = TURN, run: RunId = RUN) -> None:
    """A turn and its first run."""
    await start_turn(database, key, turn)
    await database.write(lambda connection: run_rows.start(connection, key, run, turn, NOW))


def submission(name: str, text: str = "hello", **options: object) -> Submission:
    message = InputMessage(ClientMessageId(name), text, f"otid-{name}")
    return Submission((message,), **options)  # type: ignore[arg-type]  # options are Submission's own fields


async def wait_until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Return as soon as it holds; fail after the limit."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - what it waits for happens in other threads and processes
            await asyncio.sleep(0.005)
