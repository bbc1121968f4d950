"""Questions asked of the person: durable before they are shown, settled once.

ask(connection, question)                                     raises StateConflict when one is open for the call or id
open_one(connection, key, question_id) -> StoredQuestion | None
open_ones(connection, key=None) -> tuple[StoredQuestion, ...]           oldest first, of one conversation or all
settle(connection, number, settlement, now) -> bool                     False when it is no longer open
latest_for(connection, call) -> StoredQuestion | None                   with its settlement, if any
"""

import sqlite3
from dataclasses import dataclass
from typing import Any, cast

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, CallKey, ConversationId, ConversationKey, QuestionId, RunId, ToolCallId
from lodger_daemon.questions.core.rules import QuestionStatus, Settlement
from lodger_daemon.store import conversation_rows
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.store.json_column import object_from_column, to_column
from lodger_daemon.turns.contract import Allow, Answer, Deny
from lodger_daemon.turns.core.events import FilePreview, PermissionSuggestion, QuestionAsked
from lodger_tools.box.contract import PinnedFile
from lodger_tools.json_value import Json, JsonObject

_SELECT = (
    "SELECT q.number, v.agent_id, v.conversation_id, q.question_id, q.run_id, q.tool_call_id, q.tool_name, q.input, "
    "q.arguments_digest, q.display, q.status, q.answer, q.approved_digest, q.asked_at, q.expires_at "
    "FROM questions q JOIN conversations v ON v.number = q.conversation"
)


@dataclass(frozen=True, slots=True)
class NewQuestion:
    conversation: ConversationKey
    asked: QuestionAsked
    """With `expires_at`; its `input` is an object."""
    arguments_digest: str
    asked_at: WallTime
    expires_at: WallTime
    pinned: tuple[PinnedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    number: int
    conversation: ConversationKey
    asked: QuestionAsked
    arguments: JsonObject
    arguments_digest: str
    settlement: Settlement | None
    """None while it is open."""
    asked_at: WallTime
    expires_at: WallTime
    pinned: tuple[PinnedFile, ...] = ()
    """What the asked arguments would run."""

    @property
    def call(self) -> CallKey:
        return CallKey(self.conversation, self.asked.run_id, self.asked.tool_call_id)


def ask(connection: sqlite3.Connection, question: NewQuestion) -> int:
    """The number of the row. Raises: StateConflict, UnknownRow."""
    asked = question.asked
    conversation = conversation_rows.required(connection, question.conversation)
    try:
        cursor = connection.execute(
            "INSERT INTO questions (conversation, question_id, run_id, tool_call_id, tool_name, input, "
            "arguments_digest, display, status, asked_at, expires_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'open', ?, ?)",
            (
                conversation,
                asked.question_id,
                asked.run_id,
                asked.tool_call_id,
                asked.tool_name,
                to_column(asked.input),
                question.arguments_digest,
                to_column({**_display(asked), "pinned": _pinned_column(question.pinned)}),
                question.asked_at,
                question.expires_at,
            ),
        )
    except sqlite3.IntegrityError as error:
        if "questions.question_id" in str(error) or "questions.tool_call_id" in str(error):
            raise StateConflict(f"a question about {asked.tool_call_id} is open already") from error
        raise
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def open_one(connection: sqlite3.Connection, key: ConversationKey, question_id: QuestionId) -> StoredQuestion | None:
    row = connection.execute(
        f"{_SELECT} WHERE q.conversation = ? AND q.question_id = ? AND q.status = 'open'",
        (conversation_rows.number_of(connection, key), question_id),
    ).fetchone()
    return _from_row(row) if row else None


def open_ones(connection: sqlite3.Connection, key: ConversationKey | None = None) -> tuple[StoredQuestion, ...]:
    if key is None:
        # The plus keeps SQLite from walking the whole past in row order instead of the small index of open ones.
        rows = connection.execute(f"{_SELECT} WHERE q.status = 'open' ORDER BY +q.number")
    else:
        rows = connection.execute(
            f"{_SELECT} WHERE q.status = 'open' AND q.conversation = ? ORDER BY q.number",
            (conversation_rows.number_of(connection, key),),
        )
    return tuple(_from_row(row) for row in rows)


def settle(connection: sqlite3.Connection, number: int, settlement: Settlement, now: WallTime) -> bool:
    """The one change a question allows; whoever comes second gets False and has no effect."""
    cursor = connection.execute(
        "UPDATE questions SET status = ?, answer = ?, approved_digest = ?, settled_at = ? "
        "WHERE number = ? AND status = 'open'",
        (
            settlement.status,
            to_column(_answer_column(settlement)) if settlement.answer is not None else None,
            settlement.approved_digest,
            now,
            number,
        ),
    )
    return cursor.rowcount == 1


def latest_for(connection: sqlite3.Connection, call: CallKey) -> StoredQuestion | None:
    """The last question about this call; a person's changed input may have raised a second one."""
    row = connection.execute(
        f"{_SELECT} WHERE q.conversation = ? AND q.run_id = ? AND q.tool_call_id = ? ORDER BY q.number DESC LIMIT 1",
        (conversation_rows.number_of(connection, call.conversation), call.run_id, call.tool_call_id),
    ).fetchone()
    return _from_row(row) if row else None


def _display(asked: QuestionAsked) -> JsonObject:
    return {
        "reason": asked.reason,
        "suggestions": [[suggestion.id, suggestion.text] for suggestion in asked.suggestions],
        "previews": [
            [preview.file_name, list(preview.hunks) if preview.hunks is not None else None, preview.reason]
            for preview in asked.previews
        ],
    }


def _answer_column(settlement: Settlement) -> JsonObject:
    match settlement.answer:
        case Allow() as answer:
            return {
                "behavior": "allow",
                "message": answer.message,
                "updated_input": answer.updated_input,
                "suggestion_ids": list(answer.suggestion_ids),
                "pinned": _pinned_column(settlement.pinned),
            }
        case Deny() as answer:
            return {"behavior": "deny", "message": answer.message}
        case None:
            return {}


def _pinned_column(pinned: tuple[PinnedFile, ...]) -> list[Json]:
    return [[file.path, file.mark] for file in pinned]


def _pinned(stored: dict[str, Any]) -> tuple[PinnedFile, ...]:
    return tuple(PinnedFile(path, mark) for path, mark in stored.get("pinned", ()))


def _answer(stored: dict[str, Any]) -> Answer:
    if stored["behavior"] == "deny":
        return Deny(stored["message"])
    return Allow(stored["message"], stored["updated_input"], tuple(stored["suggestion_ids"]))


def _from_row(row: tuple[Any, ...]) -> StoredQuestion:
    (number, agent_id, conversation_id, question_id, run_id, tool_call_id, tool_name, arguments, digest, display,
     status, answer, approved_digest, asked_at, expires_at) = row  # fmt: skip
    shown = cast("dict[str, Any]", object_from_column(display))
    parsed = object_from_column(arguments)
    asked = QuestionAsked(
        question_id=QuestionId(question_id),
        run_id=RunId(run_id),
        tool_call_id=ToolCallId(tool_call_id),
        tool_name=tool_name,
        input=parsed,
        suggestions=tuple(PermissionSuggestion(id_, text) for id_, text in shown["suggestions"]),
        previews=tuple(
            FilePreview(name, tuple(hunks) if hunks is not None else None, reason)
            for name, hunks, reason in shown["previews"]
        ),
        reason=shown["reason"],
        expires_at=expires_at,
    )
    settlement = None
    if status != QuestionStatus.OPEN:
        stored = cast("dict[str, Any]", object_from_column(answer)) if answer is not None else None
        given = _answer(stored) if stored is not None else None
        settlement = Settlement(QuestionStatus(status), given, approved_digest, _pinned(stored or {}))
    return StoredQuestion(
        number=number,
        conversation=ConversationKey(AgentId(agent_id), ConversationId(conversation_id)),
        asked=asked,
        arguments=parsed,
        arguments_digest=digest,
        settlement=settlement,
        asked_at=asked_at,
        expires_at=expires_at,
        pinned=_pinned(shown),
    )
