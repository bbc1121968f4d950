"""Machines whose agents share memories: a whole hub, real git, plain boxes."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import AgentCard
from lodger_daemon.memory.memory import Memory
from lodger_daemon.memory.remote import MemoryRemote
from lodger_daemon.memory.shared_memories import SharedOne, SharingPlaces
from lodger_daemon.memory.shared_remote import SharingHub
from lodger_daemon.paths import Paths
from lodger_daemon.randomness import SeededRng
from lodger_protocol.shared_names import shared_name_fault
from lodger_tools.box.contract import BoxKey, BoxProfile
from support.hub_rig import Hub, running_hub
from support.memory_machines import QuickClock
from support.plain_boxes import INSIDE, SHARED, PlainBoxes, agent_git

NAME = "team"


class SharingMachine:
    """One daemon's memory, of one agent."""

    def __init__(self, folder: Path, hub: Hub, agent: str, seam: Callable[[str], None] | None = None) -> None:
        self.hub = hub
        self.agent = AgentId(agent)
        self.paths = Paths(folder / "config", folder / "state", folder / "workspace", folder / "home")
        self.boxes = PlainBoxes(
            lambda name: str(self.paths.agents / name / "checkout"),
            shared_folder=lambda name, shared: str(self.paths.agents / name / "shared" / shared / "checkout"),
        )
        self.box = BoxKey(self.agent, str(folder / "workspace"))
        self.boxes_changed = 0
        remote = MemoryRemote(hub.url, lambda: hub.token("machine"))
        self.memory = Memory(
            self.paths,
            self.boxes,
            lambda name: BoxKey(name, str(folder / "workspace"), BoxProfile.MEMORY_WORKER),
            remote,
            QuickClock(),
            SeededRng(7),
            checkout_inside=INSIDE,
            sharing=SharingPlaces(
                SharingHub(remote, shared_name_fault), lambda name: f"{SHARED}/{name}", self._changed
            ),
            **({} if seam is None else {"seam": seam}),
        )

    async def _changed(self, agent_id: AgentId) -> None:
        self.boxes_changed += 1

    def one(self, name: str = NAME) -> SharedOne:
        assert self.memory.shared is not None
        return self.memory.shared.one(self.agent, name)

    def checkout(self, name: str = NAME) -> Path:
        return self.paths.agents / self.agent / "shared" / name / "checkout"

    async def look(self) -> None:
        """What happens at the hub's word that other memories are attached."""
        assert self.memory.shared is not None
        self.memory.sharing_announced(self.agent)
        await self.memory.shared.looked(self.agent, 60)
        for one in self.memory.shared.of(self.agent).values():
            await one.sync.settled(60)

    async def hear(self, name: str = NAME) -> None:
        """The hub's word that a shared memory moved."""
        self.memory.shared_head_announced(name, head_of(self.hub, name))
        assert self.memory.shared is not None
        await self.memory.shared.looked(self.agent, 60)
        await self.one(name).sync.settled(60)

    def commit(self, file: str, text: str | None, message: str = "a note", name: str = NAME) -> str:
        path = self.checkout(name) / file
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        agent_git(self.checkout(name), "add", "-A")
        agent_git(self.checkout(name), "commit", "-q", "--no-verify", "-m", message)
        return agent_git(self.checkout(name), "rev-parse", "HEAD")

    async def bring_in(self) -> str:
        return (await self.memory.import_commits(self.agent, self.box)).text

    async def end_turn(self) -> None:
        self.memory.turn_ended(self.agent, self.box)
        await self.memory.settled(self.agent, 60)
        assert self.memory.shared is not None
        await self.memory.shared.looked(self.agent, 60)
        for one in self.memory.shared.of(self.agent).values():
            await one.sync.settled(60)

    def reminders(self) -> str:
        return "\n".join(self.memory.reminders(self.agent))


def head_of(hub: Hub, name: str = NAME) -> str:
    return (hub.state / "git" / "shared" / name / "state.git" / "refs" / "heads" / "main").read_text().strip()


async def ask(hub: Hub, method: str, path: str, body: object = None) -> Any:
    """As a person's client."""

    def call() -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{hub.url}{path}", data, method=method)
        request.add_header("Authorization", f"Bearer {hub.token('client')}")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    return await asyncio.to_thread(call)


async def share(hub: Hub, agents: dict[str, str], name: str = NAME) -> None:
    """Attach to each agent with what it may do; `none` detaches."""
    await ask(hub, "POST", "/v1/repositories", {"name": name})
    for agent, right in agents.items():
        path = f"/v1/repositories/{name}/agents/{agent}"
        if right == "none":
            await ask(hub, "DELETE", path)
        else:
            await ask(hub, "PUT", path, {"permissions": right})


@asynccontextmanager
async def sharing_machines(folder: Path, *agents: str) -> AsyncIterator[tuple[Hub, list[SharingMachine]]]:
    """A hub, and for each agent a machine of its own on which it has its memory."""
    async with running_hub(folder / "hub") as hub:
        machines = [SharingMachine(folder / agent, hub, agent) for agent in agents]
        try:
            for machine in machines:
                await machine.memory.prepare(machine.agent, AgentCard(machine.agent))
            yield hub, machines
        finally:
            for machine in machines:
                await machine.memory.aclose()
