"""What is kept in memory of one conversation while it is in use."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lodger_daemon.backends.core.transcript import TranscriptMessage
from lodger_daemon.backends.local.conversation import LocalConversation
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import ClientMessageId, ConversationKey, RunId
from lodger_daemon.store import agent_rows, conversation_rows, message_rows, run_rows, turn_rows
from lodger_daemon.store.conversation_rows import ConversationState
from lodger_daemon.turns.contract import AgentRecord
from lodger_daemon.turns.event_log import reserve_first_block
from lodger_daemon.turns.records import from_row
from lodger_daemon.turns.services import TurnOptions
from lodger_tools.box.contract import BoxKey, BoxProfile
from lodger_tools.permissions.core.modes import Mode, within_ceiling

RUNS_REMEMBERED = 32
"""How many runs a client is told the causing messages of (PROTOCOL.md 5.2)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a turn works; fixed as it begins, so that a change of folder in mid-turn moves no call."""

    box: BoxKey
    cwd: str

    def as_cause(self, cause: str) -> str:
        """As the turn's row keeps it: a restart must find the same box."""
        return json.dumps(
            {"cause": cause, "cwd": self.cwd, "workspace": self.box.workspace, "profile": self.box.profile.value}
        )


def place_from_cause(cause: str, agent_id: str) -> Place | None:
    try:
        stored = json.loads(cause)
        box = BoxKey(agent_id, str(stored["workspace"]), BoxProfile(stored["profile"]))
        return Place(box, str(stored["cwd"]))
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Loaded:
    """Read in one transaction as a conversation comes into use."""

    agent: AgentRecord
    model: str | None
    state: ConversationState
    in_context: tuple[TranscriptMessage, ...]
    runs: Mapping[RunId, tuple[ClientMessageId, ...]]
    numbers_reserved: int
    worked_in: BoxKey | None
    """Where the latest turn that ran calls ran them."""


def load(connection: sqlite3.Connection, key: ConversationKey, now: WallTime) -> Loaded | None:
    """None for an agent that does not exist. Makes the conversation if it is new, and reserves event numbers."""
    agent = agent_rows.get(connection, key.agent_id)
    if agent is None:
        return None
    conversation_rows.ensure(connection, key, now)
    record = conversation_rows.get(connection, key)
    state = conversation_rows.state(connection, key)
    worked = turn_rows.latest_with_calls(connection, key)
    place = place_from_cause(worked.cause, key.agent_id) if worked is not None else None
    return Loaded(
        agent=agent,
        model=record.model if record is not None else None,
        state=state,
        in_context=tuple(from_row(row) for row in message_rows.in_context(connection, key)),
        runs={row.run_id: row.client_message_ids for row in run_rows.recent(connection, key, RUNS_REMEMBERED)},
        numbers_reserved=reserve_first_block(connection, key),
        worked_in=place.box if place is not None else None,
    )


@dataclass(slots=True)
class LiveConversation:
    """Changed on the event loop only, after the same change is committed."""

    key: ConversationKey
    agent: AgentRecord
    model: str | None
    state: ConversationState
    transcript: LocalConversation
    runs: dict[RunId, tuple[ClientMessageId, ...]] = field(default_factory=dict)
    worked_in: BoxKey | None = None
    """Where the latest ended turn that ran calls ran them: who is told of what goes on in that box."""

    @property
    def handle(self) -> str:
        return self.model or self.agent.model

    def mode(self, options: TurnOptions) -> Mode:
        """Never wider than the machine's ceiling, whatever was stored before that was lowered."""
        mode = self.state.mode or options.default_mode
        return mode if within_ceiling(mode, options.ceiling) else options.ceiling

    def cwd(self, options: TurnOptions) -> str:
        return self.state.cwd or options.boot_folder

    def place(self, options: TurnOptions) -> Place:
        profile = BoxProfile.STRICT if self.mode(options) is Mode.STRICT else BoxProfile.AGENT
        cwd = self.cwd(options)
        return Place(BoxKey(self.key.agent_id, cwd, profile), cwd)

    def remember_run(self, run_id: RunId, client_message_ids: tuple[ClientMessageId, ...]) -> None:
        self.runs[run_id] = client_message_ids
        while len(self.runs) > RUNS_REMEMBERED:
            del self.runs[next(iter(self.runs))]

    def change_state(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]
