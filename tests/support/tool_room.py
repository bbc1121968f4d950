"""A toolbox on real boxes around one workspace, for tests of what a model may ask for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from lodger_tools.box.contract import BoxKey
from lodger_tools.box.manager import BoxManager
from lodger_tools.output.overflow import OverflowFolder, OverflowOwner
from lodger_tools.toolbox import LodgerToolbox
from support.real_boxes import RealRequests, box_user_for_tests


class ToolRoom:
    def __init__(self, state: Path, workspace: Path) -> None:
        user = box_user_for_tests()
        overflow = OverflowFolder(state / "overflow", OverflowOwner(user.uid, user.gid))
        self.manager = BoxManager(state / "boxes", RealRequests(state, workspace.parent / "no-home"))
        self.toolbox = LodgerToolbox(self.manager, overflow)
        self.workspace = workspace
        self.key = BoxKey("agent-room", str(workspace))
        self.count = 0


R = TypeVar("R", bound=ToolRoom)


@asynccontextmanager
async def closing(room: R) -> AsyncIterator[R]:
    """Its box ends with the test."""
    yield room
    await room.manager.end(room.key)
    await room.manager.aclose()
