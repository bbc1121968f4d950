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


class Audit(Protocol):
    def note(self, box: BoxKey, decision: str, what: str) -> None:
        """Returns at once.

        Args:
            decision: `put_back` or `allowed`.
            what: keys of the configuration, or names in `.git`.
        """
        ...
