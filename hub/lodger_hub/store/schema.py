"""The tables of the embedded engine, and how an older file becomes a newer one."""

import sqlite3
from pathlib import Path
from typing import Final

SCHEMA_VERSION: Final = 4

FIRST: Final = """
CREATE TABLE environments (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    connection_id TEXT NOT NULL UNIQUE,
    device_id TEXT NOT NULL UNIQUE,
    connection_name TEXT NOT NULL,
    listener_instance_id TEXT,
    metadata TEXT NOT NULL,
    first_seen_at_ms INTEGER NOT NULL,
    last_seen_at_ms INTEGER NOT NULL,
    connected_at_ms INTEGER,
    last_heartbeat_at_ms INTEGER
) STRICT;
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('machine', 'client')),
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    event TEXT NOT NULL,
    source TEXT NOT NULL
) STRICT;
"""

# The two tokens of an older file are in private files and are taken up again by `prepare_tokens`.
SECOND: Final = """
ALTER TABLE environments ADD COLUMN memory_synced_at_ms INTEGER;
CREATE TABLE devices (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('machine', 'client')),
    paired_at_ms INTEGER NOT NULL,
    last_seen_at_ms INTEGER
) STRICT;
DROP TABLE tokens;
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('machine', 'client')),
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    created_at_ms INTEGER NOT NULL,
    device_id TEXT NOT NULL REFERENCES devices (id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE TABLE pairings (
    digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
    role TEXT NOT NULL CHECK (role IN ('machine', 'client')),
    made_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE mailbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    machine_id TEXT NOT NULL REFERENCES environments (device_id) ON DELETE CASCADE,
    sender_id TEXT NOT NULL REFERENCES devices (id) ON DELETE CASCADE,
    client_message_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'refused', 'expired')),
    frame TEXT CHECK ((state = 'waiting') = (frame IS NOT NULL)),
    size_bytes INTEGER NOT NULL,
    posted_at_ms INTEGER NOT NULL,
    settled_at_ms INTEGER CHECK ((state = 'waiting') = (settled_at_ms IS NULL)),
    reason TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    UNIQUE (machine_id, sender_id, client_message_id)
) STRICT;
CREATE INDEX mailbox_waiting ON mailbox (machine_id, seq) WHERE state = 'waiting';
"""

THIRD: Final = """
CREATE TABLE revoked (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    device_id TEXT NOT NULL UNIQUE,
    at_ms INTEGER NOT NULL
) STRICT;
ALTER TABLE environments ADD COLUMN bound_to TEXT REFERENCES devices (id) ON DELETE SET NULL;
CREATE INDEX environments_by_bond ON environments (bound_to) WHERE bound_to IS NOT NULL;
"""
"""`bound_to` is the device whose token may register that machine; the first to come decides where it is empty."""

FOURTH: Final = """
ALTER TABLE audit ADD COLUMN subject TEXT NOT NULL DEFAULT '';
"""

STEPS: Final = (FIRST, SECOND, THIRD, FOURTH)


def connect(file: Path) -> sqlite3.Connection:
    """Open the file, and bring it up to date. Raises: sqlite3.Error, OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    database = sqlite3.connect(file, check_same_thread=False, timeout=5.0)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA foreign_keys = ON")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise OSError(f"it was written by a newer hub (schema {version}, this one knows {SCHEMA_VERSION})")
        for number, step in enumerate(STEPS[version:], version + 1):
            database.executescript(f"BEGIN; {step} PRAGMA user_version = {number}; COMMIT;")
    except BaseException:
        database.close()
        raise
    return database
