"""What a compaction hides and what it never does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_daemon.backends.core.budget import Budget, estimate_all
from lodger_daemon.backends.core.compaction import (
    Mode,
    Options,
    Plan,
    plan,
    render_for_summary,
    summary_request,
    summary_text,
)
from lodger_daemon.backends.core.compaction_options import options_from
from lodger_daemon.backends.core.elision import IMAGE_LEFT_OUT, Elision, as_shown, elide, elision_of
from lodger_daemon.backends.core.request_view import NO_RESULT, RequestView
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import MessageId, RunId, ToolCallId
from lodger_daemon.models.contract import ToolMessage
from lodger_daemon.turns.contract import ConversationError
from lodger_tools.json_value import Json


def said(kind: MessageKind, characters: int) -> TranscriptMessage:
    text = "x" * characters
    field = "content" if kind is MessageKind.USER else "text"
    content: dict[str, Json] = {field: text, "status": "success"}
    call_id = ToolCallId("c1") if kind is MessageKind.TOOL else None
    return TranscriptMessage(MessageId("m"), kind, content, WallTime(0.0), RunId("run-1"), call_id)


def of(messages: int) -> Budget:
    """A budget with so many tokens for messages."""
    return Budget(messages, 0, 0)


def hidden(transcript: list[TranscriptMessage], tokens: int) -> int | None:
    """How many messages from the start are hidden; the rest is kept as it stands."""
    planned = plan(transcript, of(tokens))
    if planned is None:
        return None
    assert (*planned.hidden, *planned.kept) == tuple(transcript)
    return len(planned.hidden)


USER, ASSISTANT, TOOL = MessageKind.USER, MessageKind.ASSISTANT, MessageKind.TOOL


def test_the_first_cut_that_reaches_the_target_is_taken() -> None:
    transcript = [said(kind, 4_000) for _ in range(5) for kind in (USER, ASSISTANT)]
    assert hidden(transcript, 12_000) == 4
    assert hidden(transcript, 6_000) == 7


def test_a_result_is_never_parted_from_its_call() -> None:
    transcript = [said(kind, 4_000) for kind in (USER, ASSISTANT, TOOL, TOOL, ASSISTANT, USER)]
    assert hidden(transcript, 8_000) == 4


def test_the_newest_user_message_always_stays() -> None:
    transcript = [said(USER, 400), said(ASSISTANT, 400), said(USER, 400_000), said(ASSISTANT, 400_000)]
    assert hidden(transcript, 1_000) == 2
    assert hidden(transcript[2:], 1_000) is None


def test_an_older_message_may_go_when_a_newer_one_waits() -> None:
    transcript = [said(USER, 40_000), said(ASSISTANT, 400)]
    assert plan(transcript, of(1_000)) is None
    assert plan(transcript, of(1_000), waiting=100) == Plan(tuple(transcript), ())


def test_a_summary_says_how_many_messages_it_stands_for() -> None:
    text = summary_text("They spoke of tea.", [said(USER, 1)] * 7)
    assert "7 earlier messages" in text
    assert "They spoke of tea." in text


def test_a_summary_tells_which_messages_it_stands_for_and_how_to_find_them() -> None:
    first, last = (
        replace(said(USER, 1), message_id=MessageId(f"message-{n}"), created_at=WallTime(n * 86_400.0)) for n in (1, 2)
    )
    text = summary_text("tea", [first, last], "SearchMessages")
    assert "message-1 (1970-01-02) to message-2 (1970-01-03)" in text
    assert "look them up with SearchMessages" in text
    assert "look them up" not in summary_text("tea", [first, last])


def test_the_summarisers_input_is_cut_in_the_middle() -> None:
    text = render_for_summary([said(USER, 1_000)], 100)
    assert "characters left out" in text
    assert len(text) < 200


def test_a_turn_too_long_by_itself_loses_its_older_steps_but_not_its_question() -> None:
    steps = [said(kind, 8_000) for _ in range(4) for kind in (ASSISTANT, TOOL)]
    transcript = [said(USER, 100), said(ASSISTANT, 100), said(USER, 400), *steps]
    planned = plan(transcript, of(10_000))
    assert planned is not None
    assert planned.kept == (transcript[2], *steps[6:])
    assert planned.hidden == (*transcript[:2], *steps[:6])


def test_the_newest_step_stays_even_when_it_is_too_long() -> None:
    transcript = [said(USER, 100), *(said(kind, 80_000) for _ in range(2) for kind in (ASSISTANT, TOOL))]
    planned = plan(transcript, of(1_000))
    assert planned is not None
    assert planned.hidden == tuple(transcript[1:3])
    assert planned.kept[:2] == (transcript[0], transcript[3])
    assert planned.kept[2].kind is TOOL


def test_a_summary_alone_is_not_summarised_again() -> None:
    summary = said(MessageKind.SUMMARY, 400)
    assert plan([summary, said(USER, 40_000), said(ASSISTANT, 400)], of(2_000)) is None
    long = said(MessageKind.SUMMARY, 40_000)
    assert hidden([long, said(USER, 400), said(ASSISTANT, 400)], 2_000) == 1


def test_all_hides_everything_but_the_newest_message_and_step() -> None:
    steps = [said(kind, 400) for _ in range(3) for kind in (ASSISTANT, TOOL)]
    transcript = [said(USER, 100), said(ASSISTANT, 100), said(USER, 400), *steps]
    planned = plan(transcript, of(100_000), options=Options(Mode.ALL))
    assert planned is not None
    assert planned.kept == (transcript[2], *steps[-2:])


def test_the_first_share_of_a_sliding_window_can_be_chosen() -> None:
    transcript = [said(kind, 400) for _ in range(5) for kind in (USER, ASSISTANT)]
    for share, count in ((0.1, 1), (0.4, 4), (0.8, 8)):
        planned = plan(transcript, of(100_000), options=Options(hidden_share=share))
        assert planned is not None
        assert len(planned.hidden) == count


def test_a_result_too_long_for_the_window_loses_its_middle() -> None:
    transcript = [said(USER, 100), said(ASSISTANT, 100), replace(said(TOOL, 40_000), message_id=MessageId("t"))]
    planned = plan(transcript, of(4_000))
    assert planned is not None
    assert planned.hidden == ()
    assert planned.elision.results == {"t"}
    shown = str(planned.kept[2].content["text"])
    assert "38000 characters of this result were left out" in shown
    assert (shown[:1_000], shown[-1_000:]) == ("x" * 1_000, "x" * 1_000)


def test_old_images_go_before_results_and_the_newest_stay() -> None:
    def pictured(name: str) -> TranscriptMessage:
        content: list[Json] = [{"type": "text", "text": name}, {"type": "image", "source": {}}]
        return TranscriptMessage(MessageId(name), USER, {"content": content}, WallTime(0.0))

    result = replace(said(TOOL, 8_000), message_id=MessageId("t"))
    transcript = [pictured("one"), pictured("two"), said(ASSISTANT, 10), result, pictured("three")]
    whole = estimate_all(transcript)
    assert elide(transcript, whole, Elision()) == (tuple(transcript), Elision())
    images, results = frozenset([MessageId("one"), MessageId("two")]), frozenset([MessageId("t")])
    for room, elision in ((whole - 1, Elision(images - {"two"})), (whole - 2_000, Elision(images))):
        assert elide(transcript, room, Elision())[1] == elision
    shown, elision = elide(transcript, 0, Elision())
    assert elision == Elision(images, results)
    assert [IMAGE_LEFT_OUT in str(message.content) for message in shown] == [True, True, False, False, False]
    assert elide(shown, 0, elision) == (shown, elision)


def test_what_was_left_out_is_left_out_the_same_way_after_a_restart() -> None:
    result = replace(said(TOOL, 40_000), message_id=MessageId("t"))
    planned = plan([said(USER, 100), said(ASSISTANT, 100), result], of(4_000))
    assert planned is not None
    content: dict[str, Json] = {"text": summary_text("", ()), "hidden": 0, **planned.elision.as_content()}
    summary = TranscriptMessage(MessageId("s"), MessageKind.SUMMARY, content, WallTime(0.0))
    again = as_shown(result, elision_of(summary))
    assert again == planned.kept[2]
    assert as_shown(again, elision_of(summary)) == again


def test_wishes_are_understood_or_refused_by_name() -> None:
    assert options_from({"agent_id": "agent-1"}) == Options()
    settings: dict[str, Json] = {"mode": "all", "prompt": "tea", "sliding_window_percentage": 0.5}
    assert options_from({"compaction_settings": settings}) == Options(Mode.ALL, 0.5, "tea")
    assert options_from(settings) == Options(Mode.ALL, 0.5, "tea")
    for field, value in (("mode", "some"), ("sliding_window_percentage", 1), ("prompt", 7), ("mode", 3)):
        with pytest.raises(ConversationError, match=field):
            options_from({field: value})


def test_a_wish_and_the_length_are_part_of_what_is_asked_of_the_summariser() -> None:
    assert "At most 500 words".lower() in summary_request(of(100_000), "").lower()
    assert "at most 60 words" in summary_request(of(100), "")
    assert "above all the tea" in summary_request(of(100_000), "above all the tea")
    assert "Look up:" in summary_request(of(100_000), "", can_search=True)
    assert "Look up:" not in summary_request(of(100_000), "")


def turn(index: int, calls: int, size: int) -> list[TranscriptMessage]:
    ids = [ToolCallId(f"c{index}-{number}") for number in range(calls)]
    content: dict[str, Json] = {
        "text": "x" * size,
        "tool_calls": [{"id": one, "name": "Bash", "arguments": "{}"} for one in ids],
    }
    step = TranscriptMessage(MessageId(f"a{index}"), ASSISTANT, content, WallTime(0.0), RunId("r"))
    results = [
        replace(said(TOOL, size), message_id=MessageId(f"t{index}-{number}"), tool_call_id=one)
        for number, one in enumerate(ids)
    ]
    return [step, *results]


STEP = st.tuples(st.integers(0, 3), st.integers(0, 6_000))
TURN = st.tuples(st.integers(1, 6_000), st.lists(STEP, max_size=4))


@given(st.lists(TURN, min_size=1, max_size=5), st.integers(-500, 8_000), st.sampled_from(Mode), st.none() | st.just(50))
def test_whatever_is_hidden_no_call_is_parted_from_its_result(
    turns: list[tuple[int, list[tuple[int, int]]]], messages: int, mode: Mode, waiting: int | None
) -> None:
    transcript: list[TranscriptMessage] = []
    for number, (size, steps) in enumerate(turns):
        transcript.append(replace(said(USER, size), message_id=MessageId(f"u{number}")))
        for step, (calls, length) in enumerate(steps):
            transcript += turn(number * 10 + step, calls, length)
    planned = plan(transcript, of(messages), waiting, Options(mode))
    if planned is None:
        return
    kept = [message.message_id for message in planned.kept]
    assert {message.message_id for message in planned.hidden} | set(kept) == {m.message_id for m in transcript}
    assert estimate_all(planned.kept) <= estimate_all(m for m in transcript if m.message_id in kept)
    if waiting is None:
        assert f"u{len(turns) - 1}" in kept
    view = RequestView(planned.kept).messages()
    shown = [message for message in view if isinstance(message, ToolMessage)]
    assert [message for message in shown if message.text == NO_RESULT] == []
    assert len(shown) == sum(message.kind is TOOL for message in planned.kept)
