"""What a request is counted as, and what providers' own figures teach."""

from lodger_daemon.backends.core.budget import (
    IMAGE_TOKENS,
    SMALLEST_ANSWER,
    SMALLEST_SUMMARY,
    Budget,
    Calibration,
    budget_of,
    estimate,
    floor_of,
)
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import MessageId
from lodger_daemon.models.contract import ToolSchema
from lodger_tools.json_value import Json


def test_the_budget_leaves_room_for_prompt_tools_and_answer() -> None:
    floor = floor_of("p" * 4_000, [ToolSchema("n" * 4, "d" * 394, {})])
    assert floor == 1_100
    assert budget_of(100_000, floor, None).messages == 100_000 - 16_384 - 1_100
    assert budget_of(10_000, 0, None).messages == 8_000
    assert budget_of(10_000, 0, 500).messages == 9_500


def test_a_small_window_still_keeps_room_for_a_real_answer() -> None:
    assert budget_of(2_000, 0, None).reserve == SMALLEST_ANSWER
    tight = budget_of(8_192, 7_000, None)
    assert not tight.can_be_sent(8_192 - 7_000 - SMALLEST_ANSWER + 1)
    assert tight.can_be_sent(8_192 - 7_000 - SMALLEST_ANSWER)
    assert not budget_of(8_192, 7_800, None).can_be_sent(0)


def test_a_summary_takes_a_quarter_of_a_small_window_at_most() -> None:
    assert Budget(100_000, 0, 0).summary == 1_000
    assert Budget(2_000, 0, 0).summary == 500
    assert Budget(100, 0, 0).summary == SMALLEST_SUMMARY


def test_an_image_counts_as_one_whatever_its_size() -> None:
    content: list[Json] = [{"type": "image", "source": {"data": "x" * 100_000}}]
    message = TranscriptMessage(MessageId("m"), MessageKind.USER, {"content": content}, WallTime(0.0))
    assert estimate(message) == IMAGE_TOKENS + 4


def test_other_scripts_than_latin_count_by_their_bytes() -> None:
    def of(text: str) -> int:
        return estimate(TranscriptMessage(MessageId("m"), MessageKind.ASSISTANT, {"text": text}, WallTime(0.0)))

    assert of("word" * 100) == 104
    assert of("漢字" * 200) == 304
    assert of("\ud800" * 400) == 104


def test_the_larger_of_estimate_and_report_is_believed() -> None:
    assert Calibration().reported(1_000, 1_500).window(9_000) == 6_000
    assert Calibration().reported(1_000, 700).window(9_000) == 9_000
    assert Calibration().reported(1_000, 1_500).reported(1_000, 1_200).window(6_000) == 5_000


def test_a_report_of_nothing_or_of_nonsense_changes_nothing() -> None:
    known = Calibration().reported(1_000, 1_500)
    for prompt_tokens in (0, -1, 10**9):
        assert known.reported(1_000, prompt_tokens) == known
    assert known.reported(0, 100) == known


def test_a_refusal_lowers_the_window_until_something_longer_is_answered() -> None:
    refused = Calibration().refused(5_000).refused(6_000)
    assert refused.window(128_000) == 5_000
    assert refused.reported(4_000, 4_000).window(128_000) == 5_000
    assert refused.reported(5_000, 5_000).window(128_000) == 128_000
