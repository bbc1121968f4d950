"""What an agent has committed, read with git from published memory (history of one path is git's to read:
ARCHITECTURE.md section 10.7)."""

from dataclasses import dataclass

from lodger_daemon.memory.core.wanted_paths import wanted_path
from lodger_daemon.memory.published import Published

_FORMAT = "%H%x00%cI%x00%an%x00%B%x00"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    sha: str
    timestamp: str
    """Of the commit, in ISO 8601."""
    author_name: str
    message: str


def read_history(published: Published, head: str, limit: int, path: str | None) -> tuple[HistoryEntry, ...]:
    """Newest first; of one path when it is given. Blocking. Raises: BadRequest for a path that cannot be meant,
    GitFailed."""
    if path:
        path = "/".join(wanted_path(path))
    only = ("--", path) if path else ("--",)
    output = published.git.run("log", f"--max-count={limit}", f"--format={_FORMAT}", head, *only)
    fields = output.decode("utf-8", "replace").split("\0")
    return tuple(
        HistoryEntry(fields[i].strip(), fields[i + 1], fields[i + 2], fields[i + 3].strip())
        for i in range(0, len(fields) - 4, 4)
    )
