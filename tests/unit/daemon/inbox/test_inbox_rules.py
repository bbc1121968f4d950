"""The rules of the queue, without a database."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_daemon.identity import ClientMessageId, QueueItemId
from lodger_daemon.inbox.core.contents import content_parts, joined_parts, submission_content
from lodger_daemon.inbox.core.items import InboxItem, ItemKind, ItemStatus, TurnSettings, item_number
from lodger_daemon.inbox.core.rules import (
    HARD_LIMIT,
    SOFT_LIMIT,
    Admit,
    Moment,
    NoRoom,
    batch_content,
    batch_settings,
    next_batch,
    room_for,
)
from lodger_daemon.turns.contract import InputMessage
from support.store_rows import KEY, NOW

START, BOUNDARY = Moment.TURN_START, Moment.TOOL_BOUNDARY
NOTE, CRON, MESSAGE = ItemKind.TASK_NOTIFICATION, ItemKind.CRON_PROMPT, ItemKind.MESSAGE
NO_TOOLS = TurnSettings(tool_allowlist=())


def item(number: int, kind: ItemKind = MESSAGE, **changes) -> InboxItem:
    base = InboxItem(
        conversation=KEY,
        item_number=number,
        client_message_id=ClientMessageId(f"cm-{number}"),
        kind=kind,
        source="user",
        messages=(InputMessage(ClientMessageId(f"cm-{number}"), f"text {number}", ""),),
        settings=TurnSettings(),
        delivery="tool_boundary",
        connection_group="a",
        sender="",
        disposition="queued",
        status=ItemStatus.ACCEPTED,
        accepted_at=NOW,
    )
    return replace(base, **changes)


def taken(*items: InboxItem, moment: Moment = START, running: TurnSettings | None = None) -> list[int]:
    return [one.item_number for one in next_batch(items, moment, running)]


def test_the_longest_run_of_one_group_at_the_head_is_taken() -> None:
    assert taken() == []
    assert taken(item(1), item(2), item(3, connection_group="b"), item(4)) == [1, 2]


def test_notifications_and_prompts_join_any_group() -> None:
    assert taken(item(1, NOTE), item(2), item(3, CRON), item(4), item(5, connection_group="b")) == [1, 2, 3, 4]


def test_messages_under_other_settings_end_the_batch() -> None:
    assert taken(item(1), item(2, settings=NO_TOOLS), item(3)) == [1]
    assert taken(item(1, settings=NO_TOOLS), item(2, settings=TurnSettings(can_answer_questions=False))) == [1]


def test_at_a_tool_boundary_only_what_may_join_the_running_turn_is_taken() -> None:
    assert taken(item(1, settings=NO_TOOLS), item(2), moment=BOUNDARY, running=TurnSettings()) == []
    assert taken(item(1), item(2, settings=NO_TOOLS), moment=BOUNDARY, running=TurnSettings()) == [1]
    assert taken(item(1, settings=NO_TOOLS), moment=BOUNDARY, running=NO_TOOLS) == [1]


def test_items_for_the_turns_end_are_passed_over_at_a_tool_boundary() -> None:
    items = (item(1, delivery="turn_end"), item(2))
    assert taken(*items, moment=BOUNDARY) == [2]
    assert taken(*items, moment=START) == [1, 2]


@pytest.mark.parametrize("status", [status for status in ItemStatus if status is not ItemStatus.ACCEPTED])
def test_only_accepted_items_are_taken(status: ItemStatus) -> None:
    assert taken(item(1, status=status), item(2)) == [2]


def test_the_settings_of_a_batch_are_those_of_its_messages() -> None:
    assert batch_settings((item(1, NOTE), item(2, settings=NO_TOOLS))) == NO_TOOLS
    assert batch_settings((item(1, NOTE, settings=NO_TOOLS),)) == NO_TOOLS
    assert batch_settings(()) == TurnSettings()


def test_contents_are_joined_by_newline_parts() -> None:
    image = {"type": "image"}
    newline = {"type": "text", "text": "\n"}
    two = (InputMessage(ClientMessageId("x"), [image], ""), InputMessage(ClientMessageId("y"), "more", ""))
    assert batch_content((item(1), item(2, messages=two))) == [
        {"type": "text", "text": "text 1"},
        newline,
        image,
        newline,
        {"type": "text", "text": "more"},
    ]
    assert joined_parts(["", [], None, "b"]) == [
        {"type": "text", "text": ""},
        newline,
        {"type": "text", "text": "b"},
    ]
    assert content_parts({"type": "text", "text": "one"}) == [{"type": "text", "text": "one"}]
    assert submission_content(two) == [image, newline, {"type": "text", "text": "more"}]
    assert submission_content(two[1:]) == "more"


@pytest.mark.parametrize(
    ("kind", "waiting", "expected"),
    [
        (MESSAGE, {MESSAGE: SOFT_LIMIT - 1}, Admit()),
        (NOTE, {MESSAGE: SOFT_LIMIT - 1}, Admit()),
        (MESSAGE, {MESSAGE: SOFT_LIMIT}, Admit()),
        (MESSAGE, {MESSAGE: 98, CRON: 1, NOTE: 1}, Admit(drop=NOTE)),
        (MESSAGE, {MESSAGE: 99, CRON: 1}, Admit(drop=CRON)),
        (CRON, {MESSAGE: 99, NOTE: 1}, Admit(drop=NOTE)),
        (CRON, {MESSAGE: 99, CRON: 1}, Admit(drop=CRON)),
        (NOTE, {MESSAGE: 99, NOTE: 1}, Admit(drop=NOTE)),
        (MESSAGE, {MESSAGE: HARD_LIMIT - 1}, Admit()),
        (MESSAGE, {MESSAGE: HARD_LIMIT - 1, NOTE: 1}, Admit(drop=NOTE)),
    ],
)
def test_room(kind: ItemKind, waiting: dict[ItemKind, int], expected: Admit) -> None:
    assert room_for(kind, waiting) == expected


@pytest.mark.parametrize(
    ("kind", "waiting"),
    [
        (MESSAGE, {MESSAGE: HARD_LIMIT}),
        (NOTE, {MESSAGE: SOFT_LIMIT}),
        (NOTE, {CRON: SOFT_LIMIT}),
        (CRON, {MESSAGE: SOFT_LIMIT}),
    ],
)
def test_no_room(kind: ItemKind, waiting: dict[ItemKind, int]) -> None:
    assert isinstance(room_for(kind, waiting), NoRoom)


def test_item_ids() -> None:
    assert item(7).id == "q-7"
    assert item_number(item(7).id) == 7
    assert [item_number(QueueItemId(text)) for text in ("", "q-", "q", "x-1", "q--1", "q-²", "q-" + "9" * 30)] == [
        None
    ] * 7


ITEMS = st.builds(
    item,
    st.just(1),
    st.sampled_from(ItemKind),
    settings=st.sampled_from((TurnSettings(), NO_TOOLS)),
    delivery=st.sampled_from(("tool_boundary", "turn_end")),
    connection_group=st.sampled_from("ab"),
    status=st.sampled_from((ItemStatus.ACCEPTED, ItemStatus.PARKED)),
)


@given(st.lists(ITEMS, max_size=8))
def test_whatever_waits_is_taken_in_order_under_one_setting_and_in_the_end_wholly(drawn: list[InboxItem]) -> None:
    waiting = [replace(one, item_number=number) for number, one in enumerate(drawn, start=1)]
    accepted = [one for one in waiting if one.status is ItemStatus.ACCEPTED]
    taken_in_all: list[InboxItem] = []
    while batch := next_batch(waiting, Moment.TURN_START):
        messages = [one for one in batch if one.kind is MESSAGE]
        assert len({(one.settings, one.connection_group) for one in messages}) <= 1
        taken_in_all += batch
        waiting = [one for one in waiting if one not in batch]
    assert taken_in_all == accepted
