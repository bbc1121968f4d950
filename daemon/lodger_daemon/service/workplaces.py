"""What goes on in the folders of watched conversations: git's branch there, and what commands left running.

Implements `WorkplaceFacts` of the clients' room.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lodger_daemon.clock import Clock, MonoTime
from lodger_daemon.identity import AgentId, ConversationKey
from lodger_daemon.notifications.contract import TaskDesk
from lodger_daemon.service.core.folder_listings import RECENT_BRANCHES, read_branches
from lodger_daemon.service.core.known_folders import within
from lodger_daemon.service.folder_boxes import FolderBoxes, Missing, NotThere
from lodger_tools.box.contract import Boxes, BoxStatus
from lodger_tools.json_value import JsonObject

HOLDS_S: Final = 15.0
"""How old git's facts may be (PROTOCOL.md 5.1)."""
KEPT: Final = 256
"""Folders remembered; an entry has some 300 bytes."""
WAITING_LIMIT: Final = 64
"""Clients told of one change; any others see it with their next status."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    looked_at: MonoTime | None = None
    context: JsonObject | None = None
    task: asyncio.Task[None] | None = None
    waiting: list[Callable[[], None]] = field(default_factory=list)


class Workplaces:
    """Event loop only."""

    def __init__(self, boxes: Boxes, folders: FolderBoxes, clock: Clock, tasks: TaskDesk | None = None) -> None:
        self._tasks = tasks
        self._boxes = boxes
        self._folders = folders
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._closed = False

    async def aclose(self) -> None:
        self._closed = True
        tasks = [known.task for known in self._known.values() if known.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def git_context(self, agent_id: AgentId, folder: str, changed: Callable[[], None]) -> JsonObject | None:
        """Looked at only where the agent has a box: a client that watches starts no work of its own."""
        if not any(within(folder, box.key.workspace) for box in self._of_agent(agent_id)):
            return None
        known = self._entry(folder)
        now = self._clock.mono()
        if known.looked_at is None or now - known.looked_at >= HOLDS_S:
            if len(known.waiting) < WAITING_LIMIT:
                known.waiting.append(changed)
            if known.task is None and not self._closed:
                known.task = asyncio.create_task(self._look(folder, known))
        return known.context

    def background_processes(self, key: ConversationKey, folder: str) -> tuple[JsonObject, ...]:
        """The tasks first. Of what else runs there is one entry for each box: its runner counts processes and does not
        tell them apart."""
        tasks = () if self._tasks is None else self._tasks.running(key)
        left_over: tuple[JsonObject, ...] = tuple(
            {
                "process_id": f"box-{box.host_pid}",
                "kind": "bash",
                "command": f"[processes left running by earlier commands: {box.leftovers}]",
                "started_at_ms": None,
                "status": "running",
                "exit_code": None,
            }
            for box in self._of_agent(key.agent_id)
            if box.leftovers > 0 and box.key.workspace == folder
        )
        return (*tasks, *left_over)

    def _of_agent(self, agent_id: AgentId) -> list[BoxStatus]:
        return [box for box in self._boxes.statuses() if box.key.agent_id == agent_id]

    def _entry(self, folder: str) -> _Known:
        known = self._known.get(folder)
        if known is None:
            known = self._known[folder] = _Known()
            idle = (name for name, one in self._known.items() if one.task is None and name != folder)
            if len(self._known) > KEPT and (oldest := next(idle, None)) is not None:
                del self._known[oldest]
        self._known.move_to_end(folder)
        return known

    async def _look(self, folder: str, known: _Known) -> None:
        before = known.context
        try:
            known.context = await self._context(folder)
        except Missing as error:
            _LOG.info("git in %s was not asked: %s", folder, error)
        finally:
            known.looked_at = self._clock.mono()
            waiting, known.waiting, known.task = known.waiting, [], None
        if known.context != before:
            for changed in waiting:
                changed()

    async def _context(self, folder: str) -> JsonObject | None:
        """Raises: Missing."""
        # Only names are looked at here; a folder without a repository costs no box.
        if not await asyncio.to_thread(_in_repository, folder):
            return None
        try:
            current = await self._folders.current_branch(folder, folder)
            branches = read_branches(await self._folders.branches(folder, folder))
        except NotThere:
            return None
        recent = [one.name for one in branches if not one.is_remote and one.name != current]
        return {"branch": current, "recent_branches": [*recent[:RECENT_BRANCHES]]}


def _in_repository(folder: str) -> bool:
    """Only the folder itself: a box on it shows nothing above it. Blocking."""
    try:
        (Path(folder) / ".git").lstat()
    except OSError:
        return False
    return True
