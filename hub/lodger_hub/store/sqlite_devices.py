"""Devices, their tokens and pairing codes in SQLite: one function per transaction."""

import sqlite3
from collections.abc import Sequence

from lodger_hub.store.contract import REVOKED_KEPT, Device, PairingCode, StoredToken, TokenRole


def tokens(database: sqlite3.Connection) -> list[StoredToken]:
    rows = database.execute("SELECT id, role, digest, created_at_ms, device_id FROM tokens ORDER BY created_at_ms, id")
    return [StoredToken(row[0], TokenRole(row[1]), row[2], row[3], row[4]) for row in rows]


def add_token(database: sqlite3.Connection, token: StoredToken) -> None:
    database.execute(
        "INSERT INTO tokens (id, role, digest, created_at_ms, device_id) VALUES (?, ?, ?, ?, ?)",
        (token.id, token.role.value, token.digest, token.created_at_ms, token.device_id),
    )


def revoke_tokens(database: sqlite3.Connection, ids: Sequence[str]) -> None:
    database.executemany("DELETE FROM tokens WHERE id = ?", [(token_id,) for token_id in ids])


def replace_tokens(database: sqlite3.Connection, token: StoredToken) -> bool:
    if database.execute("SELECT 1 FROM devices WHERE id = ?", (token.device_id,)).fetchone() is None:
        return False
    database.execute("DELETE FROM tokens WHERE device_id = ?", (token.device_id,))
    add_token(database, token)
    return True


def devices(database: sqlite3.Connection) -> list[Device]:
    rows = database.execute("SELECT id, name, role, paired_at_ms, last_seen_at_ms FROM devices ORDER BY seq")
    return [Device(row[0], row[1], TokenRole(row[2]), row[3], row[4]) for row in rows]


def add_device(database: sqlite3.Connection, device: Device) -> None:
    database.execute(
        "INSERT INTO devices (id, name, role, paired_at_ms, last_seen_at_ms) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO NOTHING",
        (device.id, device.name, device.role.value, device.paired_at_ms, device.last_seen_at_ms),
    )


def note_device_seen(database: sqlite3.Connection, device_id: str, at_ms: int) -> None:
    database.execute("UPDATE devices SET last_seen_at_ms = ? WHERE id = ?", (at_ms, device_id))


def remove_device(database: sqlite3.Connection, device_id: str, at_ms: int) -> bool:
    if database.execute("DELETE FROM devices WHERE id = ?", (device_id,)).rowcount == 0:
        return False
    cursor = database.execute("INSERT INTO revoked (device_id, at_ms) VALUES (?, ?)", (device_id, at_ms))
    database.execute("DELETE FROM revoked WHERE seq <= ?", ((cursor.lastrowid or 0) - REVOKED_KEPT,))
    return True


def revoked(database: sqlite3.Connection) -> list[str]:
    return [row[0] for row in database.execute("SELECT device_id FROM revoked ORDER BY seq")]


def add_pairing(database: sqlite3.Connection, code: PairingCode, keep: int) -> None:
    database.execute("DELETE FROM pairings WHERE expires_at_ms <= ?", (code.made_at_ms,))
    database.execute(
        "INSERT INTO pairings (digest, role, made_at_ms, expires_at_ms) VALUES (?, ?, ?, ?)",
        (code.digest, code.role.value, code.made_at_ms, code.expires_at_ms),
    )
    database.execute(
        "DELETE FROM pairings WHERE digest NOT IN "
        "(SELECT digest FROM pairings ORDER BY made_at_ms DESC, rowid DESC LIMIT ?)",
        (keep,),
    )


def redeem_pairing(
    database: sqlite3.Connection, digest: bytes, device: Device, token: StoredToken, now_ms: int
) -> TokenRole | None:
    """The role of the code that was used up."""
    found = database.execute(
        "DELETE FROM pairings WHERE digest = ? AND expires_at_ms > ? RETURNING role", (digest, now_ms)
    ).fetchone()
    if found is None:
        return None
    role = TokenRole(found[0])
    add_device(database, Device(device.id, device.name, role, device.paired_at_ms, device.last_seen_at_ms))
    add_token(database, StoredToken(token.id, role, token.digest, token.created_at_ms, device.id))
    return role
