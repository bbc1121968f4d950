"""Schema version 1. Illegal states are made impossible here, not in the code that writes.

Times are wall seconds (REAL). JSON columns hold JSON text. `conversation` columns hold `conversations.number`, a small
integer, because events and messages are many. Refusals of triggers begin with `illegal:`.
"""

from typing import Final

_OWNERSHIP: Final = """
CREATE TABLE ownership (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL CHECK (epoch >= 0),
    pid INTEGER NOT NULL,
    since REAL NOT NULL
) STRICT
"""

_AGENTS: Final = """
CREATE TABLE agents (
    agent_id TEXT PRIMARY KEY CHECK (agent_id GLOB 'agent-?*'),
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    model TEXT NOT NULL,
    system TEXT NOT NULL,
    tags TEXT NOT NULL CHECK (json_type(tags) = 'array'),
    hidden INTEGER NOT NULL CHECK (hidden IN (0, 1)),
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    last_run_completion REAL
) STRICT, WITHOUT ROWID
"""

_CONVERSATIONS: Final = """
CREATE TABLE conversations (
    number INTEGER PRIMARY KEY,
    agent_id TEXT NOT NULL,
    conversation_id TEXT NOT NULL CHECK (conversation_id <> ''),
    summary TEXT,
    tags TEXT NOT NULL DEFAULT '[]' CHECK (json_type(tags) = 'array'),
    model TEXT,
    hidden INTEGER NOT NULL DEFAULT 0 CHECK (hidden IN (0, 1)),
    mode TEXT CHECK (mode IN ('strict', 'standard', 'acceptEdits', 'unrestricted')),
    cwd TEXT,
    cwd_revision INTEGER NOT NULL DEFAULT 0 CHECK (cwd_revision >= 0),
    system_prompt TEXT,
    toolset TEXT NOT NULL DEFAULT '[]' CHECK (json_type(toolset) = 'array'),
    shown_memory_commit TEXT,
    reserved_event_number INTEGER NOT NULL DEFAULT 0 CHECK (reserved_event_number >= 0),
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    last_message_at REAL,
    archived_at REAL,
    UNIQUE (agent_id, conversation_id)
) STRICT
"""

_TURNS: Final = """
CREATE TABLE turns (
    turn_id TEXT PRIMARY KEY CHECK (turn_id <> ''),
    conversation INTEGER NOT NULL REFERENCES conversations (number),
    cause TEXT NOT NULL CHECK (cause <> ''),
    status TEXT NOT NULL CHECK (status IN ('active', 'finished')),
    stop_reason TEXT,
    run_id TEXT,
    error TEXT,
    started_at REAL NOT NULL,
    ended_at REAL,
    CHECK ((status = 'finished') = (ended_at IS NOT NULL)),
    CHECK ((status = 'finished') = (stop_reason IS NOT NULL))
) STRICT, WITHOUT ROWID
"""

_RUNS: Final = """
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY CHECK (run_id <> ''),
    conversation INTEGER NOT NULL REFERENCES conversations (number),
    turn_id TEXT NOT NULL REFERENCES turns (turn_id),
    status TEXT NOT NULL CHECK (status IN ('active', 'completed', 'failed', 'cancelled', 'interrupted')),
    stop_reason TEXT,
    error TEXT,
    client_message_ids TEXT NOT NULL CHECK (json_type(client_message_ids) = 'array'),
    started_at REAL NOT NULL,
    ended_at REAL,
    CHECK ((status = 'active') = (ended_at IS NULL)),
    CHECK ((status = 'active') = (stop_reason IS NULL))
) STRICT, WITHOUT ROWID
"""

_MESSAGES: Final = """
CREATE TABLE messages (
    number INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE CHECK (message_id <> ''),
    conversation INTEGER NOT NULL REFERENCES conversations (number),
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    kind TEXT NOT NULL CHECK (kind IN ('system', 'user', 'assistant', 'tool', 'summary')),
    content TEXT NOT NULL CHECK (json_valid(content)),
    otid TEXT,
    run_id TEXT,
    turn_id TEXT,
    tool_call_id TEXT,
    created_at REAL NOT NULL,
    UNIQUE (conversation, sequence),
    CHECK ((kind = 'tool') = (tool_call_id IS NOT NULL)),
    CHECK (kind <> 'tool' OR run_id IS NOT NULL)
) STRICT
"""

_IN_CONTEXT: Final = """
CREATE TABLE in_context (
    conversation INTEGER NOT NULL REFERENCES conversations (number),
    position INTEGER NOT NULL CHECK (position > 0),
    message INTEGER NOT NULL REFERENCES messages (number),
    PRIMARY KEY (conversation, position),
    UNIQUE (conversation, message)
) STRICT, WITHOUT ROWID
"""

_INBOX: Final = """
CREATE TABLE inbox (
    number INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations (number),
    item_number INTEGER NOT NULL CHECK (item_number > 0),
    client_message_id TEXT NOT NULL CHECK (client_message_id <> ''),
    kind TEXT NOT NULL CHECK (kind IN ('message', 'task_notification', 'cron_prompt')),
    source TEXT NOT NULL CHECK (source IN ('user', 'task_notification', 'cron', 'subagent', 'system')),
    messages TEXT NOT NULL CHECK (json_type(messages) = 'array' AND json_array_length(messages) > 0),
    can_answer_questions INTEGER NOT NULL CHECK (can_answer_questions IN (0, 1)),
    tool_allowlist TEXT CHECK (tool_allowlist IS NULL OR json_type(tool_allowlist) = 'array'),
    delivery TEXT NOT NULL CHECK (delivery IN ('tool_boundary', 'turn_end')),
    connection_group TEXT NOT NULL,
    disposition TEXT NOT NULL CHECK (disposition IN ('started', 'queued')),
    status TEXT NOT NULL
        CHECK (status IN ('accepted', 'parked', 'reserved', 'admitted', 'answered', 'cancelled')),
    turn_id TEXT REFERENCES turns (turn_id),
    run_id TEXT REFERENCES runs (run_id),
    outcome TEXT,
    accepted_at REAL NOT NULL,
    settled_at REAL,
    UNIQUE (conversation, client_message_id),
    UNIQUE (conversation, item_number),
    CHECK ((status IN ('reserved', 'admitted', 'answered')) = (turn_id IS NOT NULL)),
    CHECK (status IN ('admitted', 'answered') OR run_id IS NULL),
    CHECK (status NOT IN ('admitted', 'answered') OR run_id IS NOT NULL),
    CHECK ((status IN ('answered', 'cancelled')) = (settled_at IS NOT NULL)),
    CHECK ((status IN ('answered', 'cancelled')) = (outcome IS NOT NULL))
) STRICT
"""

_JOURNAL: Final = """
CREATE TABLE journal (
    conversation INTEGER NOT NULL REFERENCES conversations (number),
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    tool_call_id TEXT NOT NULL CHECK (tool_call_id <> ''),
    tool_name TEXT NOT NULL CHECK (tool_name <> ''),
    arguments TEXT NOT NULL CHECK (json_type(arguments) = 'object'),
    arguments_digest TEXT NOT NULL CHECK (length(arguments_digest) = 64),
    approval TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('started', 'finished')),
    outcome_status TEXT CHECK (outcome_status IN ('success', 'error', 'interrupted', 'unknown')),
    outcome_text TEXT,
    overflow_path TEXT,
    started_at REAL NOT NULL,
    finished_at REAL,
    PRIMARY KEY (conversation, run_id, tool_call_id),
    CHECK ((status = 'finished') = (finished_at IS NOT NULL)),
    CHECK ((status = 'finished') = (outcome_status IS NOT NULL)),
    CHECK ((status = 'finished') = (outcome_text IS NOT NULL))
) STRICT, WITHOUT ROWID
"""

_QUESTIONS: Final = """
CREATE TABLE questions (
    number INTEGER PRIMARY KEY,
    conversation INTEGER NOT NULL REFERENCES conversations (number),
    question_id TEXT NOT NULL CHECK (question_id <> ''),
    run_id TEXT NOT NULL REFERENCES runs (run_id),
    tool_call_id TEXT NOT NULL CHECK (tool_call_id <> ''),
    tool_name TEXT NOT NULL,
    input TEXT NOT NULL CHECK (json_valid(input)),
    arguments_digest TEXT NOT NULL CHECK (length(arguments_digest) = 64),
    display TEXT NOT NULL CHECK (json_type(display) = 'object'),
    status TEXT NOT NULL CHECK (status IN ('open', 'allowed', 'denied', 'expired', 'withdrawn')),
    answer TEXT CHECK (answer IS NULL OR json_type(answer) = 'object'),
    approved_digest TEXT CHECK (approved_digest IS NULL OR length(approved_digest) = 64),
    asked_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    settled_at REAL,
    CHECK (expires_at >= asked_at),
    CHECK ((status = 'open') = (settled_at IS NULL)),
    CHECK ((status IN ('allowed', 'denied')) = (answer IS NOT NULL)),
    CHECK ((status = 'allowed') = (approved_digest IS NOT NULL))
) STRICT
"""

_EVENTS: Final = """
CREATE TABLE events (
    conversation INTEGER NOT NULL REFERENCES conversations (number),
    number INTEGER NOT NULL CHECK (number > 0),
    at REAL NOT NULL,
    kind TEXT NOT NULL CHECK (kind <> ''),
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    PRIMARY KEY (conversation, number)
) STRICT, WITHOUT ROWID
"""

_OUTBOX: Final = """
CREATE TABLE outbox (
    number INTEGER PRIMARY KEY,
    delivery_id TEXT NOT NULL CHECK (delivery_id <> ''),
    consumer TEXT NOT NULL CHECK (length(consumer) BETWEEN 1 AND 256),
    conversation INTEGER REFERENCES conversations (number),
    kind TEXT NOT NULL CHECK (kind <> ''),
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    created_at REAL NOT NULL,
    delivered_at REAL,
    UNIQUE (delivery_id, consumer)
) STRICT
"""

_SETTINGS: Final = """
CREATE TABLE settings (
    key TEXT PRIMARY KEY CHECK (key <> ''),
    value TEXT NOT NULL CHECK (json_valid(value)),
    updated_at REAL NOT NULL
) STRICT, WITHOUT ROWID
"""

_AUDIT: Final = """
CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL CHECK (action <> ''),
    subject TEXT NOT NULL,
    detail TEXT NOT NULL CHECK (json_valid(detail))
) STRICT
"""

_INDEXES: Final = (
    "CREATE INDEX conversations_by_id ON conversations (conversation_id)",
    "CREATE INDEX conversations_by_use ON conversations (updated_at)",
    "CREATE UNIQUE INDEX one_active_turn ON turns (conversation) WHERE status = 'active'",
    "CREATE UNIQUE INDEX one_active_run ON runs (conversation) WHERE status = 'active'",
    "CREATE INDEX runs_by_conversation ON runs (conversation, started_at)",
    "CREATE UNIQUE INDEX one_result_per_call ON messages (conversation, run_id, tool_call_id) WHERE kind = 'tool'",
    "CREATE INDEX waiting_inbox ON inbox (conversation, item_number) "
    "WHERE status IN ('accepted', 'parked', 'reserved', 'admitted')",
    "CREATE INDEX inbox_by_turn ON inbox (turn_id) WHERE turn_id IS NOT NULL",
    "CREATE INDEX unfinished_calls ON journal (conversation, started_at) WHERE status = 'started'",
    "CREATE UNIQUE INDEX one_open_question ON questions (conversation, question_id) WHERE status = 'open'",
    "CREATE UNIQUE INDEX one_question_per_call ON questions (conversation, run_id, tool_call_id) WHERE status = 'open'",
    "CREATE INDEX questions_by_call ON questions (conversation, run_id, tool_call_id)",
    "CREATE INDEX undelivered ON outbox (consumer, number) WHERE delivered_at IS NULL",
)


def _immutable(table: str, operation: str, condition: str, reason: str) -> str:
    name = f"{table}_{operation.split(maxsplit=1)[0].lower()}_guard"
    when = f"WHEN {condition} " if condition else ""
    return (
        f"CREATE TRIGGER {name} BEFORE {operation} ON {table} {when}BEGIN SELECT RAISE(ABORT, 'illegal: {reason}'); END"
    )


_INBOX_TRANSITIONS: Final = (
    "'accepted>parked', 'accepted>reserved', 'accepted>cancelled', 'parked>accepted', 'parked>cancelled', "
    "'reserved>accepted', 'reserved>parked', 'reserved>admitted', 'admitted>answered'"
)

_BEFORE_A_TURN_ENDS: Final = (
    (
        "inbox",
        "SELECT 1 FROM inbox WHERE turn_id = OLD.turn_id AND status IN ('reserved', 'admitted')",
        "a turn ends after its input is answered or released",
    ),
    (
        "runs",
        "SELECT 1 FROM runs WHERE conversation = OLD.conversation AND status = 'active'",
        "a turn ends after its runs",
    ),
    (
        "journal",
        "SELECT 1 FROM journal WHERE conversation = OLD.conversation AND status = 'started'",
        "a turn ends after its tool calls",
    ),
    (
        "questions",
        "SELECT 1 FROM questions WHERE conversation = OLD.conversation AND status = 'open'",
        "a turn ends after its questions",
    ),
)

_TRIGGERS: Final = (
    _immutable("messages", "UPDATE", "", "the transcript is append-only"),
    _immutable("messages", "DELETE", "", "the transcript is append-only"),
    _immutable("audit", "UPDATE", "", "the audit log is append-only"),
    _immutable("audit", "DELETE", "", "the audit log is append-only"),
    _immutable("turns", "UPDATE", "OLD.status <> 'active'", "a finished turn stays as it is"),
    *(
        f"CREATE TRIGGER turns_finish_{table}_guard BEFORE UPDATE OF status ON turns "
        f"WHEN NEW.status = 'finished' AND EXISTS ({select}) BEGIN SELECT RAISE(ABORT, 'illegal: {reason}'); END"
        for table, select, reason in _BEFORE_A_TURN_ENDS
    ),
    _immutable("runs", "UPDATE", "OLD.status <> 'active'", "an ended run stays as it is"),
    _immutable("journal", "UPDATE", "OLD.status <> 'started'", "a finished call stays as it is"),
    _immutable("journal", "DELETE", "", "a started call is never forgotten"),
    _immutable("questions", "UPDATE", "OLD.status <> 'open'", "a question is settled once"),
    _immutable("inbox", "DELETE", "", "an accepted message is never forgotten"),
    _immutable(
        "inbox",
        "UPDATE OF status",
        f"OLD.status || '>' || NEW.status NOT IN ({_INBOX_TRANSITIONS})",
        "no such step of an inbox item",
    ),
    _immutable(
        "conversations",
        "UPDATE OF reserved_event_number",
        "NEW.reserved_event_number < OLD.reserved_event_number",
        "event numbers never go back",
    ),
    _immutable("ownership", "UPDATE", "NEW.epoch <= OLD.epoch", "an epoch only grows"),
    "CREATE TRIGGER in_context_insert_guard BEFORE INSERT ON in_context "
    "WHEN NEW.conversation <> (SELECT conversation FROM messages WHERE number = NEW.message) "
    "BEGIN SELECT RAISE(ABORT, 'illegal: a message of another conversation'); END",
)

FIRST_STATEMENTS: Final = (
    _OWNERSHIP, _AGENTS, _CONVERSATIONS, _TURNS, _RUNS, _MESSAGES, _IN_CONTEXT, _INBOX, _JOURNAL, _QUESTIONS,
    _EVENTS, _OUTBOX, _SETTINGS, _AUDIT, *_INDEXES, *_TRIGGERS,
    "INSERT INTO ownership (id, epoch, pid, since) VALUES (1, 0, 0, 0)",
)  # fmt: skip
