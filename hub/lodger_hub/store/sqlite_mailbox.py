"""Mail for machines in SQLite: one function per transaction."""

import sqlite3
from typing import Final

from lodger_hub.store.contract import Mail, MailboxFull, MailDraft, MailKept, MailLimits, MailState, SenderGone

COLUMNS: Final = (
    "seq, machine_id, sender_id, client_message_id, request_id, state, frame, size_bytes, "
    "posted_at_ms, settled_at_ms, reason, attempts"
)
MIB: Final = 1024 * 1024


def post(database: sqlite3.Connection, draft: MailDraft, limits: MailLimits) -> MailKept | MailboxFull | SenderGone:
    age(database, draft.posted_at_ms, limits)
    earlier = _one(database, draft)
    if earlier is not None:
        return MailKept(earlier)
    if database.execute("SELECT 1 FROM devices WHERE id = ?", (draft.sender_id,)).fetchone() is None:
        return SenderGone()
    size = len(draft.frame.encode())
    full = _full(database, draft.machine_id, size, limits)
    if full is not None:
        return full
    database.execute(
        "INSERT INTO mailbox (machine_id, sender_id, client_message_id, request_id, state, frame, size_bytes, "
        "posted_at_ms) VALUES (?, ?, ?, ?, 'waiting', ?, ?, ?)",
        (
            draft.machine_id,
            draft.sender_id,
            draft.client_message_id,
            draft.request_id,
            draft.frame,
            size,
            draft.posted_at_ms,
        ),
    )
    kept = _one(database, draft)
    assert kept is not None
    return MailKept(kept)


def _full(database: sqlite3.Connection, machine_id: str, more: int, limits: MailLimits) -> MailboxFull | None:
    count, size, total = database.execute(
        "SELECT count(*) FILTER (WHERE machine_id = ?1), "
        "coalesce(sum(size_bytes) FILTER (WHERE machine_id = ?1), 0), coalesce(sum(size_bytes), 0) "
        "FROM mailbox WHERE state = 'waiting'",
        (machine_id,),
    ).fetchone()
    if count >= limits.per_machine:
        return MailboxFull(f"{count} messages wait for that machine already; wake it, or take some back")
    if size + more > limits.per_machine_bytes:
        return MailboxFull(
            f"messages of {size / MIB:.1f} MiB wait for that machine already, and at most "
            f"{limits.per_machine_bytes / MIB:.1f} MiB may; wake it, or take some back"
        )
    if total + more > limits.total_bytes:
        return MailboxFull("the hub keeps as many waiting messages as it may; wake a machine, or take some back")
    return None


def next_waiting(database: sqlite3.Connection, machine_id: str, after_seq: int) -> Mail | None:
    row = database.execute(
        f"SELECT {COLUMNS} FROM mailbox WHERE machine_id = ? AND state = 'waiting' AND seq > ? "  # noqa: S608
        "ORDER BY seq LIMIT 1",
        (machine_id, after_seq),
    ).fetchone()
    return None if row is None else _mail(row)


def settle(database: sqlite3.Connection, seq: int, state: MailState, reason: str | None, at_ms: int) -> None:
    database.execute(
        "UPDATE mailbox SET state = ?, frame = NULL, reason = ?, settled_at_ms = ? WHERE seq = ? AND state = 'waiting'",
        (state.value, reason, at_ms, seq),
    )


def note_attempt(database: sqlite3.Connection, seq: int) -> int:
    row = database.execute(
        "UPDATE mailbox SET attempts = attempts + 1 WHERE seq = ? RETURNING attempts", (seq,)
    ).fetchone()
    return 0 if row is None else int(row[0])


def sent(database: sqlite3.Connection, machine_id: str, sender_id: str) -> list[Mail]:
    rows = database.execute(
        f"SELECT {COLUMNS} FROM mailbox WHERE machine_id = ? AND sender_id = ? ORDER BY seq",  # noqa: S608
        (machine_id, sender_id),
    )
    return [_mail(row) for row in rows]


def take_back(database: sqlite3.Connection, machine_id: str, sender_id: str, client_message_id: str) -> bool:
    return (
        database.execute(
            "DELETE FROM mailbox WHERE machine_id = ? AND sender_id = ? AND client_message_id = ? "
            "AND state = 'waiting'",
            (machine_id, sender_id, client_message_id),
        ).rowcount
        > 0
    )


def age(database: sqlite3.Connection, now_ms: int, limits: MailLimits) -> None:
    database.execute(
        "UPDATE mailbox SET state = 'expired', frame = NULL, settled_at_ms = ?, "
        "reason = 'the machine did not wake in time' WHERE state = 'waiting' AND posted_at_ms <= ?",
        (now_ms, now_ms - limits.wait_ms),
    )
    database.execute("DELETE FROM mailbox WHERE settled_at_ms <= ?", (now_ms - limits.memory_ms,))


def _one(database: sqlite3.Connection, draft: MailDraft) -> Mail | None:
    row = database.execute(
        f"SELECT {COLUMNS} FROM mailbox "  # noqa: S608
        "WHERE machine_id = ? AND sender_id = ? AND client_message_id = ?",
        (draft.machine_id, draft.sender_id, draft.client_message_id),
    ).fetchone()
    return None if row is None else _mail(row)


def _mail(row: tuple[int, str, str, str, str, str, str | None, int, int, int | None, str | None, int]) -> Mail:
    seq, machine_id, sender_id, client_message_id, request_id, state = row[:6]
    frame, size_bytes, posted_at_ms, settled_at_ms, reason, attempts = row[6:]
    return Mail(
        seq,
        machine_id,
        sender_id,
        client_message_id,
        request_id,
        MailState(state),
        frame,
        size_bytes,
        posted_at_ms,
        settled_at_ms,
        reason,
        attempts,
    )
