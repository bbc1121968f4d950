"""What a remote's git answered, and when to ask again."""

import re
from enum import StrEnum
from typing import Final

PUSH_TRIES: Final = 20
"""Lost races before a sync gives up until next time (MEMORY-NOTES.md section 7)."""
TROUBLE_TRIES: Final = 3
"""Tries on a server in trouble within one sync; the next sync comes by itself."""


class RemoteAnswer(StrEnum):
    """How one push or fetch ended."""

    DONE = "done"
    BEHIND = "behind"
    """The remote has commits that we have not, or another pusher was faster."""
    EMPTY = "empty"
    """The remote has no `main` yet."""
    TROUBLE = "trouble"
    """Worth another try: 5xx, 52x, a time-out, a lost connection."""
    REFUSED = "refused"
    """Trying again the same way is useless: credential, rights, limits."""


MORE_THAN_A_FETCH: Final = "more than one fetch may bring"
"""Said for git, which dies of it."""
_BEHIND: Final = re.compile(
    r"non-fast-forward|fetch first|stale info|cannot lock ref|failed to update ref|incorrect old value|"
    r"failed to lock|reference already exists|atomic transaction failed",
    re.IGNORECASE,
)
_EMPTY: Final = re.compile(
    r"couldn't find remote ref|repository .*not found|returned error: 404|does not appear to be a git repository",
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(
    r"returned error: 4(?!08|29)\d\d|authentication failed|could not read username|permission denied|"
    r"host key verification failed|too many authentication failures|"
    rf"{MORE_THAN_A_FETCH}|"
    r"mismatched algorithms|pack exceeds|transport '.*' not allowed|unable to update url base|fsck error",
    re.IGNORECASE,
)


def judge(exit_code: int | None, output: str) -> RemoteAnswer:
    """From an exit code (None for a time-out) and everything git printed."""
    if exit_code == 0:
        return RemoteAnswer.DONE
    if exit_code is None:
        return RemoteAnswer.TROUBLE
    if _BEHIND.search(output):
        return RemoteAnswer.BEHIND
    if _EMPTY.search(output):
        return RemoteAnswer.EMPTY
    if _REFUSED.search(output):
        return RemoteAnswer.REFUSED
    return RemoteAnswer.TROUBLE


def race_wait_s(attempt: int, chance: float) -> float:
    """After the given lost race (from 1): 20 ms doubling to 1.3 s, anywhere in that window."""
    return float(0.02 * 2 ** min(attempt, 6)) * (0.1 + chance)


def trouble_wait_s(attempt: int, chance: float) -> float:
    """Within a sync, after the given failed try (from 1): half a second doubling, upper half at random."""
    return float(0.5 * 2 ** (attempt - 1)) * (0.5 + chance / 2)


def again_wait_s(failures: int, chance: float) -> float:
    """Between syncs, after so many failed ones in a row: 5 s doubling to 5 minutes, upper half at random."""
    return float(min(300.0, 5.0 * 2 ** min(failures - 1, 10))) * (0.5 + chance / 2)
