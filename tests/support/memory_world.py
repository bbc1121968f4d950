"""Several machines that share one agent over a bad wire: what happens is drawn from a seed, then everything heals.

world = World(seed, machine_count, folder, remote)
await world.live()      # commits, syncs, crashes, faults
await world.heal()      # faults stop; conflicts are decided by the agent
world.check()           # nothing lost, all sound, all the same
"""

import random
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lodger_daemon.clock import WallTime
from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.errors import MemoryFailure
from support.faulty_wire import Fault, FaultyWire
from support.git_host_server import RunningHost
from support.memory_machines import AGENT, CARD, Machine, QuickClock, note
from support.plain_boxes import agent_git

SHARED: Final = ("fact.md", "place.md", "people/ada.md")
ROUNDS: Final = 5
HEALING_ROUNDS: Final = 40
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
    machine: Machine | None = None
    seams_left: int | None = None
    """How many seams to pass before the daemon dies; None: it does not."""
    commits: int = 0


@dataclass(slots=True)
class Remote:
    """Where memory is shared: `repository` is its folder, for looking at it from outside."""

    wire: FaultyWire
    repository: Path
    announces: bool


@dataclass(slots=True)
class World:
    seed: int
    count: int
    folder: Path
    remote: Remote
    draw: random.Random = field(init=False)
    seats: list[Seat] = field(init=False)
    markers: list[str] = field(default_factory=list)
    """One word for each commit ever made; it stands in the commit's message."""
    story: list[str] = field(default_factory=list)
    rewritten: bool = False

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        skews_s = (0.0, 0.0, 3600.0, -86_400.0)
        self.seats = [
            Seat(f"m{number}", self.folder / f"m{number}", SkewedClock(skew_s=self.draw.choice(skews_s)))
            for number in range(self.count)
        ]

    # -- living --

    async def live(self) -> None:
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
                self.outsider_rewrites()

    async def up(self, seat: Seat) -> Machine:
        if seat.machine is None:
            hub = RunningHost(None, self.remote.wire.url)  # type: ignore[arg-type]
            seat.machine = Machine(seat.folder, hub, lambda name: self.seam(seat, name), seat.clock)
            await seat.machine.memory.prepare(AGENT, CARD)
            await seat.machine.memory.start()
        return seat.machine

    async def one_turn(self, seat: Seat) -> None:
        draw = self.draw
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
            status = await machine.end_turn()
            self.story.append(f"{seat.name} {status.outcome.value}")
        except MemoryFailure as failure:
            self.story.append(f"{seat.name} {failure}")
        except Crashed:
            pass
        if seat.seams_left == 0:
            await self.down(seat)

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
        kind = draw.random()
        path = draw.choice(SHARED) if kind < 0.4 else f"{draw.choice(('', 'people/'))}{seat.name}-{seat.commits}.md"
        if kind > 0.9:
            # With something of its own: two machines that only delete the same do the same, and one commit is enough.
            (machine.checkout / "place.md").unlink(missing_ok=True)
            path = f"gone-{seat.name}-{seat.commits}.md"
        machine.commit(path, note(f"{marker} says {draw.random()}"), marker)
        self.story.append(f"{seat.name} writes {path}: {marker}")

    def mark(self, seat: Seat) -> str:
        seat.commits += 1
        self.markers.append(f"{seat.name}c{seat.commits}x")
        return self.markers[-1]

    def hear(self, machine: Machine) -> None:
        """The hub's word. A foreign host announces nothing: there a refused push leads to a fetch."""
        head = self.head()
        if self.remote.announces and head is not None:
            machine.memory.head_announced(AGENT, head)

    def head(self) -> str | None:
        done = self.git("rev-parse", "-q", "--verify", "refs/heads/main", fine=(0, 1))
        return done.strip() or None

    def outsider_rewrites(self) -> None:
        """Somebody replaces the shared history by an older one. What it had stays under another name there."""
        self.drop_locks()
        head = self.head()
        if head is None:
            return
        older = self.git("rev-list", "--max-count=3", head).split()[-1]
        if older != head:
            self.git("update-ref", f"refs/heads/before-{head[:8]}", head)
            self.git("update-ref", "refs/heads/main", older)
            self.rewritten = True
            self.story.append(f"the remote goes back from {head[:8]} to {older[:8]}")

    # -- healing --

    async def heal(self) -> None:
        """No more faults. The agent decides conflicts when reminded; a rewritten remote is put right by its owner."""
        self.remote.wire.faults[:] = []
        if not self.remote.announces:
            self.drop_locks()  # Whoever keeps a host that is not ours does so; our hub does it by itself.
        for seat in self.seats:
            await self.down(seat)
        for round_number in range(HEALING_ROUNDS):
            if self.rewritten:
                self.owner_restores()
            for seat in self.seats:
                machine = await self.up(seat)
                if not self.remote.announces:
                    machine.memory._agent(AGENT).heard = False
                    await machine.memory.freshen(AGENT, 30)
                self.hear(machine)
                await machine.memory.settled(AGENT, 30)
                self.decide(seat, machine)
                status = await machine.end_turn()
                self.story.append(f"healing {round_number}: {seat.name} {status.outcome.value} {status.detail}")
            if self.level():
                return
        raise AssertionError("\n".join([f"seed {self.seed}: not level", *self.story[-60:]]))

    def owner_restores(self) -> None:
        """The owner makes main of the remote continue every line it once had, with the content it has now."""
        self.rewritten = False
        self.drop_locks()
        lines = self.git("for-each-ref", "--format=%(objectname)", "refs/heads/before-*").split()
        head = self.head()
        assert head is not None
        for line in lines:
            if self.git("rev-list", "--count", f"{head}..{line}").strip() != "0":
                argv = ("commit-tree", f"{head}^{{tree}}", "-p", head, "-p", line, "-m", "put together")
                head = self.git("-c", "user.name=owner", "-c", "user.email=o@example.org", *argv).strip()
        self.git("update-ref", "refs/heads/main", head)
        self.story.append(f"the remote's owner makes {head[:8]} of all lines")

    def decide(self, seat: Seat, machine: Machine) -> None:
        """What an agent does with the reminder of a conflict: it writes what both sides say."""
        state = machine.memory._agent(AGENT).room.state
        conflict = state.conflict
        if conflict is None or conflict.rewritten:
            return
        if conflict.at_import:
            self._merge(seat, machine, conflict.paths)
            return
        for path in conflict.paths:
            if path not in conflict.settled:
                machine.commit(path, note(f"{seat.name} decides {self.draw.random()}"), self.mark(seat))

    def _merge(self, seat: Seat, machine: Machine, paths: tuple[str, ...]) -> None:
        checkout, marker = machine.checkout, self.mark(seat)
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
        head = self.head()
        return all(
            seat.machine is not None
            and seat.machine.published.head() == head
            and agent_git(seat.machine.checkout, "rev-parse", "main") == head
            for seat in self.seats
        )

    # -- judging --

    def check(self) -> None:
        told = "\n".join([f"seed {self.seed}, {self.count} machines", *self.story])
        kept = self.git("log", "--all", "--format=%B")
        for seat in self.seats:
            assert seat.machine is not None
            assert seat.machine.fsck() == "", told
            agent_git(seat.machine.checkout, "fsck", "--full", "--strict")
            assert agent_git(seat.machine.checkout, "status", "--porcelain") == "", told
            kept += seat.machine.published.git.line("log", "--all", "--format=%B")
            assert seat.machine.memory.status(AGENT).outcome in {SyncOutcome.CLEAN, SyncOutcome.PUSHED}, told
        self.git("fsck", "--full", "--strict")
        lost = set(self.markers) - set(re.findall(r"m\d+c\d+x", kept))
        assert not lost, f"{sorted(lost)} lost\n{told}"

    def drop_locks(self) -> None:
        """What killed gits left there; nobody is at work on the other side when this is called."""
        repository = self.remote.repository
        for lock in (*repository.glob("*.lock"), *(repository / "refs" / "heads").glob("*.lock")):
            lock.unlink(missing_ok=True)

    def git(self, *argv: str, fine: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            ["git", f"--git-dir={self.remote.repository}", *argv], capture_output=True, text=True, check=False
        )
        assert done.returncode in fine, done.stderr
        return done.stdout

    async def aclose(self) -> None:
        for seat in self.seats:
            await self.down(seat)
