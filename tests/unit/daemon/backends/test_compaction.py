"""What a compaction hides and what it never does."""

from lodger_daemon.backends.core.compaction import (
    IMAGE_TOKENS,
    Budget,
    budget_of,
    estimate,
    plan,
    render_for_summary,
    summary_text,
)
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import MessageId, RunId, ToolCallId
from lodger_daemon.models.contract import ToolSchema
from lodger_tools.json_value import Json


def said(kind: MessageKind, characters: int) -> TranscriptMessage:
    text = "x" * characters
    field = "content" if kind is MessageKind.USER else "text"
    content: dict[str, Json] = {field: text, "status": "success"}
    call_id = ToolCallId("c1") if kind is MessageKind.TOOL else None
    return TranscriptMessage(MessageId("m"), kind, content, WallTime(0.0), RunId("run-1"), call_id)


def hidden(transcript: list[TranscriptMessage], tokens: int) -> int | None:
    """How many messages from the start are hidden; the rest is kept as it stands."""
    planned = plan(transcript, Budget(tokens))
    if planned is None:
        return None
    assert (*planned.hidden, *planned.kept) == tuple(transcript)
    return len(planned.hidden)


USER, ASSISTANT, TOOL = MessageKind.USER, MessageKind.ASSISTANT, MessageKind.TOOL


def test_the_budget_leaves_room_for_prompt_tools_and_answer() -> None:
    tool = ToolSchema("n" * 4, "d" * 394, {})
    assert budget_of(100_000, "p" * 4_000, [tool], None) == Budget(100_000 - 16_384 - 1_100)
    assert budget_of(10_000, "", [], None) == Budget(8_000)
    assert budget_of(10_000, "", [], 500) == Budget(9_500)


def test_an_image_counts_as_one_whatever_its_size() -> None:
    content: list[Json] = [{"type": "image", "source": {"data": "x" * 100_000}}]
    message = TranscriptMessage(MessageId("m"), USER, {"content": content}, WallTime(0.0))
    assert estimate(message) == IMAGE_TOKENS + 4


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


def test_a_summary_says_how_many_messages_it_stands_for() -> None:
    assert "7 earlier messages" in summary_text("They spoke of tea.", 7)


def test_the_summarisers_input_is_cut_in_the_middle() -> None:
    text = render_for_summary([said(USER, 1_000)], 100)
    assert "characters left out" in text
    assert len(text) < 200


def test_a_turn_too_long_by_itself_loses_its_older_steps_but_not_its_question() -> None:
    steps = [said(kind, 8_000) for _ in range(4) for kind in (ASSISTANT, TOOL)]
    transcript = [said(USER, 100), said(ASSISTANT, 100), said(USER, 400), *steps]
    planned = plan(transcript, Budget(10_000))
    assert planned is not None
    assert planned.kept == (transcript[2], *steps[6:])
    assert planned.hidden == (*transcript[:2], *steps[:6])


def test_the_newest_step_stays_even_when_it_is_too_long() -> None:
    transcript = [said(USER, 100), *(said(kind, 80_000) for _ in range(2) for kind in (ASSISTANT, TOOL))]
    planned = plan(transcript, Budget(1_000))
    assert planned is not None
    assert planned.kept == (transcript[0], *transcript[3:])
