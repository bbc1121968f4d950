"""What the guard of a workspace's repository and its surroundings are to each other."""

from collections.abc import Mapping
from typing import Protocol

from lodger_tools.box.contract import BoxKey


class GitAsker(Protocol):
    """Asks the person about changes of `.git/config`."""

    async def ask_about_git(self, box: BoxKey, changes: Mapping[str, str]) -> bool | None:
        """Whether the person allows these: each key with its new value, empty where it was removed. None when nobody
        could be asked or nobody answered."""
        ...
