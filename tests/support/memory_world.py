"""Several machines that share memory over a bad wire: what happens is drawn from a seed, then everything heals.

world = World(seed, machine_count, folder, remote)
await world.live()      # commits, syncs, crashes, faults
await world.heal()      # faults stop; conflicts are decided by the agent
world.check()           # nothing lost, all sound, all the same

At a hub of ours the hub is killed too, and in half of the seeds a second agent lives on some machines and both have a
memory that they share, which the second may write or only read.
"""

import asyncio
import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.errors import MemoryFailure
from lodger_daemon.memory.remote import MemoryRemote
from lodger_daemon.memory.shared_remote import SharingHub
from lodger_daemon.memory.syncing import RepositorySync
from lodger_protocol.shared_names import shared_name_fault
from support.faulty_wire import Fault, FaultyWire
from support.memory_hub import SEAMS, HubProcess
from support.memory_machines import AGENT, CARD, Machine, QuickClock, note
from support.plain_boxes import agent_git
from support.shared_machines import share
from support.small_disk import SmallDisk

SHARED: Final = ("fact.md", "place.md", "people/ada.md")
ROUNDS: Final = 5
HEALING_ROUNDS: Final = 40
BEN: Final = AgentId("agent-ben")
"""Lives on every third machine where a memory is shared."""
TEAM: Final = "team"
LOCK_AGE_S: Final = 600.0
FAULTS: Final = tuple(fault for fault in Fault if fault is not Fault.NONE)


class Crashed(BaseException):
    """The daemon is gone: its gits with it."""


@dataclass(slots=True)
class SkewedClock(QuickClock):
    """A machine whose clock is wrong."""

    skew_s: float = 0.0

    def wall(self) -> WallTime:
        return WallTime(self.real.wall() + self.skew_s)


@dataclass(slots=True)
class Seat:
    """One machine's place: what survives its daemon."""

    name: str
    folder: Path
    clock: SkewedClock
    agent: AgentId = AGENT
    machine: Machine | None = None
    seams_left: int | None = None
    """How many seams to pass before the daemon dies; None: it does not."""
    commits: int = 0


@dataclass(slots=True)
class Remote:
    """Where memory is kept; its folders, for looking at it from outside."""

    wire: FaultyWire
    token: Callable[[], str]
    root: Path
    hub: HubProcess | None
    """None for a host that is not ours: it announces nothing, and shares nothing between agents."""

    def repository(self, agent: AgentId, shared: str | None = None) -> Path:
        return self.root / ("shared" if shared else agent) / (shared or "") / "state.git"


@dataclass(slots=True)
class World:
    seed: int
    count: int
    folder: Path
    remote: Remote
    disk: SmallDisk | None = None
    """Under all machines and the remote, and full at times; None where it stays as large as it is."""
    draw: random.Random = field(init=False)
    seats: list[Seat] = field(init=False)
    markers: list[str] = field(default_factory=list)
    """One word for each commit ever made; it stands in the commit's message."""
    story: list[str] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    """Seams of the hub at which it was killed."""
    rights: dict[AgentId, str] = field(default_factory=dict)
    """What each agent may do with the memory they share; empty when there is none."""
    rewritten: bool = False
    mishaps: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        skews_s = (0.0, 0.0, 3600.0, -86_400.0)
        if self.remote.hub is not None and self.draw.random() < 0.5:
            self.rights = {AGENT: "write", BEN: self.draw.choice(("write", "read"))}
        self.seats = [
            Seat(
                f"m{number}",
                self.folder / f"m{number}",
                SkewedClock(skew_s=self.draw.choice(skews_s)),
                BEN if self.rights and number % 3 == 1 else AGENT,
            )
            for number in range(self.count)
        ]

    # -- living --

    async def live(self) -> None:
        if self.rights:
            assert self.remote.hub is not None
            await share(self.remote.hub, {str(agent): right for agent, right in self.rights.items()}, TEAM)
            self.story.append(f"the agents share: {self.rights}")
        first = await self.up(self.seats[0])
        first.commit("fact.md", note("blue"), self.mark(self.seats[0]))
        first.commit("place.md", note("Berlin"), self.mark(self.seats[0]))
        await first.end_turn()
        for seat in self.seats[1:]:
            await self.up(seat)
        for _ in range(ROUNDS):
            for seat in self.seats:
                if self.draw.random() < 0.75:
                    await self.one_turn(seat)
            if self.draw.random() < 0.08:
                await self.outsider_rewrites()

    async def up(self, seat: Seat) -> Machine:
        if seat.machine is None:
            remote = MemoryRemote(self.remote.wire.url, self.remote.token)
            seat.machine = Machine(
                seat.folder,
                None,
                lambda name: self.seam(seat, name),
                seat.clock,
                remote,
                agent=seat.agent,
                sharing=SharingHub(remote, shared_name_fault) if self.rights else None,
            )
            await seat.machine.memory.prepare(seat.agent, CARD)
            await seat.machine.memory.start()
            await self.look(seat.machine)
        return seat.machine

    async def look(self, machine: Machine) -> None:
        """What a daemon does once it is connected: it asks what is attached."""
        if machine.memory.shared is not None:
            machine.memory.sharing_announced(machine.agent)
            await machine.memory.shared.looked(machine.agent, 30)
            await self.all_settled(machine)

    async def all_settled(self, machine: Machine) -> None:
        for shared in self.names(machine):
            await machine.memory.repository(machine.agent, shared).settled(30)

    def names(self, machine: Machine) -> list[str | None]:
        """Of the memories that are on this machine; None is the agent's own."""
        attached = machine.memory.shared.of(machine.agent) if machine.memory.shared is not None else ()
        return [None, *attached]

    async def mind_the_hub(self) -> None:
        """Start it again, mostly at once, and have it die sometimes."""
        hub, draw = self.remote.hub, self.draw
        if hub is None:
            return
        if hub.ended:
            if draw.random() < 0.3:
                return
            await self.hub_up(hub)
        if draw.random() < 0.3:
            hub.arm(draw.choice(SEAMS) if draw.random() < 0.6 else draw.randint(1, 16))

    async def hub_up(self, hub: HubProcess) -> None:
        if hub.ended:
            seam = await asyncio.to_thread(hub.died_at)
            self.deaths.append(seam or "any moment")
            self.story.append(f"the hub died {seam}")
            if self.draw.random() < 0.5:
                self.remote.wire.kill()
            await asyncio.to_thread(hub.start)

    async def one_turn(self, seat: Seat) -> None:
        draw = self.draw
        await self.mind_the_hub()
        self.remote.wire.faults[:] = [draw.choice(FAULTS)] * draw.randint(1, 4) if draw.random() < 0.3 else []
        seat.seams_left = draw.randint(1, 12) if draw.random() < 0.15 else None
        try:
            machine = await self.up(seat)
            if draw.random() < 0.5:
                self.hear(machine)
            for _ in range(draw.randint(0, 2)):
                self.commit(seat, machine)
                if draw.random() < 0.7:
                    await machine.bring_in()
            with self.full_disk_at_times():
                status = await machine.end_turn()
                await self.all_settled(machine)
            self.story.append(f"{seat.name} {status.outcome.value}")
        except MemoryFailure as failure:
            self.story.append(f"{seat.name} {failure}")
        except Crashed:
            pass
        if seat.seams_left == 0:
            await self.down(seat)

    @contextmanager
    def full_disk_at_times(self) -> Iterator[None]:
        if self.disk is None or self.draw.random() > 0.2:
            yield
            return
        free_bytes = self.draw.choice((0, 4096, 16_384, 65_536))
        self.disk.fill(free_bytes)
        self.mishaps["full disks"] += 1
        self.story.append(f"the disk is full but for {free_bytes} bytes")
        try:
            yield
        finally:
            self.disk.free()
            self.story.append("the disk has room")

    def seam(self, seat: Seat, name: str) -> None:
        if seat.seams_left is None:
            return
        if seat.seams_left > 0:
            seat.seams_left -= 1
        if seat.seams_left == 0 and seat.machine is not None:
            self.story.append(f"{seat.name} dies {name}")
            seat.machine.memory._running.kill_all()
            raise Crashed(name)

    async def down(self, seat: Seat) -> None:
        if seat.machine is not None:
            machine, seat.machine = seat.machine, None
            await machine.memory.aclose()
        seat.seams_left = None

    def commit(self, seat: Seat, machine: Machine) -> None:
        draw, marker = self.draw, self.mark(seat)
        kind, shared = draw.random(), self.draw_memory(machine)
        path = draw.choice(SHARED) if kind < 0.4 else f"{draw.choice(('', 'people/'))}{seat.name}-{seat.commits}.md"
        if kind > 0.9:
            # With something of its own: two machines that only delete the same do the same, and one commit is enough.
            checkout = machine.checkout if shared is None else machine.shared_checkout(shared)
            (checkout / "place.md").unlink(missing_ok=True)
            path = f"gone-{seat.name}-{seat.commits}.md"
        machine.commit(path, note(f"{marker} says {draw.random()}"), marker, shared)
        self.story.append(f"{seat.name} writes {shared or 'own'} {path}: {marker}")

    def draw_memory(self, machine: Machine) -> str | None:
        """The own one, or the shared one where the agent may write it and its checkout is here."""
        may = self.rights.get(machine.agent) == "write" and (machine.shared_checkout(TEAM) / ".git" / "HEAD").exists()
        return TEAM if may and self.draw.random() < 0.4 else None

    def mark(self, seat: Seat) -> str:
        seat.commits += 1
        self.markers.append(f"{seat.name}c{seat.commits}x")
        return self.markers[-1]

    def hear(self, machine: Machine) -> None:
        """The hub's word. A foreign host announces nothing: there a refused push leads to a fetch."""
        if self.remote.hub is None:
            return
        for shared in self.names(machine):
            head = self.head(self.remote.repository(machine.agent, shared))
            if head is None:
                continue
            if shared is None:
                machine.memory.head_announced(machine.agent, head)
            else:
                machine.memory.shared_head_announced(shared, head)

    def repositories(self) -> list[Path]:
        found = [self.remote.repository(agent) for agent in dict.fromkeys(seat.agent for seat in self.seats)]
        return [*found, *([self.remote.repository(AGENT, TEAM)] if self.rights else [])]

    def head(self, repository: Path) -> str | None:
        if not repository.exists():
            return None
        done = git(repository, "rev-parse", "-q", "--verify", "refs/heads/main", fine=(0, 1))
        return done.strip() or None

    async def outsider_rewrites(self) -> None:
        """Somebody replaces a history, by an older or an unrelated one. What it had stays there under another name."""
        repository = self.draw.choice(self.repositories())
        head = self.head(repository)
        if head is None:
            return
        older = git(repository, "rev-list", "--max-count=3", head).split()[-1]
        if older == head:
            return
        async with self.nobody_at_work():
            if self.draw.random() < 0.3:
                argv = ("commit-tree", f"{head}^{{tree}}", "-m", "begun anew")
                older = git(repository, "-c", "user.name=owner", "-c", "user.email=o@example.org", *argv).strip()
                self.mishaps["unrelated histories"] += 1
            git(repository, "update-ref", f"refs/heads/before-{head[:8]}", head)
            git(repository, "update-ref", "refs/heads/main", older)
        self.rewritten = True
        self.mishaps["replaced histories"] += 1
        self.story.append(f"{repository.parent.name} goes back from {head[:8]} to {older[:8]}")

    @asynccontextmanager
    async def nobody_at_work(self) -> AsyncIterator[None]:
        """Whoever changes a remote's folders by hand stops the hub first."""
        hub = self.remote.hub
        if hub is not None:
            await self.hub_up(hub)
            await asyncio.to_thread(hub.stop)
        self.drop_locks()
        yield
        if hub is not None:
            await asyncio.to_thread(hub.start)

    # -- healing --

    async def heal(self) -> None:
        """No more faults. The agent decides conflicts when reminded; a rewritten remote is put right by its owner."""
        self.remote.wire.faults[:] = []
        if self.remote.hub is None:
            self.drop_locks()  # Whoever keeps a host that is not ours does so; our hub does it by itself.
        else:
            await self.hub_up(self.remote.hub)
            self.remote.hub.arm(0)
        for seat in self.seats:
            await self.down(seat)
        self.time_passes()
        for round_number in range(HEALING_ROUNDS):
            if self.rewritten:
                await self.owner_restores()
            for seat in self.seats:
                machine = await self.up(seat)
                await self.look(machine)
                if self.remote.hub is None:
                    machine.memory.repository(AGENT, None).heard = False
                    await machine.memory.freshen(AGENT, 30)
                self.hear(machine)
                await self.all_settled(machine)
                self.decide(seat, machine)
                status = await machine.end_turn()
                await self.all_settled(machine)
                self.story.append(f"healing {round_number}: {seat.name} {status.outcome.value} {status.detail}")
            if self.level():
                return
        raise AssertionError("\n".join([f"seed {self.seed}: not level", *self.story[-60:]]))

    async def owner_restores(self) -> None:
        """The owner makes main of each remote continue every line it once had, with the content it has now."""
        self.rewritten = False
        async with self.nobody_at_work():
            for repository in self.repositories():
                lines = git(repository, "for-each-ref", "--format=%(objectname)", "refs/heads/before-*").split()
                head = self.head(repository)
                if head is None or not lines:
                    continue
                for line in lines:
                    if git(repository, "rev-list", "--count", f"{head}..{line}").strip() != "0":
                        argv = ("commit-tree", f"{head}^{{tree}}", "-p", head, "-p", line, "-m", "put together")
                        head = git(repository, "-c", "user.name=owner", "-c", "user.email=o@example.org", *argv).strip()
                git(repository, "update-ref", "refs/heads/main", head)
                self.story.append(f"the owner of {repository.parent.name} makes {head[:8]} of all lines")

    def decide(self, seat: Seat, machine: Machine) -> None:
        """What an agent does with the reminder of a conflict: it writes what both sides say."""
        for shared in self.names(machine):
            conflict = machine.memory.repository(machine.agent, shared).room.state.conflict
            if conflict is None or conflict.rewritten:
                continue
            if conflict.at_import:
                checkout = machine.checkout if shared is None else machine.shared_checkout(shared)
                self._merge(seat, checkout, conflict.paths)
                continue
            for path in conflict.paths:
                if path not in conflict.settled:
                    machine.commit(path, note(f"{seat.name} decides {self.draw.random()}"), self.mark(seat), shared)

    def _merge(self, seat: Seat, checkout: Path, paths: tuple[str, ...]) -> None:
        marker = self.mark(seat)
        argv = ("-c", "user.name=a", "-c", "user.email=a@b", "merge", "-q", "-m", marker, "refs/lodger/theirs")
        before = agent_git(checkout, "rev-parse", "HEAD")
        done = subprocess.run(["git", "-C", str(checkout), *argv], capture_output=True, check=False)
        if done.returncode == 0:
            if agent_git(checkout, "rev-parse", "HEAD") == before:
                self.markers.remove(marker)  # nothing to merge yet: the daemon died before it gave the other side
            return
        for path in paths:
            (checkout / path).parent.mkdir(parents=True, exist_ok=True)
            (checkout / path).write_text(note(f"{seat.name} merges {self.draw.random()}"))
        agent_git(checkout, "add", "-A")
        agent_git(checkout, "commit", "-q", "-m", marker)

    def level(self) -> bool:
        return all(seat.machine is not None and self._is_level(seat.machine) for seat in self.seats)

    def _is_level(self, machine: Machine) -> bool:
        names = self.names(machine)
        if len(names) != (2 if self.rights else 1):
            return False
        for shared in names:
            head = self.head(self.remote.repository(machine.agent, shared))
            published = machine.memory.repository(machine.agent, shared).room.published
            checkout = machine.checkout if shared is None else machine.shared_checkout(shared)
            if not published.exists() or published.head() != head or agent_git(checkout, "rev-parse", "main") != head:
                return False
        return True

    # -- judging --

    def check(self) -> None:
        told = "\n".join([f"seed {self.seed}, {self.count} machines", *self.story])
        if self.remote.hub is not None:
            self.remote.hub.stop()  # Its upkeep moves packs beside.
        kept = ""
        for repository in self.repositories():
            git(repository, "fsck", "--full", "--strict")
            kept += git(repository, "log", "--all", "--format=%B")
        for seat in self.seats:
            assert seat.machine is not None
            for shared in self.names(seat.machine):
                checkout = seat.machine.checkout if shared is None else seat.machine.shared_checkout(shared)
                kept += self._checked(seat.machine.memory.repository(seat.agent, shared), checkout, told)
        lost = set(self.markers) - set(re.findall(r"m\d+c\d+x", kept))
        assert not lost, f"{sorted(lost)} lost\n{told}"

    def _checked(self, sync: RepositorySync, checkout: Path, told: str) -> str:
        """All messages of what one machine has of one memory."""
        published = sync.room.published
        assert published.git.line("fsck", "--full", "--strict", "--no-dangling") == "", told
        agent_git(checkout, "fsck", "--full", "--strict")
        assert agent_git(checkout, "status", "--porcelain") == "", told
        assert sync.status().outcome in {SyncOutcome.CLEAN, SyncOutcome.PUSHED}, told
        return published.git.line("log", "--all", "--format=%B")

    def time_passes(self) -> None:
        """A fetch's lock is believed for two minutes, since a fetch may live so long; nobody fetches now."""
        for lock in self.folder.glob("m*/state/agents/**/published.git/refs/lodger/fetched.lock"):
            found = lock.stat()
            os.utime(lock, (found.st_atime - LOCK_AGE_S, found.st_mtime - LOCK_AGE_S))
            self.story.append(f"{lock} grows old")

    def drop_locks(self) -> None:
        """What killed gits left there; nobody is at work on the other side when this is called."""
        for repository in self.repositories():
            for lock in (*repository.glob("*.lock"), *(repository / "refs" / "heads").glob("*.lock")):
                lock.unlink(missing_ok=True)

    async def aclose(self) -> None:
        for seat in self.seats:
            await self.down(seat)


def git(repository: Path, *argv: str, fine: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(["git", f"--git-dir={repository}", *argv], capture_output=True, text=True, check=False)
    assert done.returncode in fine, done.stderr
    return done.stdout
