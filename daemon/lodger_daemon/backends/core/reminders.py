"""Reminders: what changes from turn to turn, as text parts before the person's message, never as system messages.

What the model was last shown is read from the transcript it still sees, so a compaction arms every reminder again and
a restart changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, text_of
from lodger_tools.json_value import Json, JsonObject
from lodger_tools.permissions.core.modes import Mode

_MODE_WORDS: Final = {
    Mode.STRICT: "strict: every command and every write is put before your person.",
    Mode.STANDARD: "standard: what the sandbox contains runs; leaving it is put before your person.",
    Mode.ACCEPT_EDITS: "acceptEdits: file edits run without a question; other things as in standard.",
    Mode.UNRESTRICTED: "unrestricted: calls run without a question unless a rule says otherwise.",
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is true as a turn begins."""

    date: str
    """The day, ISO form, in the machine's zone."""
    operating_system: str
    machine: str
    cwd: str
    agent_id: str
    agent_name: str
    memory_folder: str
    mode: Mode
    memory_states: tuple[str, ...]
    """One text per state of the memory that needs the agent."""


@dataclass(frozen=True, slots=True)
class MemoryUpdate:
    commit: str | None
    summary: str


def last_shown(transcript: Iterable[TranscriptMessage]) -> JsonObject:
    """The newest value of each reminder in the messages the model still sees."""
    shown: JsonObject = {}
    for message in transcript:
        if message.kind is MessageKind.USER and isinstance(values := message.content.get("shown"), dict):
            shown.update(values)
        elif message.kind is MessageKind.SUMMARY:
            shown = {}
    return shown


def reminders_for(now: Surroundings, shown: JsonObject, update: MemoryUpdate | None) -> tuple[list[Json], JsonObject]:
    """The reminders this turn needs, and what the model has been shown once they are admitted."""
    texts = {
        "session": f"Today is {now.date}. Machine: {now.machine} ({now.operating_system}). Working folder: {now.cwd}",
        "agent": f"You are agent {now.agent_id}, named {now.agent_name}. Your memory folder is {now.memory_folder}",
        "mode": f"Permission mode is {_MODE_WORDS[now.mode]}",
    }
    if now.memory_states or shown.get("memory"):
        texts["memory"] = "\n".join(now.memory_states) or "Your memory is in order again."
    due = {kind: text for kind, text in texts.items() if text_of(shown, kind) != text}
    newly_shown: JsonObject = dict(due)
    if "memory" in due and not now.memory_states:
        newly_shown["memory"] = ""
    reminders: list[Json] = [_reminder(kind, text) for kind, text in due.items()]
    if update is not None and update.summary:
        reminders.append(_reminder("memory_update", update.summary))
    return reminders, newly_shown


def _reminder(kind: str, text: str) -> JsonObject:
    return {"kind": kind, "text": f'<reminder about="{kind}">\n{text}\n</reminder>'}
