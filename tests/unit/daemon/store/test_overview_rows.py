"""What status reads of all conversations at once."""

from dataclasses import replace
from pathlib import Path

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ConversationId, ConversationKey, TurnId
from lodger_daemon.inbox.core.items import ItemKind, NewItem
from lodger_daemon.store import inbox_rows, overview_rows
from lodger_daemon.store.overview_rows import BusyConversation
from support.store_rows import KEY, NOW, open_database, start_turn, submission

OTHER = ConversationKey(AgentId("agent-other"), ConversationId("default"))
IDLE = ConversationKey(AgentId("agent-other"), ConversationId("conv-idle"))


async def test_turns_and_queues_of_all_conversations_stand_in_one_answer(tmp_path: Path) -> None:
    database = open_database(tmp_path)

    async def accept(key: ConversationKey, name: str, after_s: float, kind: ItemKind = ItemKind.MESSAGE) -> None:
        item = NewItem(submission(name), kind, "user")
        await database.write(
            lambda connection: inbox_rows.accept(connection, key, item, "queued", WallTime(NOW + after_s))
        )

    try:
        for key, name, after_s in ((KEY, "a", 5), (KEY, "b", 6), (OTHER, "c", 1), (OTHER, "d", 2), (IDLE, "e", 0)):
            await accept(key, name, after_s)
        await database.write(lambda connection: inbox_rows.park(connection, KEY))
        await accept(KEY, "f", 9, ItemKind.TASK_NOTIFICATION)
        await start_turn(database, KEY)
        await start_turn(database, IDLE, TurnId("turn-idle"))
        await database.write(lambda connection: inbox_rows.reserve(connection, IDLE, [1], TurnId("turn-idle")))
        expected = (
            BusyConversation(KEY, NOW, 1, 2, WallTime(NOW + 5)),
            BusyConversation(IDLE, NOW, 0, 0, None),
            BusyConversation(OTHER, None, 2, 0, WallTime(NOW + 1)),
        )
        assert await database.read(lambda connection: overview_rows.busy(connection, 10)) == expected
        assert await database.read(lambda connection: overview_rows.busy(connection, 1)) == expected[:1]
        await database.write(lambda connection: inbox_rows.resume(connection, KEY))
        assert (await database.read(lambda connection: overview_rows.busy(connection, 10)))[0] == replace(
            expected[0], waiting=3, parked=0
        )
    finally:
        await database.aclose()


async def test_the_past_is_not_read_for_it(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    try:
        plan = await database.read(
            lambda connection: connection.execute("EXPLAIN QUERY PLAN " + overview_rows._BUSY, (10,)).fetchall()
        )
    finally:
        await database.aclose()
    steps = " | ".join(row[3] for row in plan)
    assert "turns USING" in steps and "one_active_turn" in steps, steps
    assert "inbox USING" in steps and "waiting_inbox" in steps, steps
