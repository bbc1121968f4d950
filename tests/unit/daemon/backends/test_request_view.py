"""The view repairs what a provider would refuse, and never touches the transcript."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_daemon.backends.core.request_view import NO_RESULT, RequestView, shown_arguments, shown_name
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import MessageId, RunId, ToolCallId
from lodger_daemon.models.contract import AssistantMessage, ModelMessage, ToolCallPart, ToolMessage, UserMessage
from lodger_tools.json_value import Json

NOW = WallTime(0.0)


def user(text: str, reminder: str = "") -> TranscriptMessage:
    reminders: list[Json] = [{"kind": "x", "text": reminder}] if reminder else []
    return TranscriptMessage(MessageId("u"), MessageKind.USER, {"content": text, "reminders": reminders}, NOW)


def assistant(text: str, *call_ids: str) -> TranscriptMessage:
    calls: list[Json] = [{"id": call_id, "name": "Bash", "arguments": "{}"} for call_id in call_ids]
    return TranscriptMessage(
        MessageId("a"), MessageKind.ASSISTANT, {"text": text, "tool_calls": calls}, NOW, RunId("run-1")
    )


def result(call_id: str, text: str, status: str = "success") -> TranscriptMessage:
    content: dict[str, Json] = {"status": status, "text": text}
    return TranscriptMessage(MessageId("t"), MessageKind.TOOL, content, NOW, RunId("run-1"), ToolCallId(call_id))


def part(call_id: str) -> ToolCallPart:
    return ToolCallPart(call_id, "Bash", "{}")


def test_a_whole_transcript_is_left_as_it_is() -> None:
    view = RequestView([user("go", "the date"), assistant("", "c1"), result("c1", "ok", "error"), assistant("done")])
    assert view.messages() == (
        UserMessage(({"type": "text", "text": "the date"}, {"type": "text", "text": "go"})),
        AssistantMessage("", (part("c1"),)),
        ToolMessage("c1", "ok", is_error=True),
        AssistantMessage("done"),
    )


def test_results_stand_in_call_order_however_they_came() -> None:
    view = RequestView([assistant("", "c1", "c2"), result("c2", "two"), result("c1", "one")])
    assert view.messages()[1:] == (ToolMessage("c1", "one", False), ToolMessage("c2", "two", False))


def test_a_missing_result_is_made_up_as_an_error() -> None:
    view = RequestView([assistant("", "c1", "c2"), result("c2", "two"), user("next")])
    assert view.messages()[1] == ToolMessage("c1", NO_RESULT, is_error=True)


def test_the_first_of_two_results_counts_and_orphans_are_left_out() -> None:
    view = RequestView(
        [result("c0", "orphan"), assistant("", "c1"), result("c1", "one"), result("c1", "again"), result("c9", "x")]
    )
    assert view.messages() == (AssistantMessage("", (part("c1"),)), ToolMessage("c1", "one", False))


def test_a_repeated_call_id_in_one_message_is_shown_once() -> None:
    view = RequestView([assistant("", "c1", "c1"), result("c1", "one")])
    assert view.messages() == (AssistantMessage("", (part("c1"),)), ToolMessage("c1", "one", False))


def test_an_answer_of_nothing_is_left_out() -> None:
    assert RequestView([assistant("")]).messages() == ()


MESSAGES = st.one_of(
    st.builds(user, st.text(max_size=3)),
    st.builds(lambda ids: assistant("x", *ids), st.lists(st.sampled_from(["c1", "c2", "c3"]), max_size=3)),
    st.builds(result, st.sampled_from(["c1", "c2", "c3", "c4"]), st.text(max_size=3)),
)


@given(st.lists(MESSAGES, max_size=12))
def test_any_transcript_gives_a_request_that_providers_accept(transcript: list[TranscriptMessage]) -> None:
    grown = RequestView()
    shown: tuple[ModelMessage, ...] = ()
    for message in transcript:
        settled, shown = shown, grown.messages()
        assert shown[: len(settled)] == settled or isinstance(settled[-1], ToolMessage)
        grown.add(message)
    assert grown.messages() == RequestView(transcript).messages()
    ids = [call.tool_call_id for m in grown.messages() if isinstance(m, AssistantMessage) for call in m.tool_calls]
    assert len(ids) == len(set(ids))
    open_calls: list[str] = []
    for message in grown.messages():
        if isinstance(message, ToolMessage):
            assert open_calls.pop(0) == message.tool_call_id
            continue
        assert open_calls == []
        if isinstance(message, AssistantMessage):
            open_calls = [call.tool_call_id for call in message.tool_calls]
    assert open_calls == []


def test_an_id_used_again_in_a_later_step_is_shown_as_another() -> None:
    step = (assistant("", "c1"), result("c1", "one"), assistant("", "c1", "c1-2"), result("c1", "two"))
    view = RequestView([*step, result("c1-2", "three")])
    assert view.messages()[2:] == (
        AssistantMessage("", (part("c1-2"), part("c1-2-2"))),
        ToolMessage("c1-2", "two", False),
        ToolMessage("c1-2-2", "three", False),
    )


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('{"command": "ls"}', '{"command": "ls"}'),
        ("", "{}"),
        ('{"command": "l', '{"invalid_json": "{\\"command\\": \\"l"}'),
        ("[1]", '{"invalid_json": "[1]"}'),
        ("[" * 100_000, json.dumps({"invalid_json": "[" * 100_000})),
    ],
)
def test_arguments_that_are_no_object_are_shown_inside_of_one(written: str, shown: str) -> None:
    assert shown_arguments(written) == shown


def test_a_name_that_no_provider_takes_is_shown_as_one_that_all_take() -> None:
    assert [shown_name(name) for name in ("Bash", "functions.Bash", "", "x" * 99)] == [
        "Bash",
        "functions_Bash",
        "unnamed",
        "x" * 64,
    ]
