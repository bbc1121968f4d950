"""A file of an agent or a conversation read back.

It is somebody else's bytes: everything in it is checked before anything is stored, fields that mean nothing here
are left out, and what was true of another machine (reminders, signatures of providers) is not taken over.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from lodger_daemon.backends.core.images import without_faulty
from lodger_daemon.backends.core.portable import (
    CONVERSATIONS_LIMIT,
    VERSION,
    Portable,
    PortableAgent,
    PortableConversation,
)
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import MessageId, RunId, ToolCallId
from lodger_tools.json_value import Json, JsonObject

LINE_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""Twice what one input may have on the wire."""
MESSAGES_LIMIT: Final = 200_000
"""Stored in one commit, which takes some seconds at this size."""
FILE_LIMIT_BYTES: Final = 512 * 1024 * 1024
TEXT_LIMIT_CHARACTERS: Final = 200_000
"""Of an agent's instructions; other texts about an agent or a conversation are shorter."""
SHORT_LIMIT_CHARACTERS: Final = 2_000
TAGS_LIMIT: Final = 100
DEPTH_LIMIT: Final = 32
"""Of lists and objects in a message's parts. Some hundred can be read in one place and not in another, where more of
the stack is in use: such a conversation could be imported and never opened."""
LATEST: Final = 4_102_444_800.0
"""The year 2100: no message is from later."""

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_AGENT_ID: Final = re.compile(r"agent-(?!local-)[A-Za-z0-9-]{1,100}")
_CONVERSATION_ID: Final = re.compile(r"default|conv-[A-Za-z0-9-]{1,100}")


class NotPortable(ValueError):
    """The file cannot be read; the text names the line and what is wrong with it. Nothing was stored."""


def read_portable(lines: Iterable[bytes]) -> Portable:
    """The whole file, checked.

    Args:
        lines: with their line feeds; a longer one than LINE_LIMIT_BYTES may come cut, and is refused.
    Raises: NotPortable.
    """
    reader = _Reader()
    for line in lines:
        reader.take(line)
    return reader.finished()


@dataclass(slots=True)
class _Draft:
    """A conversation whose messages are being read."""

    conversation: PortableConversation
    messages: list[TranscriptMessage] = field(default_factory=list)


@dataclass(slots=True)
class _Reader:
    number: int = 0
    size_bytes: int = 0
    messages: int = 0
    agent: PortableAgent | None = None
    drafts: list[_Draft] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    results: set[tuple[int, str, str]] = field(default_factory=set)
    ended: bool = False
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def take(self, line: bytes) -> None:
        self.number += 1
        self.size_bytes += len(line)
        if len(line) > LINE_LIMIT_BYTES:
            self.refuse(f"is longer than {LINE_LIMIT_BYTES} bytes")
        if self.size_bytes > FILE_LIMIT_BYTES:
            self.refuse(f"is beyond the largest file that is taken, {FILE_LIMIT_BYTES} bytes")
        if self.ended:
            self.refuse("comes after the end")
        fields = self.parsed(line)
        if fields.get("type") == "end":
            self.end(fields)
            return
        self.digest.update(line)
        if (self.number == 1) != (fields.get("type") == "lodger_export"):
            self.refuse("is not where it belongs: a file begins with its one `lodger_export` line")
        match fields.get("type"):
            case "lodger_export":
                if fields.get("version") != VERSION:
                    self.refuse(f"has version {str(fields.get('version'))[:40]}; this Lodger reads version {VERSION}")
            case "agent":
                self.take_agent(fields)
            case "conversation":
                self.take_conversation(fields)
            case "message":
                self.take_message(fields)
            case other:
                self.refuse(f"has a type that is not known: {str(other)[:40]!r}")

    def finished(self) -> Portable:
        if not self.ended:
            self.number += 1
            self.refuse("is missing: the file was cut off")
        return Portable(self.agent, tuple(self.whole(draft) for draft in self.drafts))

    def refuse(self, what: str) -> NoReturn:
        raise NotPortable(f"Line {self.number} {what}.")

    def parsed(self, line: bytes) -> JsonObject:
        try:
            value: Json = json.loads(line, parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError):
            self.refuse("is not JSON")
        if not isinstance(value, dict):
            self.refuse("is not a JSON object")
        return value

    def end(self, fields: JsonObject) -> None:
        counts = (fields.get("conversations"), fields.get("messages"), fields.get("sha256"))
        if counts != (len(self.drafts), self.messages, self.digest.hexdigest()):
            self.refuse("does not fit what is before it: the file was changed or lost lines")
        self.ended = True

    def take_agent(self, fields: JsonObject) -> None:
        if self.agent is not None or self.drafts:
            self.refuse("is not where it belongs: one agent at most, before its conversations")
        self.agent = PortableAgent(
            id=self.named(fields, "id", _AGENT_ID),
            name=self.text(fields, "name", SHORT_LIMIT_CHARACTERS),
            description=self.text(fields, "description", TEXT_LIMIT_CHARACTERS),
            model=self.text(fields, "model", SHORT_LIMIT_CHARACTERS),
            system=self.text(fields, "system", TEXT_LIMIT_CHARACTERS),
            tags=self.tags(fields),
            hidden=self.truth(fields, "hidden"),
            created_at=self.instant(fields, "created_at"),
        )

    def take_conversation(self, fields: JsonObject) -> None:
        if len(self.drafts) >= CONVERSATIONS_LIMIT:
            self.refuse(f"is one conversation too many; {CONVERSATIONS_LIMIT} are taken")
        in_context = fields.get("in_context")
        if not isinstance(in_context, list):
            self.refuse("has no list `in_context`")
        conversation = PortableConversation(
            id=self.named(fields, "id", _CONVERSATION_ID),
            summary=self.text_or_none(fields, "summary"),
            tags=self.tags(fields),
            model=self.text_or_none(fields, "model"),
            hidden=self.truth(fields, "hidden"),
            archived_at=self.instant_or_none(fields, "archived_at"),
            created_at=self.instant(fields, "created_at"),
            last_message_at=self.instant_or_none(fields, "last_message_at"),
            in_context=tuple(MessageId(str(one)) for one in in_context),
        )
        if any(draft.conversation.id == conversation.id for draft in self.drafts):
            self.refuse(f"is a second conversation {conversation.id}")
        self.drafts.append(_Draft(conversation))

    def take_message(self, fields: JsonObject) -> None:
        if not self.drafts:
            self.refuse("is a message before the first conversation")
        self.messages += 1
        if self.messages > MESSAGES_LIMIT:
            self.refuse(f"is one message too many; {MESSAGES_LIMIT} are taken")
        message_id = self.named(fields, "id", _ID)
        if message_id in self.ids:
            self.refuse(f"is a second message {message_id}")
        self.ids.add(message_id)
        kind, content = fields.get("kind"), fields.get("content")
        if kind not in list(MessageKind) or not isinstance(content, dict):
            self.refuse("has no `content` object or a `kind` that is not known")
        run_id, tool_call_id = self.text_or_none(fields, "run_id"), self.text_or_none(fields, "tool_call_id")
        message = TranscriptMessage(
            message_id=MessageId(message_id),
            kind=MessageKind(str(kind)),
            content=self.content(MessageKind(str(kind)), content),
            created_at=self.instant(fields, "created_at"),
            run_id=RunId(run_id) if run_id is not None else None,
            tool_call_id=ToolCallId(tool_call_id) if tool_call_id is not None else None,
            otid=self.text_or_none(fields, "otid"),
        )
        self.check_result(message)
        self.drafts[-1].messages.append(message)

    def check_result(self, message: TranscriptMessage) -> None:
        if message.kind is not MessageKind.TOOL:
            if message.tool_call_id is not None:
                self.refuse("has a `tool_call_id` but is no result")
            return
        if message.run_id is None or message.tool_call_id is None:
            self.refuse("is a result without `run_id` or `tool_call_id`")
        result = (len(self.drafts), message.run_id, message.tool_call_id)
        if result in self.results:
            self.refuse("is a second result of one call")
        self.results.add(result)

    def content(self, kind: MessageKind, content: JsonObject) -> JsonObject:
        match kind:
            case MessageKind.USER:
                return {"content": self.said(content.get("content")), "client_message_ids": []}
            case MessageKind.ASSISTANT:
                kept: JsonObject = {"text": self.long_text(content, "text")}
                if content.get("reasoning"):
                    kept["reasoning"] = self.long_text(content, "reasoning")
                if calls := content.get("tool_calls"):
                    kept["tool_calls"] = self.calls(calls)
                return kept
            case MessageKind.TOOL:
                status = content.get("status")
                return {
                    "status": "success" if status == "success" else "error",
                    "text": self.long_text(content, "text"),
                }
            case MessageKind.SUMMARY:
                hidden = content.get("hidden")
                count = hidden if isinstance(hidden, int) and not isinstance(hidden, bool) and hidden >= 0 else 0
                return {"text": self.long_text(content, "text"), "hidden": count}

    def said(self, value: Json) -> Json:
        is_parts = isinstance(value, list) and all(isinstance(part, dict) and part.get("type") for part in value)
        if not is_parts and not isinstance(value, str):
            self.refuse("is a person's message whose content is neither a text nor a list of parts")
        if is_deeper_than(value, DEPTH_LIMIT):
            self.refuse(f"is a person's message with parts nested deeper than {DEPTH_LIMIT} levels")
        return without_faulty(value)

    def calls(self, value: Json) -> list[Json]:
        calls: list[Json] = []
        for call in value if isinstance(value, list) else [None]:
            texts = [call.get(name) for name in ("id", "name", "arguments")] if isinstance(call, dict) else [None]
            if not all(isinstance(text, str) for text in texts):
                self.refuse("has a tool call without the texts `id`, `name` and `arguments`")
            calls.append(dict(zip(("id", "name", "arguments"), texts, strict=True)))
        return calls

    def whole(self, draft: _Draft) -> PortableConversation:
        known = {message.message_id for message in draft.messages}
        in_context = draft.conversation.in_context
        if len(set(in_context)) != len(in_context) or not known.issuperset(in_context):
            raise NotPortable(
                f"Conversation {draft.conversation.id} names messages in `in_context` that it does not have."
            )
        return replace(draft.conversation, messages=tuple(draft.messages))

    def named(self, fields: JsonObject, name: str, pattern: re.Pattern[str]) -> str:
        value = fields.get(name)
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            self.refuse(f"has no usable `{name}`")
        return value

    def long_text(self, fields: JsonObject, name: str) -> str:
        """Bounded by its line."""
        value = fields.get(name)
        if not isinstance(value, str):
            self.refuse(f"has no text `{name}`")
        return value

    def text(self, fields: JsonObject, name: str, limit: int) -> str:
        value = fields.get(name)
        if not isinstance(value, str) or len(value) > limit:
            self.refuse(f"has no text `{name}` of at most {limit} characters")
        return value.encode("utf-8", "replace").decode()

    def text_or_none(self, fields: JsonObject, name: str) -> str | None:
        return None if fields.get(name) is None else self.text(fields, name, SHORT_LIMIT_CHARACTERS)

    def tags(self, fields: JsonObject) -> tuple[str, ...]:
        value = fields.get("tags")
        if not isinstance(value, list) or len(value) > TAGS_LIMIT:
            self.refuse(f"has no list `tags` of at most {TAGS_LIMIT} texts")
        return tuple(self.text({"tag": one}, "tag", SHORT_LIMIT_CHARACTERS) for one in value)

    def truth(self, fields: JsonObject, name: str) -> bool:
        value = fields.get(name)
        if not isinstance(value, bool):
            self.refuse(f"has no true or false `{name}`")
        return value

    def instant(self, fields: JsonObject, name: str) -> WallTime:
        value = fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(f"has no number `{name}`")
        if not 0 <= value <= LATEST:
            self.refuse(f"has a `{name}` that is no time")
        return WallTime(float(value))

    def instant_or_none(self, fields: JsonObject, name: str) -> WallTime | None:
        return None if fields.get(name) is None else self.instant(fields, name)


def is_deeper_than(value: Json, levels: int) -> bool:
    """Without recursion, which is what such a value exhausts."""
    row: list[Json] = [value]
    while row and levels >= 0:
        levels -= 1
        row = [
            inner
            for one in row
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(row)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:40]} is no number")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
