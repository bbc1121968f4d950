"""A push, in one piece or, where a remote does not take that, piece by piece: hosts limit what one push may hold, and a
slow line what one command can carry in its time."""

import re
from collections.abc import Awaitable, Callable
from typing import Final

from lodger_daemon.memory.published import Published
from lodger_daemon.memory.remote import Remote
from lodger_daemon.memory.room import AgentRoom

PART_BYTES: Final = 24 * 1024 * 1024
"""A quarter of what a hub takes at once; within git's minute at 3.5 Mbit/s."""
_TOO_LARGE: Final = re.compile(r"pack exceeds|returned error: 413|larger than the maximum|too large", re.IGNORECASE)


async def push(
    room: AgentRoom, remote: Remote, url: str, commit: str, known: str | None, saw: Callable[[str], Awaitable[None]]
) -> tuple[int | None, str]:
    """`commit` to the remote's main, never by force: exit code (None for a time-out) and what git said.

    Args:
        known: what the remote's main is, as far as we know; None for an empty one.
        saw: told of each earlier commit that the remote has taken on the way there, so that nothing is sent twice.
    """

    def pushed(to: str) -> Callable[[], tuple[int | None, str]]:
        return lambda: room.published.push(url, remote.environment(), to)

    exit_code, text = await room.network(pushed(commit))
    if exit_code is not None and (exit_code == 0 or _TOO_LARGE.search(text) is None):
        return exit_code, text
    while True:
        step = await room.local(next_step, room.published, known, commit)
        if step == commit and exit_code != 0:
            # It is no more than one part, and what was said of it as a whole stands.
            return exit_code, text
        exit_code, text = await room.network(pushed(step))
        if exit_code != 0 or step == commit:
            return exit_code, text
        await saw(step)
        known = step


def next_step(published: Published, known: str | None, commit: str) -> str:
    """The furthest commit on the way from `known` to `commit` that is no more than one part away; when already the
    first one is more, that one. Blocking. Raises: GitFailed."""
    if known is not None and not published.has(known):
        known = None
    path = (f"{known}..{commit}", "--ancestry-path") if known is not None else (commit,)
    steps = published.git.line("rev-list", "--reverse", "--topo-order", *path).split()
    if not steps or _size_bytes(published, known, commit) <= PART_BYTES:
        return commit
    nearest, furthest = 0, len(steps) - 1
    while furthest - nearest > 1:
        middle = (nearest + furthest) // 2
        if _size_bytes(published, known, steps[middle]) <= PART_BYTES:
            nearest = middle
        else:
            furthest = middle
    return steps[nearest]


def _size_bytes(published: Published, known: str | None, commit: str) -> int:
    """Of what the remote would have to be sent, about, as it lies on this disk."""
    exclusion = [f"^{known}"] if known is not None else []
    return int(published.git.line("rev-list", "--disk-usage", "--objects", commit, *exclusion))
