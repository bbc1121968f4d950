"""What the audit log keeps of the network's decisions: what ran, each thing once a minute, and no flood."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.identity import AgentId, ConversationId, ConversationKey, RunId, ToolCallId, TurnId
from lodger_daemon.network.audit import ROWS_PER_WINDOW, WINDOW_S, NetworkAudit
from lodger_daemon.network.contract import WorkInBox
from lodger_daemon.store import audit_rows
from lodger_daemon.store.audit_log import AuditLog
from lodger_daemon.store.database import Database
from lodger_tools.box.contract import BoxKey
from lodger_tools.json_value import JsonObject
from support.turn_parts import TestClock

BOX = BoxKey("agent-1", "/work")
HOST = "example.org:443"


class Rig:
    def __init__(self, database: Database, clock: TestClock) -> None:
        self.database = database
        self.clock = clock
        self.audit = NetworkAudit(AuditLog(database, clock), clock)
        self.work: dict[BoxKey, tuple[WorkInBox, ...]] = {}

    async def rows(self) -> list[tuple[str, str, JsonObject]]:
        """The oldest first."""
        await self.database.write(lambda connection: None)
        found = await self.database.read(lambda connection: audit_rows.newest(connection, 1_000))
        return [(row.action, row.subject, row.detail) for row in reversed(found)]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    clock = TestClock()
    database = Database.open(tmp_path / "lodger.db", clock=clock)
    yield Rig(database, clock)
    await database.aclose()


def work(call: str, turn: str | None = "turn-1") -> WorkInBox:
    conversation = ConversationKey(AgentId("agent-1"), ConversationId("conv-1"))
    return WorkInBox(conversation, None if turn is None else TurnId(turn), RunId("run-1"), (ToolCallId(call),))


def shown(call: str, turn: str | None = "turn-1") -> JsonObject:
    return {"conversation": "conv-1", "turn": turn, "run": "run-1", "calls": [call]}


async def test_a_row_says_what_ran_in_the_box(rig: Rig) -> None:
    """Those that are told of it are asked in turn; what none of them knows is nothing."""
    rig.audit.note(BOX, "denied", HOST, "not listed")
    rig.audit.learn_from(lambda box: rig.work.get(box, ()), lambda box: (work("c9", turn=None),) if box == BOX else ())
    rig.work[BOX] = (work("c1"),)
    rig.audit.note(BOX, "passed", HOST, "granted")
    other = BoxKey("agent-1", "/other")
    rig.audit.note(other, "passed", HOST, "granted")
    assert await rig.rows() == [
        ("network.denied", HOST, {"reason": "not listed", "workspace": "/work", "work": []}),
        (
            "network.passed",
            HOST,
            {"reason": "granted", "workspace": "/work", "work": [shown("c1"), shown("c9", turn=None)]},
        ),
        ("network.passed", HOST, {"reason": "granted", "workspace": "/other", "work": []}),
    ]


async def test_the_same_is_written_once_a_minute_and_what_another_call_does_is_not_the_same(rig: Rig) -> None:
    rig.audit.learn_from(lambda box: rig.work.get(box, ()))
    for call in ("c1", "c1", "c2", "c1"):
        rig.work[BOX] = (work(call),)
        rig.audit.note(BOX, "passed", HOST, "granted")
    rig.clock.advance(WINDOW_S)
    rig.audit.note(BOX, "passed", HOST, "granted")
    assert [detail["work"] for _, _, detail in await rig.rows()] == [[shown("c1")], [shown("c2")], [shown("c1")]]


async def test_a_flood_is_counted(rig: Rig) -> None:
    for number in range(ROWS_PER_WINDOW + 7):
        rig.audit.note(BOX, "denied", f"h{number}.test:443", "not listed")
    rig.clock.advance(WINDOW_S)
    rig.audit.note(BOX, "denied", HOST, "not listed")
    rows = await rig.rows()
    assert len(rows) == ROWS_PER_WINDOW + 2
    assert rows[-2:] == [
        ("network.left_out", "", {"decisions": 7}),
        ("network.denied", HOST, {"reason": "not listed", "workspace": "/work", "work": []}),
    ]
