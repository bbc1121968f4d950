"""The embedded engine of `HubStore`: one SQLite file, used by one thread of its own."""

import asyncio
import json
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self, TypeVar

from lodger_hub.errors import StoreFailed
from lodger_hub.store import sqlite_devices, sqlite_mailbox
from lodger_hub.store.contract import (
    AuditEntry,
    Device,
    Environment,
    MachineTaken,
    Mail,
    MailboxFull,
    MailDraft,
    MailKept,
    MailLimits,
    MailState,
    PairingCode,
    Registration,
    SenderGone,
    StoredToken,
    TokenRole,
    TokenTaken,
)
from lodger_hub.store.schema import connect

T = TypeVar("T")

AUDIT_ROWS_KEPT: Final = 10_000

ENVIRONMENT_COLUMNS: Final = (
    "id, connection_id, device_id, connection_name, listener_instance_id, metadata, "
    "first_seen_at_ms, last_seen_at_ms, connected_at_ms, last_heartbeat_at_ms, memory_synced_at_ms, bound_to"
)


class SqliteHubStore:
    """Implements `HubStore`. Open it with `open`; nothing else may write the file meanwhile."""

    def __init__(self, database: sqlite3.Connection, thread: ThreadPoolExecutor, file: Path) -> None:
        self._database = database
        self._thread = thread
        self._file = file
        self._closed = False

    @classmethod
    async def open(cls, file: Path) -> Self:
        """Raises: StoreFailed."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="hub-store")
        try:
            database = await asyncio.get_running_loop().run_in_executor(thread, connect, file)
        except (sqlite3.Error, OSError) as error:
            thread.shutdown(wait=False)
            raise StoreFailed(file, str(error)) from error
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(database, thread, file)

    async def register(self, registration: Registration, at_ms: int) -> Environment | MachineTaken | TokenTaken:
        def work(database: sqlite3.Connection) -> Environment | MachineTaken | TokenTaken:
            taken = _taken(database, registration)
            if taken is not None:
                return taken
            database.execute(
                "INSERT INTO environments (id, connection_id, device_id, connection_name, listener_instance_id, "
                "metadata, first_seen_at_ms, last_seen_at_ms, bound_to) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (device_id) DO UPDATE SET connection_id = excluded.connection_id, "
                "connection_name = excluded.connection_name, listener_instance_id = excluded.listener_instance_id, "
                "metadata = excluded.metadata, last_seen_at_ms = excluded.last_seen_at_ms, "
                "bound_to = coalesce(excluded.bound_to, bound_to)",
                (
                    f"environment-{uuid.uuid4()}",
                    registration.connection_id,
                    registration.device_id,
                    registration.connection_name,
                    registration.listener_instance_id,
                    json.dumps(registration.metadata),
                    at_ms,
                    at_ms,
                    None if registration.bond is None else registration.bond.device_id,
                ),
            )
            found = _one(database, "connection_id = ?", registration.connection_id)
            assert found is not None
            return found

        return await self._run(work)

    async def release(self, machine_id: str) -> bool:
        def work(database: sqlite3.Connection) -> bool:
            released = database.execute("UPDATE environments SET bound_to = NULL WHERE device_id = ?", (machine_id,))
            return released.rowcount > 0

        return await self._run(work)

    async def by_connection(self, connection_id: str) -> Environment | None:
        return await self._run(lambda database: _one(database, "connection_id = ?", connection_id))

    async def by_device(self, device_id: str) -> Environment | None:
        return await self._run(lambda database: _one(database, "device_id = ?", device_id))

    async def environments(self, limit: int, after: str | None) -> Sequence[Environment]:
        def work(database: sqlite3.Connection) -> list[Environment]:
            behind = "seq > (SELECT seq FROM environments WHERE id = ?)" if after is not None else "? IS NULL"
            rows = database.execute(
                f"SELECT {ENVIRONMENT_COLUMNS} FROM environments WHERE {behind} ORDER BY seq LIMIT ?",  # noqa: S608
                (after, limit),
            )
            return [_environment(row) for row in rows]

        return await self._run(work)

    async def note_contact(self, connection_id: str, at_ms: int, *, connected: bool = False) -> None:
        def work(database: sqlite3.Connection) -> None:
            database.execute(
                "UPDATE environments SET last_heartbeat_at_ms = ?, last_seen_at_ms = ?, "
                "connected_at_ms = CASE WHEN ? THEN ? ELSE connected_at_ms END WHERE connection_id = ?",
                (at_ms, at_ms, connected, at_ms, connection_id),
            )

        await self._run(work)

    async def note_memory_sync(self, connection_id: str, at_ms: int) -> None:
        def work(database: sqlite3.Connection) -> None:
            database.execute(
                "UPDATE environments SET memory_synced_at_ms = max(coalesce(memory_synced_at_ms, 0), ?) "
                "WHERE connection_id = ?",
                (at_ms, connection_id),
            )

        await self._run(work)

    async def tokens(self) -> Sequence[StoredToken]:
        return await self._run(sqlite_devices.tokens)

    async def add_token(self, token: StoredToken) -> None:
        await self._run(lambda database: sqlite_devices.add_token(database, token))

    async def revoke_tokens(self, ids: Sequence[str]) -> None:
        await self._run(lambda database: sqlite_devices.revoke_tokens(database, ids))

    async def replace_tokens(self, token: StoredToken) -> bool:
        return await self._run(lambda database: sqlite_devices.replace_tokens(database, token))

    async def devices(self) -> Sequence[Device]:
        return await self._run(sqlite_devices.devices)

    async def add_device(self, device: Device) -> None:
        await self._run(lambda database: sqlite_devices.add_device(database, device))

    async def note_device_seen(self, device_id: str, at_ms: int) -> None:
        await self._run(lambda database: sqlite_devices.note_device_seen(database, device_id, at_ms))

    async def remove_device(self, device_id: str, at_ms: int) -> bool:
        return await self._run(lambda database: sqlite_devices.remove_device(database, device_id, at_ms))

    async def revoked_devices(self) -> Sequence[str]:
        return await self._run(sqlite_devices.revoked)

    async def add_pairing(self, code: PairingCode, keep: int) -> None:
        await self._run(lambda database: sqlite_devices.add_pairing(database, code, keep))

    async def redeem_pairing(self, digest: bytes, device: Device, token: StoredToken, now_ms: int) -> TokenRole | None:
        return await self._run(lambda database: sqlite_devices.redeem_pairing(database, digest, device, token, now_ms))

    async def post_mail(self, draft: MailDraft, limits: MailLimits) -> MailKept | MailboxFull | SenderGone:
        return await self._run(lambda database: sqlite_mailbox.post(database, draft, limits))

    async def next_mail(self, machine_id: str, after_seq: int) -> Mail | None:
        return await self._run(lambda database: sqlite_mailbox.next_waiting(database, machine_id, after_seq))

    async def settle_mail(self, seq: int, state: MailState, reason: str | None, at_ms: int) -> None:
        await self._run(lambda database: sqlite_mailbox.settle(database, seq, state, reason, at_ms))

    async def note_mail_attempt(self, seq: int) -> int:
        return await self._run(lambda database: sqlite_mailbox.note_attempt(database, seq))

    async def sent_mail(self, machine_id: str, sender_id: str) -> Sequence[Mail]:
        return await self._run(lambda database: sqlite_mailbox.sent(database, machine_id, sender_id))

    async def take_mail_back(self, machine_id: str, sender_id: str, client_message_id: str) -> bool:
        return await self._run(
            lambda database: sqlite_mailbox.take_back(database, machine_id, sender_id, client_message_id)
        )

    async def age_mail(self, now_ms: int, limits: MailLimits) -> None:
        await self._run(lambda database: sqlite_mailbox.age(database, now_ms, limits))

    async def record(self, entry: AuditEntry) -> None:
        def work(database: sqlite3.Connection) -> None:
            cursor = database.execute(
                "INSERT INTO audit (at_ms, event, source, subject) VALUES (?, ?, ?, ?)",
                (entry.at_ms, entry.event, entry.source, entry.subject),
            )
            database.execute("DELETE FROM audit WHERE seq <= ?", ((cursor.lastrowid or 0) - AUDIT_ROWS_KEPT,))

        await self._run(work)

    async def audit(self, limit: int) -> Sequence[AuditEntry]:
        def work(database: sqlite3.Connection) -> list[AuditEntry]:
            rows = database.execute(
                "SELECT at_ms, event, source, subject FROM audit ORDER BY seq DESC LIMIT ?", (limit,)
            )
            return [AuditEntry(*row) for row in rows]

        return await self._run(work)

    async def aclose(self) -> None:
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in one transaction on the store's thread."""

        def transaction() -> T:
            with self._database:
                return work(self._database)

        if self._closed:
            raise StoreFailed(self._file, "it is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, transaction)
        except sqlite3.Error as error:
            raise StoreFailed(self._file, str(error)) from error


def _one(database: sqlite3.Connection, condition: str, value: str) -> Environment | None:
    row = database.execute(
        f"SELECT {ENVIRONMENT_COLUMNS} FROM environments WHERE {condition}",  # noqa: S608 - the condition is ours
        (value,),
    ).fetchone()
    return None if row is None else _environment(row)


def _taken(database: sqlite3.Connection, registration: Registration) -> MachineTaken | TokenTaken | None:
    """What stands against this registration. An id that is bound to nobody is free."""
    bond = registration.bond
    if bond is None:
        return None
    row = database.execute(
        "SELECT d.name FROM environments e JOIN devices d ON d.id = e.bound_to "
        "WHERE e.device_id = ? AND e.bound_to <> ?",
        (registration.device_id, bond.device_id),
    ).fetchone()
    if row is not None:
        return MachineTaken(row[0])
    if not bond.one_machine:
        return None
    row = database.execute(
        "SELECT device_id, connection_name FROM environments WHERE bound_to = ? AND device_id <> ?",
        (bond.device_id, registration.device_id),
    ).fetchone()
    return None if row is None else TokenTaken(*row)


def _environment(
    row: tuple[str, str, str, str, str | None, str, int, int, int | None, int | None, int | None, str | None],
) -> Environment:
    return Environment(
        id=row[0],
        connection_id=row[1],
        device_id=row[2],
        connection_name=row[3],
        listener_instance_id=row[4],
        metadata=json.loads(row[5]),
        first_seen_at_ms=row[6],
        last_seen_at_ms=row[7],
        connected_at_ms=row[8],
        last_heartbeat_at_ms=row[9],
        memory_synced_at_ms=row[10],
        bound_to=row[11],
    )
