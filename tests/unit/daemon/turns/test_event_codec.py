"""Every kind of event survives the store, and text fragments come back one by one."""

import json

import pytest

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import (
    AgentId,
    ClientMessageId,
    ConversationId,
    ConversationKey,
    MessageId,
    QuestionId,
    QueueItemId,
    RunId,
    ToolCallId,
    TurnId,
)
from lodger_daemon.turns.core import events as e
from lodger_daemon.turns.core.events import ConversationEvent, NumberedEvent
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.event_codec import EventRow, decode, encode

KEY = ConversationKey(AgentId("agent-1"), ConversationId("default"))
RUN, MESSAGE, CALL = RunId("run-1"), MessageId("message-1"), ToolCallId("c1")
CLIENT = ClientMessageId("m1")

EVERY_KIND: tuple[ConversationEvent, ...] = (
    e.LoopStatusChanged(e.LoopStatus.WAITING_ON_APPROVAL, RUN, (CALL,), {RUN: (CLIENT,)}),
    e.LoopStatusChanged(e.LoopStatus.WAITING_ON_INPUT),
    e.DeviceStateChanged(),
    e.QueueChanged(
        (e.QueuedItem(QueueItemId("q-1"), CLIENT, "message", "user", [{"type": "text", "text": "x"}], WallTime(1.5)),),
        (e.QueueRemoval(CLIENT, "dequeued"),),
    ),
    e.QueueBlocked(e.BlockedBy.QUESTION),
    e.QueueBlocked(None),
    e.InputEchoed(MESSAGE, CLIENT, "hi"),
    e.InputEchoed(MESSAGE, CLIENT, "hi\nho", (CLIENT, ClientMessageId("cm-2"))),
    e.AssistantText(RUN, MESSAGE, "o", "text"),
    e.ReasoningText(RUN, MESSAGE, "o", "text"),
    e.ToolCallRequested(RUN, MESSAGE, CALL, "Bash", "{}"),
    e.ToolStarted(RUN, MESSAGE, CALL, "Bash", "{}"),
    e.ToolOutput(RUN, CALL, "x"),
    e.ToolEnded(RUN, MESSAGE, CALL, "error"),
    e.ToolReturned(RUN, MESSAGE, CALL, "success", "text"),
    e.UsageReported(RUN, MESSAGE, 1, 2, 3, 4),
    e.RunStopped(RUN, StopReason.REQUIRES_APPROVAL),
    e.RunVoided(RUN),
    e.LoopStatusChanged(e.LoopStatus.RETRYING_API_REQUEST, retry_at=WallTime(3.5)),
    e.RunFailed(RUN, "bad", "server", True),
    e.RetryAnnounced("bad", "server", 1, 3, 1000, RUN),
    e.LoopFailed("bad", StopReason.ERROR, True, RUN, (CLIENT,)),
    e.StatusNote("Interrupted", "warning", None),
    e.QuestionAsked(
        QuestionId("perm-c1"),
        RUN,
        CALL,
        "Bash",
        {"command": "ls"},
        (e.PermissionSuggestion("save-default", "Bash(ls)"),),
        (e.FilePreview("a", ({"oldStart": 1},)), e.FilePreview("b", None, "binary")),
        "why",
        WallTime(9.0),
    ),
    e.QuestionSettled(QuestionId("perm-c1"), "expired"),
    e.CallRefused(RUN, CALL, "nobody"),
    e.TurnFinished(TurnId("turn-1"), StopReason.END_TURN, RUN, None),
    e.MemorySynced("pushed", "abc", ""),
)


def stored(events: list[ConversationEvent], first: int = 1) -> list[EventRow]:
    """As the store gives them back: payloads have been JSON text."""
    numbered = [NumberedEvent(KEY, first + index, WallTime(2.0), event) for index, event in enumerate(events)]
    return [EventRow(r.number, r.at, r.kind, json.loads(json.dumps(r.payload))) for r in encode(numbered)]


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: type(event).__name__)
def test_every_kind_comes_back_as_it_was(event: ConversationEvent) -> None:
    [row] = stored([event], first=7)
    assert decode(KEY, row) == (NumberedEvent(KEY, 7, WallTime(2.0), event),)


def test_every_kind_of_the_union_is_tried() -> None:
    assert {type(event) for event in EVERY_KIND} == set(ConversationEvent.__args__)  # type: ignore[attr-defined]


def test_fragments_of_one_message_share_a_row_and_come_back_apart() -> None:
    texts: list[ConversationEvent] = [e.AssistantText(RUN, MESSAGE, "o", text) for text in ("a", "", "bc", "é")]
    other = e.AssistantText(RUN, MessageId("message-2"), "p", "z")
    rows = stored([*texts, other, e.DeviceStateChanged()], first=11)
    assert [row.number for row in rows] == [14, 15, 16]
    back = [item for row in rows for item in decode(KEY, row)]
    assert [item.number for item in back] == [11, 12, 13, 14, 15, 16]
    assert [item.event for item in back] == [*texts, other, e.DeviceStateChanged()]


def test_a_kind_of_a_newer_version_is_skipped() -> None:
    assert decode(KEY, EventRow(1, WallTime(0.0), "Telepathy", {})) == ()
