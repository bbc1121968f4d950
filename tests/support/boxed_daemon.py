"""A daemon's memories in real boxes, its own and shared ones at a real hub, as the daemon makes them."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import AgentCard, ImportReport
from lodger_daemon.memory.memory import Memory
from lodger_daemon.memory.remote import MemoryRemote
from lodger_daemon.memory.shared_memories import SharingPlaces
from lodger_daemon.memory.shared_remote import SharingHub
from lodger_daemon.paths import Paths
from lodger_daemon.randomness import SystemRng
from lodger_daemon.service.box_requests import BoxRequests
from lodger_daemon.service.settings import Settings
from lodger_daemon.system_clock import SystemClock
from lodger_protocol.shared_names import shared_name_fault
from lodger_tools import validator
from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, RunCommand
from lodger_tools.box.manager import BoxManager
from lodger_tools.output.overflow import OverflowFolder, OverflowOwner
from support.hub_rig import Hub
from support.real_boxes import box_user_for_tests
from support.shared_machines import NAME, head_of

ADA = AgentId("agent-ada")


@dataclass(slots=True)
class BoxedDaemon:
    memory: Memory
    memory_inside: str
    """Where the agent finds its own memory."""
    boxes: BoxManager
    box: BoxKey
    place: str
    """Where the agent finds the shared memory."""

    async def runs(self, command: str) -> BoxOutcome:
        call = BoxCall(SystemRng().uuid(), RunCommand(command, 60.0), self.box.workspace)
        return await self.boxes.run(self.box, call)

    async def brings_in(self) -> ImportReport:
        return await self.memory.import_commits(ADA, self.box)

    async def looks(self) -> None:
        assert self.memory.shared is not None
        self.memory.sharing_announced(ADA)
        await self.memory.shared.looked(ADA, 60)
        for one in self.memory.shared.of(ADA).values():
            await one.sync.settled(60)

    async def hears(self, hub: Hub) -> None:
        assert self.memory.shared is not None
        self.memory.shared_head_announced(NAME, head_of(hub))
        await self.memory.shared.looked(ADA, 60)
        await self.memory.shared.one(ADA, NAME).sync.settled(60)

    async def ends_turn(self) -> None:
        self.memory.turn_ended(ADA, self.box)
        assert self.memory.shared is not None
        await self.memory.shared.one(ADA, NAME).sync.settled(60)


@asynccontextmanager
async def boxed_daemon(folder: Path, workspace: Path, hub: Hub) -> AsyncIterator[BoxedDaemon]:
    user = box_user_for_tests()
    paths = Paths(folder / "config", folder / "state", workspace, Path.home())
    for private in (paths.config, paths.overflow, paths.agents):
        private.mkdir(parents=True, exist_ok=True)
    requests = BoxRequests(paths, Settings(), dict(os.environ))
    overflow = OverflowFolder(paths.overflow, OverflowOwner(user.uid, user.gid) if os.getuid() == 0 else None)
    hook = ((str(Path(validator.__file__).parent), "validator"),)
    boxes = BoxManager(paths.boxes, lambda key: requests.for_key(key, overflow), extra_folders=hook)
    remote = MemoryRemote(hub.url, lambda: hub.token("machine"))
    owner = requests.owner()
    sharing = SharingPlaces(SharingHub(remote, shared_name_fault), requests.shared_inside, boxes.retire_changed, owner)
    box = BoxKey(ADA, str(workspace))
    memory = Memory(
        paths, boxes, lambda _: box, remote, SystemClock(), SystemRng(),
        checkout_inside=requests.memory_inside, box_owner=owner, sharing=sharing,
    )  # fmt: skip
    try:
        await memory.prepare(ADA, AgentCard("Ada"))
        yield BoxedDaemon(memory, requests.memory_inside, boxes, box, requests.shared_inside(NAME))
    finally:
        await memory.aclose()
        for status in boxes.statuses():
            await boxes.end(status.key)
        await boxes.aclose()
