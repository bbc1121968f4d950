"""Where two sequences of frames differ, told in few words."""

import difflib
import json
from collections.abc import Iterator
from typing import Any

from support.replay_recording import Frame

SHOWN_CHARACTERS = 200


def word(frame: Frame) -> str:
    """What a frame is about: enough to find its counterpart."""
    match frame["type"]:
        case "stream_delta":
            delta = frame["delta"]
            stage = "stream" if str(delta.get("id", "")).startswith(("stream#", "synthetic-tool-return-stream")) else ""
            return f"{delta['message_type']}{stage}"
        case "update_loop_status":
            return str(frame["loop_status"]["status"])
        case "update_device_status":
            status = frame["device_status"]
            asked = len(status["pending_control_requests"])
            return f"device {'busy' if status['is_processing'] else 'idle'} asked={asked}"
        case "update_queue":
            return f"queue {len(frame['queue'])}-{len(frame['removed'])}"
        case other:
            return str(other)


def differences(expected: list[Frame], seen: list[Frame]) -> list[str]:
    """Nothing when the sequences are equal."""
    told: list[str] = []
    words = difflib.SequenceMatcher(None, [*map(word, expected)], [*map(word, seen)], autojunk=False)
    for kind, start, end, other_start, other_end in words.get_opcodes():
        if kind == "equal":
            pairs = zip(range(start, end), expected[start:end], seen[other_start:other_end], strict=True)
            told += [f"{index} {word(one)}: {text}" for index, one, other in pairs for text in _fields(one, other, "")]
        else:
            told += [f"{start + index} missing {_short(frame)}" for index, frame in enumerate(expected[start:end])]
            told += [f"{start} extra {_short(frame)}" for frame in seen[other_start:other_end]]
    return told


def _fields(one: Any, other: Any, path: str) -> Iterator[str]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys((*one, *other)):
            if name not in other:
                yield f"{path}.{name} is missing, was {_short(one[name])}"
            elif name not in one:
                yield f"{path}.{name} is extra: {_short(other[name])}"
            else:
                yield from _fields(one[name], other[name], f"{path}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _fields(left, right, f"{path}[{index}]")
    else:
        yield f"{path} is {_short(other)}, was {_short(one)}"


def _short(value: Any) -> str:
    text = (
        f"{word(value)} {json.dumps(value)}"
        if isinstance(value, dict) and {"type", "runtime"} <= value.keys()
        else json.dumps(value)
    )
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
