"""Where background writers have their trees on this machine. Blocking.

    agents/AGENT/writers/ID/tree/       a repository of the writer's own, all that its box may write
    agents/AGENT/writers/ID/reads/      what it is given to read

The daemon never opens a path inside a tree; it removes a tree with programs that follow no link, however deep it is
and whatever its modes are, once its box has ended.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_daemon.durable_files import write_durably
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.writers import WriterId

TRANSCRIPT_NAME: Final = "transcript.jsonl"
_WRITERS: Final = "writers"
_TREE: Final = "tree"
_READS: Final = "reads"
_REMOVAL_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class WorkTrees:
    """
    Args:
        agents: `Paths.agents`.
        box_owner: uid and gid of the boxes' user when it is not the daemon's own.
    """

    agents: Path
    box_owner: tuple[int, int] | None = None

    def tree(self, agent_id: AgentId, writer: WriterId) -> Path:
        return self._place(agent_id, writer) / _TREE

    def reads_beside(self, workspace: str) -> Path | None:
        """The folder of what a writer reads, from its box's workspace; None for any other workspace."""
        tree = Path(workspace)
        place = tree.parent
        if tree.name != _TREE or place.parent.name != _WRITERS or place.parent.parent.parent != self.agents:
            return None
        return place / _READS

    def make(self, agent_id: AgentId, writer: WriterId, transcript: str | None) -> None:
        """Raises: OSError."""
        place = self._place(agent_id, writer)
        for folder in (place, place / _READS, place / _TREE):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if transcript is not None:
            write_durably(place / _READS / TRANSCRIPT_NAME, transcript)
        if self.box_owner is not None:
            for path in (place / _TREE, place / _READS, *(place / _READS).iterdir()):
                os.chown(path, *self.box_owner)

    def writers(self) -> tuple[tuple[AgentId, WriterId], ...]:
        """All whose folders are here."""
        return tuple(
            (AgentId(folder.parent.parent.name), WriterId(folder.name))
            for folder in self.agents.glob(f"*/{_WRITERS}/*")
        )

    def remove(self, agent_id: AgentId, writer: WriterId) -> bool:
        """False when something is left; the next try goes on from there."""
        place = self._place(agent_id, writer)
        # A tree may be deeper than Python recurses, and hold folders that nobody may enter.
        for argv in (("chmod", "-R", "u+rwX", "--"), ("rm", "-rf", "--")):
            try:
                subprocess.run(
                    [*argv, str(place)],
                    env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=False,
                    timeout=_REMOVAL_LIMIT_S,
                )
            except subprocess.TimeoutExpired:
                return False
        return not place.exists()

    def _place(self, agent_id: AgentId, writer: WriterId) -> Path:
        return self.agents / agent_id / _WRITERS / writer
