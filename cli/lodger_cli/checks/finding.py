"""What a check of this machine ends with: a verdict, words, and for each kind of trouble the one command to type."""

import os
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """Something a person should know; everything promised still holds."""
    WRONG = "wrong"
    """Something does not work; doctor ends with exit code 1."""


class Problem(StrEnum):
    """The kinds of trouble. Each has a section of this name in docs/troubleshooting.md; programs may rely on them."""

    SETTINGS_UNREADABLE = "settings-unreadable"
    GIT_MISSING = "git-missing"
    GIT_OLD = "git-old"
    RIPGREP_MISSING = "ripgrep-missing"
    DISK_LOW = "disk-low"
    DISK_FULL = "disk-full"
    BUBBLEWRAP_MISSING = "bubblewrap-missing"
    BOX_USER_MISSING = "box-user-missing"
    NO_BOX = "no-box"
    BOX_LEAKS = "box-leaks"
    SERVICE_STOPPED = "service-stopped"
    NO_LINGERING = "no-lingering"
    NO_DAEMON = "no-daemon"
    DAEMON_SILENT = "daemon-silent"
    DAEMON_OUTDATED = "daemon-outdated"
    HUB_AWAY = "hub-away"
    HUB_REFUSED = "hub-refused"
    HUB_SUPERSEDED = "hub-superseded"
    PRACTICE_MODEL = "practice-model"
    MODEL_UNSERVED = "model-unserved"
    MODEL_FAILING = "model-failing"
    MEMORY_CONFLICT = "memory-conflict"
    MEMORY_INVALID = "memory-invalid"
    MEMORY_IN_THE_WAY = "memory-in-the-way"
    MEMORY_UNSYNCED = "memory-unsynced"
    MEMORY_UNMIRRORED = "memory-unmirrored"
    SPEND_UNPRICED = "spend-unpriced"
    SSH_AGENT_AWAY = "ssh-agent-away"
    CLOCK_WRONG = "clock-wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    name: str
    verdict: Verdict
    found: str
    problem: Problem | None = None
    """None exactly when the verdict is ok."""
    advice: str = ""
    command: str = ""
    """What to type; empty where no single command mends it."""
    at: float | None = None
    """Wall seconds: when it was so, where that is not now."""


def as_root(command: str) -> str:
    """A command that only root may run, as whoever sees it has to type it: where root is, sudo often is not."""
    return command if os.geteuid() == 0 else f"sudo {command}"


def ok(name: str, found: str, at: float | None = None) -> Finding:
    return Finding(name, Verdict.OK, found, at=at)
