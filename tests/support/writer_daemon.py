"""The parts of a daemon that background writers of memory need, with real boxes, for one agent."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.memory import Memory
from lodger_daemon.memory.writers import OpenWriter, Writers
from lodger_daemon.paths import Paths
from lodger_daemon.randomness import SystemRng
from lodger_daemon.service.box_requests import BoxRequests
from lodger_daemon.service.memory_writers import make_writers, take_up
from lodger_daemon.service.settings import Settings
from lodger_daemon.store.database import Database
from lodger_daemon.system_clock import SystemClock
from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, RunCommand
from lodger_tools.box.manager import BoxManager
from lodger_tools.output.overflow import OverflowFolder, OverflowOwner
from support.memory_machines import AGENT, CARD
from support.real_boxes import box_user_for_tests
from support.writer_machines import make_conversation


@dataclass(slots=True)
class WriterDaemon:
    paths: Paths
    agent: AgentId
    boxes: BoxManager
    memory: Memory
    database: Database
    writers: Writers

    async def runs(self, opened: OpenWriter, command: str) -> BoxOutcome:
        call = BoxCall(SystemRng().uuid(), RunCommand(command, 60.0), opened.tree)
        return await self.boxes.run(opened.box, call)

    async def does(self, opened: OpenWriter, command: str) -> str:
        done = await self.runs(opened, f"set -e\n{command}")
        assert done.exit_code == 0, done.text
        return done.text

    async def published(self, path: str) -> str:
        return await self.memory.look(
            self.agent, lambda published, _: published.git.run("show", f"main:{path}").decode()
        )


@asynccontextmanager
async def writer_daemon(paths: Paths, agent: AgentId = AGENT) -> AsyncIterator[WriterDaemon]:
    """Lets go of its boxes at the end, as a daemon does."""
    user = box_user_for_tests()
    for private in (paths.config, paths.overflow, paths.agents):
        private.mkdir(parents=True, exist_ok=True)
    clock = SystemClock()
    requests = BoxRequests(paths, Settings(), dict(os.environ))
    overflow = OverflowFolder(paths.overflow, OverflowOwner(user.uid, user.gid) if os.getuid() == 0 else None)
    boxes = BoxManager(paths.boxes, lambda key: requests.for_key(key, overflow))
    memory = Memory(
        paths, boxes, lambda agent: BoxKey(agent, str(paths.workspace)), None, clock, SystemRng(),
        checkout_inside=requests.memory_inside, box_owner=requests.owner(),
    )  # fmt: skip
    database = Database.open(paths.database, clock=clock)
    made = WriterDaemon(
        paths, agent, boxes, memory, database, make_writers(paths, database, memory, boxes, requests, clock)
    )
    try:
        await memory.prepare(agent, CARD)
        await make_conversation(database)
        await take_up(boxes, made.writers)
        yield made
    finally:
        await made.writers.aclose()
        await memory.aclose()
        await boxes.aclose()
        await database.aclose()
