"""Whole machines' memories for tests: real git, a plain box, and one remote if wanted."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lodger_daemon.clock import MonoTime, WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import AgentCard, ImportReport, SyncStatus
from lodger_daemon.memory.memory import Memory
from lodger_daemon.memory.mirror import Mirror
from lodger_daemon.memory.published import Published
from lodger_daemon.memory.remote import MemoryRemote, Remote
from lodger_daemon.memory.shared_memories import SharingPlaces
from lodger_daemon.memory.shared_remote import SharingHub
from lodger_daemon.paths import Paths
from lodger_daemon.randomness import SeededRng
from lodger_daemon.system_clock import SystemClock
from lodger_tools.box.contract import BoxKey, BoxProfile
from support.git_host_server import TOKEN, RunningHost
from support.plain_boxes import INSIDE, SHARED, PlainBoxes, agent_git

AGENT = AgentId("agent-ada")
CARD = AgentCard("Ada", "A careful helper.", "openai/x", "default")


@dataclass(slots=True)
class QuickClock:
    """Real time, but waits of the retry policy are noted and not waited for; long ones never end."""

    real: SystemClock = field(default_factory=SystemClock)
    waits: list[float] = field(default_factory=list)

    def wall(self) -> WallTime:
        return self.real.wall()

    def mono(self) -> MonoTime:
        return self.real.mono()

    async def sleep(self, delay_s: float) -> None:
        self.waits.append(delay_s)
        await self.real.sleep(0 if delay_s < 2.5 else 3600)


class Machine:
    """One daemon's memory."""

    def __init__(
        self,
        folder: Path,
        hub: RunningHost | None,
        seam: Callable[[str], None] | None = None,
        clock: QuickClock | None = None,
        remote: Remote | None = None,
        mirror: Remote | None = None,
        agent: AgentId = AGENT,
        sharing: SharingHub | None = None,
    ) -> None:
        self.agent = agent
        self.paths = Paths(folder / "config", folder / "state", folder / "workspace", folder / "home")
        self.boxes = PlainBoxes(
            lambda name: str(self.paths.agents / name / "checkout"),
            shared_folder=lambda _, shared: str(self.shared_checkout(shared)),
        )
        self.clock = clock or QuickClock()
        self.box = BoxKey(agent, str(folder / "workspace"))
        self.hub = hub
        self.memory = Memory(
            self.paths,
            self.boxes,
            lambda name: BoxKey(name, str(folder / "workspace"), BoxProfile.MEMORY_WORKER),
            remote or (None if hub is None else MemoryRemote(hub.base_url, lambda: TOKEN)),
            self.clock,
            SeededRng(7),
            checkout_inside=INSIDE,
            mirror=None if mirror is None else Mirror(mirror, self.clock, SeededRng(7)),
            sharing=None
            if sharing is None
            else SharingPlaces(sharing, lambda name: f"{SHARED}/{name}", self._boxes_changed),
            **({} if seam is None else {"seam": seam}),
        )

    @property
    def checkout(self) -> Path:
        return Path(self.memory.checkout_path(self.agent))

    @property
    def published(self) -> Published:
        return self.memory.repository(self.agent, None).room.published

    def shared_checkout(self, shared: str) -> Path:
        return self.paths.agents / self.agent / "shared" / shared / "checkout"

    def commit(self, name: str, text: str | None, message: str = "a note", shared: str | None = None) -> str:
        """The agent writes (or with None deletes) a file and commits, in its own memory or the shared one named."""
        checkout = self.checkout if shared is None else self.shared_checkout(shared)
        path = checkout / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        agent_git(checkout, "add", "-A")
        agent_git(checkout, "commit", "-q", *(() if shared is None else ("--no-verify",)), "-m", message)
        return agent_git(checkout, "rev-parse", "HEAD")

    async def bring_in(self, told_head: str = "") -> ImportReport:
        return await self.memory.import_commits(self.agent, self.box, told_head)

    async def end_turn(self) -> SyncStatus:
        self.memory.turn_ended(self.agent, self.box)
        return await self.memory.settled(self.agent, 60)

    async def _boxes_changed(self, agent_id: AgentId) -> None:
        return

    def fsck(self) -> str:
        return self.published.git.line("fsck", "--full", "--strict", "--no-dangling")


@asynccontextmanager
async def running_machine(folder: Path, hub: RunningHost | None = None, founded: bool = True) -> AsyncIterator[Machine]:
    """A machine with memory of the agent, unless `founded` is false; closed at the end."""
    made = Machine(folder, hub)
    try:
        if founded:
            await made.memory.prepare(AGENT, CARD)
        yield made
    finally:
        await made.memory.aclose()


def note(text: str, name: str = "note") -> str:
    return f"---\nname: {name}\ndescription: About {name}\n---\n\n{text}\n"
