"""What two servers cannot have in common, made equal: ids, times, versions, paths, figures and lists.

Ids become names in the order of their first appearance on a connection (`run#1`), so that what refers to the same thing
in a recording must do so in the replay. The envelope is checked here and then left out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from support.replay_recording import Frame

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

KINDS = {
    "lifecycle": rf"lifecycle-(?:{UUID}|conv-{UUID}-\d+|default-\d+)",
    "stream": r"synthetic-tool-return-stream-call_stub_\d+_\d+",
    "return": rf"synthetic-tool-return-{UUID}",
    "echo": rf"user-msg-{UUID}",
    "error": rf"message-error-run-{UUID}-\d+",
    "external": rf"external-tool-{UUID}",
    "agent": rf"agent-(?:local-)?{UUID}",
    "client": rf"cm-{UUID}",
    "conversation": rf"local-conv-\d+|conv-{UUID}",
    "run": rf"local-run-\d+|run-{UUID}",
    "call": r"call_stub_\d+_\d+",
    "item": r"(?<![\w-])q-\d+",
    "turn": rf"batch-direct-{UUID}|batch-\d+|turn-{UUID}",
    "message": rf"letta-msg-\d+|ui-msg-\d+|message-{UUID}(?:-\w+)?",
    "text": rf"provider-(?:assistant|reasoning)-\d+-{UUID}|{UUID}",
}
"""Forms of ids of both programs. An id may contain another, so the longer forms come first."""

SAME_KIND = {"error": "message"}
IDS = re.compile("|".join(f"(?P<{kind}>{form})" for kind, form in KINDS.items()))

LISTS = frozenset(
    {
        "current_loaded_tools",
        "current_toolset",
        "current_available_skills",
        "supported_commands",
        "experiments",
        "background_processes",
        "git_context",
        "reflection_settings",
        "tags",
        "permission_suggestions",
    }
)
"""What each program has of its own: tools, skills, commands, switches, what git knows, offered rules."""

HISTORY = frozenset({"last_run_completion", "cwd_revision"})
"""What depends on everything that was recorded before."""

FIGURES = frozenset(
    {
        "connection_name",
        "letta_code_version",
        "lodger_version",
        "version",
        "memory_directory",
        "context_window_limit",
        "context_window",
        "max_tokens",
        "model_endpoint",
        "seq_id",
        "reason",
    }
)
"""What names the program, the machine, a place or the model's size, and why a question is asked, unless it is null.
`seq_id` is checked before."""


class BadEnvelope(AssertionError):
    """A frame breaks PROTOCOL.md 3.1."""


@dataclass
class Names:
    """The ids of one connection, in the order they came up."""

    by_id: dict[str, str] = field(default_factory=dict)
    by_name: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def take(self, frame: Frame) -> Frame:
        """The frame with names in place of ids."""
        taken = self._value(frame)
        assert isinstance(taken, dict)
        return taken

    def _value(self, value: Any) -> Any:
        match value:
            case dict():
                return {self._text(name): self._value(inner) for name, inner in value.items()}
            case list():
                return [self._value(inner) for inner in value]
            case str():
                return self._text(value)
            case _:
                return value

    def _text(self, text: str) -> str:
        return IDS.sub(
            lambda found: self._name(SAME_KIND.get(str(found.lastgroup), str(found.lastgroup)), found[0]), text
        )

    def _name(self, kind: str, identifier: str) -> str:
        if identifier not in self.by_id:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.by_id[identifier] = f"{kind}#{self.counts[kind]}"
            self.by_name[self.by_id[identifier]] = identifier
        return self.by_id[identifier]


@dataclass
class Cleaner:
    """Takes the frames one connection received, in order; what it returns still has its ids."""

    workspace: str
    event_seq: int = 0
    last_seq_ids: dict[str, int] = field(default_factory=dict)

    def take(self, frame: Frame) -> Frame:
        """Raises: BadEnvelope."""
        frame = self._without_envelope(frame)
        self._check_seq_id(frame.get("delta", {}))
        taken = self._value(frame)
        assert isinstance(taken, dict)
        return taken

    def _without_envelope(self, frame: Frame) -> Frame:
        if "event_seq" not in frame:
            return frame
        inner = dict(frame)
        self.event_seq += 1
        number, at, key = inner.pop("event_seq"), inner.pop("emitted_at"), inner.pop("idempotency_key")
        if number != self.event_seq or not TIME.fullmatch(at) or "runtime" not in inner:
            raise BadEnvelope(f"expected event {self.event_seq}: {frame}")
        if not re.fullmatch(rf"{frame['type']}:{number}:{UUID}", key):
            raise BadEnvelope(f"idempotency_key: {frame}")
        return inner

    def _check_seq_id(self, delta: Frame) -> None:
        if "seq_id" not in delta:
            return
        run_id, number = delta["run_id"], delta["seq_id"]
        if number <= self.last_seq_ids.get(run_id, 0):
            raise BadEnvelope(f"seq_id does not grow: {delta}")
        self.last_seq_ids[run_id] = number

    def _value(self, value: Any, key: str = "") -> Any:
        if key in LISTS or key in HISTORY or (key in FIGURES and value is not None):
            return f"<{key}>"
        match value:
            case dict():
                return {name: self._value(inner, name) for name, inner in value.items()}
            case list():
                return [self._value(inner) for inner in value]
            case str():
                return TIME.sub("<time>", value.replace(self.workspace, "<workspace>"))
            case _:
                return value


def named(frames: Iterable[Frame]) -> tuple[list[Frame], Names]:
    """The frames of one connection in the form that is compared."""
    names = Names()
    return [names.take(frame) for frame in condense(frames)], names


def condense(frames: Iterable[Frame]) -> list[Frame]:
    """Without what may be told more or less often: a device status that repeats the last of its conversation (but in a
    replay, where a client has asked for it), and the places where a text was cut into fragments."""
    told = list(frames)
    kept: list[Frame] = []
    devices: dict[str, Frame] = {}
    for index, frame in enumerate(told):
        if frame["type"] == "update_device_status":
            scope = str(frame["runtime"])
            if devices.get(scope) == frame and not _begins_replay(told[index + 1 : index + 4]):
                continue
            devices[scope] = frame
        joined = _joined(kept[-1], frame) if kept else None
        if joined is not None:
            kept[-1] = joined
        else:
            kept.append(frame)
    return kept


def _begins_replay(following: list[Frame]) -> bool:
    return [frame["type"] for frame in following] == ["update_loop_status", "update_queue", "update_subagent_state"]


def is_text(frame: Frame) -> bool:
    return frame.get("delta", {}).get("message_type") in ("assistant_message", "reasoning_message")


def text_of(frame: Frame) -> str:
    delta = frame["delta"]
    return str(delta["reasoning"] if "reasoning" in delta else delta["content"][0]["text"])


def _joined(last: Frame, frame: Frame) -> Frame | None:
    if not is_text(frame) or not is_text(last) or last["delta"]["otid"] != frame["delta"]["otid"]:
        return None
    text = text_of(last) + text_of(frame)
    said = {"reasoning": text} if "reasoning" in frame["delta"] else {"content": [{"type": "text", "text": text}]}
    return {**last, "delta": {**last["delta"], **said}}
