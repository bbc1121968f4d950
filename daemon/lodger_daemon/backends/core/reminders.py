"""Reminders: what changes from turn to turn, as text parts before the person's message, never as system messages.

What the model was last shown is read from the transcript it still sees, so a compaction arms every reminder again and
a restart changes nothing. Each is told when it is not what was told last:

    session     day, machine and folder: at first, when one of them changes
    agent       id, name and memory folder: at first, when renamed
    mode        of permissions: at first, on change
    git         the branch of the folder, where it is known: at first, on change
    toolset     on change only; what tools there are is in the request itself
    background  what commands left running, and that it has ended: on change
    memory      a state of the memory that needs the agent, and its end: on change
    memory_update    what others changed in the memory: once for each commit, with the message that first carries it
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
    toolset: tuple[str, ...] = ()
    git_branch: str | None = None
    """None when it is not known, or the folder is no repository."""
    background: tuple[str, ...] = ()
    """One text for each thing that commands left running here."""


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
    if now.git_branch is not None:
        texts["git"] = f"The git repository in the working folder is on branch {now.git_branch}"
    for kind, lines, end in (
        ("background", now.background, "Nothing that earlier commands started runs here any more."),
        ("memory", now.memory_states, "Your memory is in order again."),
    ):
        if lines or shown.get(kind):
            texts[kind] = "\n".join(lines) or end
    due = {kind: text for kind, text in texts.items() if text_of(shown, kind) != text}
    newly_shown: JsonObject = dict(due)
    for kind, lines in (("background", now.background), ("memory", now.memory_states)):
        if kind in due and not lines:
            newly_shown[kind] = ""
    reminders: list[Json] = [_reminder(kind, text) for kind, text in due.items()]
    before, toolset = shown.get("toolset"), ", ".join(now.toolset)
    if before != toolset:
        newly_shown["toolset"] = toolset
        if isinstance(before, str):
            reminders.append(_reminder("toolset", _tools_changed(before.split(", "), now.toolset)))
    if update is not None and update.summary:
        reminders.append(_reminder("memory_update", update.summary))
    return reminders, newly_shown


def _tools_changed(before: list[str], now: tuple[str, ...]) -> str:
    new = [name for name in now if name not in before]
    gone = [name for name in before if name and name not in now]
    said = [f"Your tools changed; new: {', '.join(new)}." if new else "Your tools changed."]
    if gone:
        said.append(f"No longer there: {', '.join(gone)}; calling them does nothing.")
    return " ".join(said)


def _reminder(kind: str, text: str) -> JsonObject:
    return {"kind": kind, "text": f'<reminder about="{kind}">\n{text}\n</reminder>'}
