"""The inbox over a real database: accepted once for ever, consumed in two phases."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from lodger_daemon.identity import ClientMessageId, ConversationKey, QueueItemId, RunId, TurnId
from lodger_daemon.inbox.core.items import CancelCause, InboxItem, ItemKind, ItemStatus, NewItem, TurnSettings
from lodger_daemon.inbox.core.rules import HARD_LIMIT, SOFT_LIMIT, Moment, batch_content, batch_settings
from lodger_daemon.store import inbox_rows, run_rows, turn_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.store.inbox_rows import AcceptResult, ItemAccepted, ItemDuplicate, ItemRefused
from lodger_daemon.store.run_rows import RunStatus
from lodger_daemon.turns import records, recovery
from lodger_daemon.turns.contract import InputMessage, Submission
from lodger_daemon.turns.core.events import QueuedItem
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.store_rows import KEY, NOW, OTHER_KEY, RUN, TURN, HandClock, open_database, start_turn, submission

NOTE = ItemKind.TASK_NOTIFICATION


class Inbox:
    """The inbox's changes, each a transaction as the turns room makes it."""

    def __init__(self, database: Database, clock: HandClock) -> None:
        self._database = database
        self._clock = clock

    async def accept(
        self, key: ConversationKey, item: NewItem, disposition: Literal["started", "queued"]
    ) -> AcceptResult:
        now = self._clock.wall()
        return await self._database.write(lambda c: records.accept(c, key, item, disposition, None, now))

    async def reserve(self, turn: TurnId, begin: bool) -> tuple[InboxItem, ...]:
        now, moment = self._clock.wall(), Moment.TURN_START if begin else Moment.TOOL_BOUNDARY
        start = records.TurnBegin(turn, "message") if begin else None
        return await self._database.write(lambda c: records.reserve(c, KEY, moment, None, turn, start, now))

    def queue(self) -> tuple[QueuedItem, ...]:
        return tuple(item.as_queued() for item in self.waiting())

    def waiting(self) -> tuple[InboxItem, ...]:
        return self._database.read_now(lambda c: inbox_rows.waiting(c, KEY))

    async def admit(self, turn: TurnId, run: RunId) -> tuple[InboxItem, ...]:
        return await self._database.write(lambda c: inbox_rows.admit(c, turn, run))

    async def release(self, turn: TurnId) -> int:
        return await self._database.write(lambda c: inbox_rows.release(c, turn))

    async def remove(self, key: ConversationKey, number: int) -> InboxItem | None:
        now = self._clock.wall()
        return await self._database.write(lambda c: inbox_rows.cancel(c, key, number, CancelCause.REMOVED, now))

    async def park(self) -> int:
        return await self._database.write(lambda c: inbox_rows.park(c, KEY))

    async def resume(self) -> int:
        return await self._database.write(lambda c: inbox_rows.resume(c, KEY))


def expected(number: int, name: str, **changes) -> InboxItem:
    base = InboxItem(
        conversation=KEY,
        item_number=number,
        client_message_id=ClientMessageId(name),
        kind=ItemKind.MESSAGE,
        source="user",
        messages=(InputMessage(ClientMessageId(name), "hello", f"otid-{name}"),),
        settings=TurnSettings(),
        delivery="tool_boundary",
        connection_group="",
        sender="",
        disposition="queued",
        status=ItemStatus.ACCEPTED,
        accepted_at=NOW,
    )
    return replace(base, **changes)


async def accept(inbox: Inbox, *names: str, kind: ItemKind = ItemKind.MESSAGE, **options) -> None:
    for name in names:
        source = "user" if kind is ItemKind.MESSAGE else "task_notification"
        result = await inbox.accept(KEY, NewItem(submission(name, **options), kind, source), "queued")
        assert isinstance(result, ItemAccepted)


async def reserve(inbox: Inbox, turn: TurnId = TURN) -> tuple[InboxItem, ...]:
    return await inbox.reserve(turn, begin=True)


async def start_run(database: Database) -> None:
    await database.write(lambda c: run_rows.start(c, KEY, RUN, TURN, NOW))


def waiting_names(inbox: Inbox) -> list[str]:
    return [item.client_message_id for item in inbox.waiting()]


async def test_a_resent_message_is_told_what_it_was_told_first(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    first = await inbox.accept(KEY, NewItem(submission("a")), "started")
    assert first == ItemAccepted(expected(1, "a", disposition="started"))
    await database.aclose()
    again = open_database(tmp_path)
    resent = await Inbox(again, HandClock()).accept(KEY, NewItem(submission("a", "other text")), "queued")
    assert resent == ItemDuplicate(expected(1, "a", disposition="started"))
    other = await Inbox(again, HandClock()).accept(OTHER_KEY, NewItem(submission("a")), "started")
    assert isinstance(other, ItemAccepted)
    await again.aclose()


async def test_every_field_of_a_submission_survives(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    messages = (
        InputMessage(ClientMessageId("a"), [{"type": "text", "text": "ü"}], "o1"),
        InputMessage(ClientMessageId("b"), "x", "o2"),
    )
    full = Submission(messages, False, ("Bash",), "turn_end", "group")
    await inbox.accept(KEY, NewItem(full, ItemKind.CRON_PROMPT, "cron"), "queued")
    assert inbox.waiting() == (
        expected(
            1, "a", kind=ItemKind.CRON_PROMPT, source="cron", messages=messages, delivery="turn_end",
            settings=TurnSettings(False, ("Bash",)), connection_group="group",
        ),
    )  # fmt: skip
    await database.aclose()


async def test_an_empty_submission_is_refused(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    assert await inbox.accept(KEY, NewItem(Submission(())), "started") == ItemRefused("There is no message in it.")
    assert inbox.queue() == ()
    await database.aclose()


async def test_the_way_of_a_message_from_acceptance_to_answer(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    await accept(inbox, "a", "b")
    assert inbox.queue() == tuple(
        QueuedItem(QueueItemId(f"q-{number}"), ClientMessageId(name), "message", "user", "hello", NOW)
        for number, name in ((1, "a"), (2, "b"))
    )
    batch = await reserve(inbox)
    assert batch == (expected(1, "a"), expected(2, "b"))
    assert batch_content(batch) == [
        {"type": "text", "text": "hello"},
        {"type": "text", "text": "\n"},
        {"type": "text", "text": "hello"},
    ]
    assert batch_settings(batch) == TurnSettings()
    assert inbox.queue() == ()
    await start_run(database)
    admitted = await inbox.admit(TURN, RUN)
    assert [item.client_message_id for item in admitted] == ["a", "b"]
    assert await inbox.admit(TURN, RUN) == ()
    assert await inbox.release(TURN) == 0
    await database.write(lambda c: run_rows.end(c, RUN, RunStatus.COMPLETED, StopReason.END_TURN, NOW))
    await database.write(lambda c: turn_rows.finish(c, TURN, StopReason.END_TURN, NOW, RUN))
    assert await database.write(lambda c: inbox_rows.answer(c, TURN, "error", NOW)) == 0
    settled = await database.read(lambda c: inbox_rows.get(c, KEY, ClientMessageId("a")))
    assert settled == expected(1, "a", status=ItemStatus.ANSWERED, turn_id=TURN, run_id=RUN, outcome="end_turn")
    await database.aclose()


async def test_nothing_is_reserved_and_no_turn_starts_when_nothing_waits(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    assert await reserve(inbox) == ()
    assert await database.read(turn_rows.all_active) == ()
    await accept(inbox, "a")
    assert await database.read(inbox_rows.keys_with_work) == (KEY,)
    await database.aclose()


async def test_what_was_not_admitted_returns_to_the_head(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    await accept(inbox, "a", "b")
    await reserve(inbox)
    await accept(inbox, "c")
    assert await inbox.release(TURN) == 2
    assert waiting_names(inbox) == ["a", "b", "c"]
    await database.aclose()


async def test_a_failed_reservation_changes_nothing(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    await accept(inbox, "a")
    await start_turn(database)
    with pytest.raises(StateConflict):
        await reserve(inbox, TurnId("turn-2"))
    assert waiting_names(inbox) == ["a"]
    with pytest.raises(StateConflict, match="no longer waits"):
        await database.write(lambda c: inbox_rows.reserve(c, KEY, [1, 9], TURN))
    assert waiting_names(inbox) == ["a"]
    await database.aclose()


async def test_after_a_crash_reserved_items_return_and_admitted_ones_do_not(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    await accept(inbox, "a")
    await reserve(inbox)
    await start_run(database)
    await inbox.admit(TURN, RUN)
    await accept(inbox, "b")
    await inbox.reserve(TURN, begin=False)
    await database.aclose()
    again = open_database(tmp_path)
    inbox = Inbox(again, HandClock())
    await again.write(lambda c: recovery.put_in_order(c, NOW))
    assert waiting_names(inbox) == ["b"]
    assert [i.status for i in await again.read(lambda c: inbox_rows.of_turn(c, TURN))] == [ItemStatus.ADMITTED]
    await again.aclose()


async def test_a_waiting_item_is_removed_once_and_a_taken_one_is_not(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    await accept(inbox, "a", "b")
    assert await inbox.remove(KEY, 1) == expected(1, "a")
    assert await inbox.remove(KEY, 1) is None
    assert await inbox.remove(OTHER_KEY, 2) is None
    await reserve(inbox)
    assert await inbox.remove(KEY, 2) is None
    cancelled = await database.read(lambda c: inbox_rows.get(c, KEY, ClientMessageId("a")))
    assert cancelled == expected(1, "a", status=ItemStatus.CANCELLED, outcome="removed")
    resent = await inbox.accept(KEY, NewItem(submission("a")), "queued")
    assert isinstance(resent, ItemDuplicate)
    await database.aclose()


async def test_an_abort_parks_messages_and_a_new_one_goes_on_behind_them(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    await accept(inbox, "a", "b")
    await accept(inbox, "n", kind=NOTE)
    assert await inbox.park() == 2
    assert [(item.client_message_id, item.paused) for item in inbox.queue()] == [
        ("a", True),
        ("b", True),
        ("n", False),
    ]
    batch = await reserve(inbox)
    assert [item.client_message_id for item in batch] == ["n"]
    await inbox.release(TURN)
    await accept(inbox, "m", kind=NOTE)
    assert await inbox.resume() == 2
    assert await inbox.park() == 2
    await accept(inbox, "c")
    assert [item.paused for item in inbox.queue()] == [False] * 5
    assert waiting_names(inbox) == ["a", "b", "n", "m", "c"]
    await database.aclose()


async def test_the_newest_inputs_are_remembered_and_what_is_open_always(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    await accept(inbox, "open", "gone", "kept")
    for number in (2, 3):
        await inbox.remove(KEY, number)
    await accept(inbox, "new")
    await database.write(lambda c: inbox_rows.forget_settled(c, KEY, 2))
    assert isinstance(await inbox.accept(KEY, NewItem(submission("kept")), "queued"), ItemDuplicate)
    assert isinstance(await inbox.accept(KEY, NewItem(submission("open")), "queued"), ItemDuplicate)
    again = await inbox.accept(KEY, NewItem(submission("gone")), "queued")
    assert isinstance(again, ItemAccepted)
    assert again.item.item_number == 5
    await database.aclose()


async def test_a_persons_message_is_never_dropped(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    inbox = Inbox(database, HandClock())
    await accept(inbox, "n1", "n2", kind=NOTE)
    await accept(inbox, *(f"m{number}" for number in range(SOFT_LIMIT - 2)))
    result = await inbox.accept(KEY, NewItem(submission("one more")), "queued")
    assert isinstance(result, ItemAccepted)
    assert [item.client_message_id for item in result.dropped] == ["n1"]
    assert [item.client_message_id for item in inbox.waiting()][:2] == ["n2", "m0"]
    await accept(inbox, *(f"x{number}" for number in range(HARD_LIMIT - SOFT_LIMIT + 1)))
    assert "n2" not in waiting_names(inbox)
    refused = await inbox.accept(KEY, NewItem(submission("too many")), "queued")
    assert isinstance(refused, ItemRefused)
    assert len(inbox.waiting()) == HARD_LIMIT
    note = await inbox.accept(KEY, NewItem(submission("n3"), NOTE, "task_notification"), "queued")
    assert isinstance(note, ItemRefused)
    await database.aclose()
