"""Each event of a conversation as its frame."""

import json
from typing import Any, get_args

import pytest

from lodger_daemon.clients.core.bodies import Body, encode, event_body, finish
from lodger_daemon.clients.core.rendering import can_use_tool, render
from lodger_daemon.clients.core.times import TimestampWriter
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
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_protocol.events import ServerEvent
from lodger_protocol.frames import parse_frame
from lodger_protocol.parsing import UnknownCommand

KEY = ConversationKey(AgentId("agent-1"), ConversationId("conv-1"))
AT = WallTime(1_800_000_000.25)
DATE = "2027-01-15T08:00:00.250Z"
RUN, MESSAGE, CALL = RunId("run-1"), MessageId("message-1"), ToolCallId("call-1")
CLIENT = ClientMessageId("cm-1")
ITEM = e.QueuedItem(QueueItemId("q-1"), CLIENT, "message", "user", "hi", AT, paused=True)
QUESTION = e.QuestionAsked(
    QuestionId("perm-call-1"),
    RUN,
    CALL,
    "Write",
    {"file_path": "/a"},
    (e.PermissionSuggestion("save-default", "always"),),
    (e.FilePreview("a", ({"oldStart": 1},)), e.FilePreview("b", None, "binary")),
    "outside the workspace",
    AT,
)
BACKEND = {"date": DATE, "agent_id": "agent-1", "conversation_id": "conv-1", "seq_id": 7, "type": "message"}
LIFECYCLE = {"id": "lifecycle-conv-1-7", "date": DATE}
RETURN = {"tool_call_id": "call-1", "status": "success", "tool_return": "a\nb"}


def delta(**fields: Any) -> dict[str, Any]:
    return {"type": "stream_delta", "delta": fields}


CASES: list[tuple[e.ConversationEvent, dict[str, Any]]] = [
    (
        e.LoopStatusChanged(e.LoopStatus.EXECUTING_CLIENT_SIDE_TOOL, RUN, (CALL,), {RUN: (CLIENT,)}),
        {
            "type": "update_loop_status",
            "loop_status": {
                "status": "EXECUTING_CLIENT_SIDE_TOOL",
                "active_run_ids": ["run-1"],
                "client_message_ids_by_run_id": {"run-1": ["cm-1"]},
                "executing_tool_call_ids": ["call-1"],
            },
        },
    ),
    (
        e.LoopStatusChanged(e.LoopStatus.WAITING_ON_INPUT),
        {
            "type": "update_loop_status",
            "loop_status": {"status": "WAITING_ON_INPUT", "active_run_ids": [], "executing_tool_call_ids": []},
        },
    ),
    (
        e.QueueChanged((ITEM,), (e.QueueRemoval(CLIENT, "dequeued"),)),
        {
            "type": "update_queue",
            "queue": [
                {
                    "id": "q-1",
                    "client_message_id": "cm-1",
                    "kind": "message",
                    "source": "user",
                    "content": "hi",
                    "enqueued_at": DATE,
                    "paused": True,
                }
            ],
            "removed": [{"client_message_id": "cm-1", "disposition": "dequeued"}],
        },
    ),
    (
        e.InputEchoed(MESSAGE, CLIENT, "hi"),
        delta(
            type="message",
            id="user-msg-1",
            date=DATE,
            message_type="user_message",
            content=[{"type": "text", "text": "hi"}],
            otid="cm-1",
        ),
    ),
    (
        e.InputEchoed(MESSAGE, CLIENT, "hi\nho", (CLIENT, ClientMessageId("cm-2"))),
        delta(
            type="message",
            id="user-msg-1",
            date=DATE,
            message_type="user_message",
            content=[{"type": "text", "text": "hi\nho"}],
            otid="cm-1",
            client_message_ids=["cm-1", "cm-2"],
        ),
    ),
    (
        e.AssistantText(RUN, MESSAGE, "o", "hé"),
        delta(
            id="message-1",
            message_type="assistant_message",
            otid="o",
            content=[{"type": "text", "text": "hé"}],
            run_id="run-1",
            **BACKEND,
        ),
    ),
    (
        e.ReasoningText(RUN, MESSAGE, "o", "hm"),
        delta(id="message-1", message_type="reasoning_message", otid="o", reasoning="hm", run_id="run-1", **BACKEND),
    ),
    (
        e.ToolCallRequested(RUN, MESSAGE, CALL, "Bash", "{}"),
        delta(
            id="message-1",
            message_type="approval_request_message",
            tool_call={"tool_call_id": "call-1", "name": "Bash", "arguments": "{}"},
            run_id="run-1",
            **BACKEND,
        ),
    ),
    (
        e.ToolStarted(RUN, MESSAGE, CALL, "Bash", "{}"),
        delta(
            id="message-1",
            date=DATE,
            message_type="client_tool_start",
            run_id="run-1",
            tool_call_id="call-1",
            tool_name="Bash",
            tool_args="{}",
        ),
    ),
    (
        e.ToolOutput(RUN, CALL, "a\nb\n"),
        delta(
            type="message",
            message_type="tool_return_message",
            id="synthetic-tool-return-stream-call-1",
            date=DATE,
            run_id="run-1",
            **RETURN,
            tool_returns=[{**RETURN, "stdout": ["a", "b"]}],
        ),
    ),
    (
        e.ToolEnded(RUN, MESSAGE, CALL, "error"),
        delta(
            id="message-1",
            date=DATE,
            message_type="client_tool_end",
            run_id="run-1",
            tool_call_id="call-1",
            status="error",
        ),
    ),
    (
        e.ToolReturned(RUN, MESSAGE, CALL, "success", "a\nb"),
        delta(
            type="message",
            message_type="tool_return_message",
            id="synthetic-tool-return-1",
            date=DATE,
            run_id="run-1",
            **RETURN,
            tool_returns=[RETURN],
        ),
    ),
    (
        e.UsageReported(RUN, MESSAGE, 10, 5, 3, 2),
        delta(
            id="message-1",
            message_type="usage_statistics",
            prompt_tokens=10,
            completion_tokens=5,
            total_tokens=15,
            cached_input_tokens=3,
            cache_write_tokens=0,
            reasoning_tokens=2,
            context_tokens=15,
            run_id="run-1",
            **BACKEND,
        ),
    ),
    (
        e.RunStopped(RUN, StopReason.END_TURN),
        delta(message_type="stop_reason", stop_reason="end_turn", run_id="run-1", seq_id=7, type="message"),
    ),
    (
        e.QueueBlocked(e.BlockedBy.QUESTION),
        {"type": "lodger_queue_blocked", "reason": "pending_approvals"},
    ),
    (e.RunVoided(RUN), {"type": "lodger_run_voided", "run_id": "run-1"}),
    (
        e.LoopStatusChanged(e.LoopStatus.RETRYING_API_REQUEST, retry_at=AT),
        {
            "type": "update_loop_status",
            "loop_status": {
                "status": "RETRYING_API_REQUEST",
                "active_run_ids": [],
                "executing_tool_call_ids": [],
                "retry_at": DATE,
            },
        },
    ),
    (
        e.RunFailed(RUN, "bad", "server", True),
        delta(
            id="message-error-run-1-7",
            message_type="error_message",
            message="bad",
            detail="bad",
            error_type="server",
            retryable=True,
            run_id="run-1",
            **BACKEND,
        ),
    ),
    (
        e.RetryAnnounced("again", "server", 1, 3, 1000, RUN),
        delta(
            **LIFECYCLE,
            message_type="retry",
            run_id="run-1",
            message="again",
            reason="server",
            attempt=1,
            max_attempts=3,
            delay_ms=1000,
        ),
    ),
    (
        e.LoopFailed("bad", StopReason.ERROR, True, None, (CLIENT,)),
        delta(
            **LIFECYCLE,
            message_type="loop_error",
            message="bad",
            stop_reason="error",
            is_terminal=True,
            client_message_ids=["cm-1"],
        ),
    ),
    (
        e.StatusNote("Interrupted", "warning", RUN),
        delta(**LIFECYCLE, message_type="status", run_id="run-1", message="Interrupted", level="warning"),
    ),
    (
        QUESTION,
        {
            "type": "control_request",
            "request_id": "perm-call-1",
            "request": {
                "subtype": "can_use_tool",
                "tool_name": "Write",
                "input": {"file_path": "/a"},
                "tool_call_id": "call-1",
                "permission_suggestions": [{"id": "save-default", "text": "always"}],
                "blocked_path": None,
                "diffs": [
                    {"mode": "advanced", "fileName": "a", "hunks": [{"oldStart": 1}]},
                    {"mode": "unpreviewable", "fileName": "b", "reason": "binary"},
                ],
                "reason": "outside the workspace",
                "expires_at": DATE,
            },
            "agent_id": "agent-1",
            "conversation_id": "conv-1",
        },
    ),
    (
        e.QuestionSettled(QuestionId("perm-call-1"), "denied"),
        {"type": "lodger_question_settled", "request_id": "perm-call-1", "outcome": "denied"},
    ),
    (
        e.CallRefused(RUN, CALL, "nobody"),
        {"type": "lodger_call_refused", "run_id": "run-1", "tool_call_id": "call-1", "by": "nobody"},
    ),
    (
        e.TurnFinished(TurnId("turn-1"), StopReason.ERROR, RUN, "bad"),
        {"type": "turn_finished", "turn_id": "turn-1", "stop_reason": "error", "run_id": "run-1", "error": "bad"},
    ),
    (
        e.TurnFinished(TurnId("turn-1"), StopReason.CANCELLED),
        {"type": "turn_finished", "turn_id": "turn-1", "stop_reason": "cancelled"},
    ),
    (
        e.MemorySynced("pushed", "abc"),
        {"type": "lodger_memory_synced", "outcome": "pushed", "head": "abc", "detail": ""},
    ),
]


def rendered(event: e.ConversationEvent) -> Body | None:
    return render(e.NumberedEvent(KEY, 7, AT, event))


@pytest.mark.parametrize(("event", "expected"), CASES, ids=lambda case: type(case).__name__)
def test_event(event: e.ConversationEvent, expected: dict[str, Any]) -> None:
    body = rendered(event)
    assert body is not None
    frame = finish(body, 3, DATE, "u", with_number=True)
    runtime = {"agent_id": "agent-1", "conversation_id": "conv-1"}
    assert json.loads(frame) == {
        **expected,
        "runtime": runtime,
        "event_seq": 3,
        "emitted_at": DATE,
        "idempotency_key": f"{expected['type']}:3:u",
        "lodger_event": 7,
    }
    parsed = parse_frame(frame)
    assert isinstance(parsed, UnknownCommand if body.beyond_v2 else get_args(get_args(ServerEvent)[0]))


def test_every_event_has_a_case() -> None:
    assert {type(event) for event, _ in CASES} | {e.DeviceStateChanged} == set(get_args(e.ConversationEvent))
    assert rendered(e.DeviceStateChanged()) is None


def test_numbers_are_for_those_who_know_them() -> None:
    body = rendered(e.RunStopped(RUN, StopReason.END_TURN))
    assert body is not None
    assert b"lodger_event" not in finish(body, 1, DATE, "u", with_number=False)


def test_a_question_without_extras_is_plain_v2() -> None:
    plain = e.QuestionAsked(QuestionId("perm-c"), RUN, CALL, "Bash", {})
    assert can_use_tool(plain) == {
        "subtype": "can_use_tool",
        "tool_name": "Bash",
        "input": {},
        "tool_call_id": "call-1",
        "permission_suggestions": [],
        "blocked_path": None,
    }


def test_a_lone_surrogate_does_not_break_a_frame() -> None:
    body = event_body("x", KEY, {"text": "a\ud800b", "list": [{"\ud800": 1}]})
    assert json.loads(body.head + b"}")["text"] == "a?b"
    assert encode({"a": "\udfff"}) == b'{"a":"?"}'


def test_timestamps() -> None:
    writer = TimestampWriter()
    assert writer.write(AT) == DATE
    assert writer.write(WallTime(1_800_000_000.999)) == "2027-01-15T08:00:00.999Z"
    assert writer.write(WallTime(1_800_000_001.0)) == "2027-01-15T08:00:01.000Z"
