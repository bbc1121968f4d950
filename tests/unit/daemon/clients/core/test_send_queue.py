"""Order, merging and limits of what waits for one client."""

import json

from lodger_daemon.clients.core.bodies import Body, Merge, event_body
from lodger_daemon.clients.core.rendering import render
from lodger_daemon.clients.core.send_queue import MERGE_ABOVE_FRAMES, DeviceRequest, SendQueue
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ConversationId, ConversationKey, MessageId, RunId
from lodger_daemon.turns.core.events import AssistantText, NumberedEvent

KEY = ConversationKey(AgentId("a"), ConversationId("c"))
OTHER = ConversationKey(AgentId("a"), ConversationId("d"))


def queue(frames: int = 1000, size_bytes: int = 1_000_000) -> SendQueue:
    return SendQueue(frames, size_bytes)


def status(word: str, key: ConversationKey = KEY, merge: Merge = Merge.NEWEST) -> Body:
    return event_body("update_loop_status", key, {"word": word}, merge=merge)


def text(number: int, otid: str, content: str, key: ConversationKey = KEY) -> Body:
    event = AssistantText(RunId("r"), MessageId(f"m-{number}"), otid, content)
    body = render(NumberedEvent(key, number, WallTime(0), event))
    assert body is not None
    return body


def drained(waiting: SendQueue) -> list[str]:
    words: list[str] = []
    while (item := waiting.take()) is not None:
        match item:
            case Body():
                fields = json.loads(item.head + b"}")
                words.append(fields.get("word") or fields["delta"]["content"][0]["text"])
            case bytes():
                words.append(item.decode())
            case DeviceRequest():
                words.append(f"device {'forced' if item.force else 'if changed'}")
    return words


def lagging() -> SendQueue:
    waiting = queue()
    for number in range(MERGE_ABOVE_FRAMES):
        waiting.add_response(f"filler{number}".encode())
    return waiting


def test_a_client_that_keeps_up_sees_every_status_in_order() -> None:
    waiting = queue()
    waiting.add_body(status("one"))
    waiting.add_response(b"answer")
    waiting.add_body(status("two"))
    assert drained(waiting) == ["one", "answer", "two"]


def test_a_lagging_client_sees_the_newest_status_at_its_place() -> None:
    waiting = lagging()
    waiting.add_body(status("old"))
    waiting.add_body(status("other conversation", OTHER))
    waiting.add_body(status("kept", merge=Merge.NEVER))
    waiting.add_body(status("new"))
    assert drained(waiting)[MERGE_ABOVE_FRAMES:] == ["other conversation", "kept", "new"]


def test_a_frame_that_must_arrive_takes_nobodys_place() -> None:
    waiting = lagging()
    waiting.add_body(status("shown"))
    waiting.add_body(status("kept", merge=Merge.NEVER))
    assert drained(waiting)[MERGE_ABOVE_FRAMES:] == ["shown", "kept"]


def test_a_device_status_is_asked_for_once_and_force_survives() -> None:
    waiting = queue()
    waiting.add_device(KEY, force=True)
    waiting.add_device(KEY, force=False)
    waiting.add_device(OTHER, force=False)
    assert drained(waiting) == ["device forced", "device if changed"]
    waiting = lagging()
    waiting.add_device(KEY, force=True)
    waiting.add_body(status("between"))
    waiting.add_device(KEY, force=False)
    assert drained(waiting)[MERGE_ABOVE_FRAMES:] == ["between", "device forced"]


def test_fragments_of_one_message_merge_only_when_asked_and_only_neighbours() -> None:
    bodies = [text(1, "o", "a"), text(2, "o", "b"), text(3, "p", "c"), text(4, "o", "d"), text(5, "o", "e", OTHER)]
    plain, batched = queue(), queue()
    batched.batch_deltas = True
    for body in bodies:
        plain.add_body(body)
        batched.add_body(body)
    assert drained(plain) == ["a", "b", "c", "d", "e"]
    assert drained(batched) == ["ab", "c", "d", "e"]


def test_a_merged_fragment_bears_the_last_number_and_the_first_id() -> None:
    waiting = queue()
    waiting.batch_deltas = True
    for number, content in enumerate("abc", start=1):
        waiting.add_body(text(number, "o", content))
    merged = waiting.take()
    assert isinstance(merged, Body)
    delta = json.loads(merged.head + b"}")["delta"]
    assert (merged.event_number, delta["seq_id"], delta["id"]) == (3, 3, "m-1")
    assert delta["content"] == [{"type": "text", "text": "abc"}]
    assert waiting.take() is None


def test_limits_of_frames_and_bytes() -> None:
    waiting = queue(frames=2)
    waiting.add_response(b"1")
    waiting.add_response(b"2")
    assert not waiting.too_many_frames
    waiting.add_response(b"3")
    assert waiting.too_many_frames
    assert not waiting.too_many_bytes
    waiting.take()
    assert not waiting.too_many_frames
    waiting = queue(size_bytes=10)
    waiting.add_response(b"x" * 10)
    assert not waiting.too_many_bytes
    assert waiting.take() == b"x" * 10
    waiting.add_response(b"x" * 10)
    assert not waiting.too_many_bytes
    waiting.add_response(b"x")
    assert waiting.too_many_bytes


def test_merged_text_counts_too() -> None:
    waiting = queue(size_bytes=2000)
    waiting.batch_deltas = True
    for number in range(1, 3):
        waiting.add_body(text(number, "o", "x" * 500))
    assert not waiting.too_many_bytes
    waiting.add_body(text(4, "o", "x" * 900))
    assert waiting.too_many_bytes
    waiting.take()
    assert not waiting.too_many_bytes
