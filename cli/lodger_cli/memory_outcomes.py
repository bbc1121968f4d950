"""How a sync of memory ended, in words for a person: what it means, and what to do about it."""

from typing import Any, Final

from lodger_cli.terminal import age, span

GOOD: Final = frozenset({"clean", "pushed", "dirty"})
_LASTING: Final = frozenset({"conflict", "invalid", "busy", "in_the_way", "push_failed", "dirty"})
"""Where it matters since when."""
_WORTH_SAYING_S: Final = 60.0
NEVER_SYNCED: Final = "It is synced after the agent's next turn; `lodger memory push` does it now."
_LEVEL: Final = "This machine and the remote hold the same."
MEANINGS: Final = {
    "skipped": "It stays on this machine; a hub (`lodger up`, `lodger join`) or a git host in the settings carries it.",
    "clean": _LEVEL,
    "pushed": _LEVEL,
    "dirty": "The agent has written what it has not committed; it is reminded. Nothing for you to do.",
    "conflict": "Both versions are kept, and the agent is asked to join them; `lodger memory resolve` lets you decide.",
    "invalid": "Nothing is lost. What the agent committed, it is asked to mend; what came from elsewhere, mend there.",
    "busy": "The agent's checkout follows when no command runs and nothing is half-done there. Nothing for you to do.",
    "in_the_way": "The agent's checkout follows once it has moved or committed these files; it is told to.",
    "push_failed": "It is kept here and tried again by itself, within 5 minutes; `lodger memory push` does it now.",
}


def last_sync(sync: dict[str, Any], now: float) -> str:
    """How the last one ended, how long ago, and since when all did."""
    outcome, at, since = sync["outcome"], sync["at"], sync.get("since")
    if at is None and outcome == "skipped":
        return "no sync yet"
    ago = age(None if at is None else max(0.0, now - at))
    if outcome not in _LASTING or since is None or now - since < _WORTH_SAYING_S:
        return f"{outcome} {ago}"
    return f"{outcome} {ago}, for {span(now - since)}"


def meaning(sync: dict[str, Any]) -> str:
    """What that means, and what to do."""
    if sync["at"] is None and sync["outcome"] == "skipped":
        return NEVER_SYNCED
    return MEANINGS.get(sync["outcome"], "")
