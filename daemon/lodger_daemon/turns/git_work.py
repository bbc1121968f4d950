"""The work around changes of a repository's configuration: they are put back; a person may bring them in again."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lodger_daemon.identity import AgentId
from lodger_daemon.turns.contract import Allow
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_daemon.turns.desk import Desk
from lodger_daemon.turns.side_questions import SideQuestion, ask, desk_for
from lodger_tools.box.contract import BoxKey
from lodger_tools.json_value import JsonObject

LIMIT_S: Final = 60.0
"""Other calls in the same workspace wait meanwhile."""
_REASON: Final = (
    "The agent changed .git/config in {workspace} so that git may run programs or go elsewhere, also when you use git "
    "there yourself: {keys}. It was put back; allow it to bring it in again."
)


class GitConfigAsker:
    """Implements `GitAsker` on the conversations in use."""

    def __init__(self, desks_of: Callable[[AgentId], Iterable[Desk]]) -> None:
        self._desks_of = desks_of

    async def ask_about_git(self, box: BoxKey, changes: Mapping[str, str]) -> bool | None:
        desk = desk_for(box, self._desks_of(AgentId(box.agent_id)))
        if desk is None:
            return None
        about: JsonObject = {"workspace": box.workspace, "settings": dict(changes)}
        reason = _REASON.format(workspace=box.workspace, keys=", ".join(changes))
        given = await ask(desk, SideQuestion(OwnQuestion.GIT, about, reason, LIMIT_S))
        if given is None:
            return None
        # It is brought in as it was or not at all.
        return isinstance(given, Allow) and given.updated_input in (None, about)
