"""The replay's own parts: what it would see, and that the page tells all it knows."""

import copy
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support.replay_changes import each
from support.replay_cleaned import clean
from support.replay_expected import DIFFERENCES, RECORDINGS, Difference, OutOfDate, expected
from support.replay_normal import BadEnvelope, Cleaner, condense, named
from support.replay_place import compare
from support.replay_recording import Frame, Kind, Line, load

PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"


def seen(lines: list[Line]) -> dict[str, list[Frame]]:
    """As if the server had sent exactly this."""
    found: dict[str, list[Frame]] = {}
    for line in lines:
        if line.kind is Kind.RECEIVED:
            found.setdefault(line.connection, []).append(line.frame)
    return found


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_equals_itself(name: str) -> None:
    assert compare(clean(name), seen(clean(name))) == []
    assert compare(expected(name), seen(expected(name))) == []


def test_no_frame_can_be_dropped_unseen() -> None:
    lines = expected("02")
    for index, line in enumerate(lines):
        if line.kind is not Kind.RECEIVED:
            continue
        rest = [*lines[:index], *lines[index + 1 :]]
        repeats = line.frame["type"] == "update_device_status" and _is_condensed(lines, line)
        assert (compare(lines, seen(rest)) == []) is repeats, line


def _is_condensed(lines: list[Line], line: Line) -> bool:
    """Whether this device status only repeats another, so that either may be left out."""
    frames = seen(lines)[line.connection]
    without = [frame for frame in frames if frame is not line.frame]
    return condense(frames) == condense(without)


def _swap_status(frame: Frame) -> None:
    frame["delta"]["tool_call"]["name"] = "Write"


def _other_run(frame: Frame) -> None:
    frame["delta"]["run_id"] = "local-run-99"


def _other_text(frame: Frame) -> None:
    frame["delta"]["content"][0]["text"] += "!"


@pytest.mark.parametrize(
    ("frame_type", "edit"),
    [
        ("approval_request_message", _swap_status),
        ("stop_reason", _other_run),
        ("assistant_message", _other_text),
        ("turn_finished", lambda frame: frame.update(stop_reason="cancelled")),
        ("control_request", lambda frame: frame.update(request_id="perm-call_stub_77_0")),
        ("turn_finished", lambda frame: frame.update(run_id=None)),
        ("update_queue", lambda frame: frame.update(extra=1)),
    ],
)
def test_a_changed_frame_is_seen(frame_type: str, edit: Callable[[Frame], None]) -> None:
    lines = expected("02")
    changed = each(frame_type, edit)(lines)
    assert changed != lines
    assert compare(lines, seen(changed)) != []


def test_ids_count_by_what_they_refer_to() -> None:
    """The same recording under other ids is the same; what pointed at one run may not point at two."""
    lines = expected("02")
    renamed = each("stop_reason", lambda frame: frame["delta"].update(date="x"))(lines)
    assert compare(lines, seen(renamed)) != []
    frames = seen(lines)["c1"]
    other = [_renumbered(frame) for frame in frames]
    assert named(frames)[0] == named(other)[0]


def _renumbered(value: object) -> Frame:
    def change(inner: object) -> object:
        if isinstance(inner, dict):
            return {change(key): change(part) for key, part in inner.items()}
        if isinstance(inner, list):
            return [change(part) for part in inner]
        if isinstance(inner, str):
            return re.sub(r"local-run-(\d+)", lambda found: f"local-run-{int(found[1]) + 40}", inner)
        return inner

    changed = change(copy.deepcopy(value))
    assert isinstance(changed, dict)
    return changed


@pytest.mark.parametrize(
    "change", [{"event_seq": 7}, {"emitted_at": "yesterday"}, {"idempotency_key": "update_queue:1:x"}]
)
def test_a_broken_envelope_is_seen(change: Frame) -> None:
    frame = next(
        line.frame for line in load("02").lines if line.kind is Kind.RECEIVED and line.frame.get("event_seq") == 1
    )
    Cleaner("/").take(frame)
    with pytest.raises(BadEnvelope):
        Cleaner("/").take(frame | change)


def test_a_difference_that_changes_nothing_is_out_of_date(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Difference("nothing", "Nothing.", ("02",), list)
    monkeypatch.setattr("support.replay_expected.DIFFERENCES", (nothing,))
    with pytest.raises(OutOfDate):
        expected("02")


def test_every_difference_stands_in_the_page() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.count("|") == 4 and re.match(r"\| `[a-z-]+` \| \d", row)] == [
        difference.row() for difference in DIFFERENCES
    ]
