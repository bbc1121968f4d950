"""Each way a sync ends has words that say what it means, and its age."""

from lodger_cli.memory_outcomes import MEANINGS, NEVER_SYNCED, last_sync, meaning
from lodger_daemon.memory.contract import SyncOutcome

NOW = 100_000.0


def test_each_outcome_has_its_words() -> None:
    assert list(MEANINGS) == sorted(MEANINGS, key=list(SyncOutcome).index) == list(SyncOutcome)
    assert all(text.endswith(".") for text in MEANINGS.values())


def test_how_long_ago_and_since_when() -> None:
    def told(outcome: str, at: float | None, since: float | None) -> str:
        return last_sync({"outcome": outcome, "at": at, "since": since}, NOW)

    assert told("pushed", NOW - 20, NOW - 7200) == "pushed 20 s ago"
    assert told("push_failed", NOW - 20, NOW - 7200) == "push_failed 20 s ago, for 2 h"
    assert told("push_failed", NOW - 20, NOW - 20) == "push_failed 20 s ago"
    assert told("invalid", NOW - 7200, NOW - 7200) == "invalid 2 h ago, for 2 h"
    assert told("conflict", NOW + 5, None) == "conflict 0 s ago"
    assert told("skipped", None, None) == "no sync yet"
    assert last_sync({"outcome": "busy", "at": NOW - 1}, NOW) == "busy 1 s ago"
    assert meaning({"outcome": "skipped", "at": None}) == NEVER_SYNCED
