"""Machines whose agents have background writers, cut off at any time: whatever one committed is on main or kept.

Real git on both sides and a real hub. Three seeds in the usual run, sixty with `--soak`; one that
fails prints its story.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lodger_daemon.memory.core.writers import KEPT, OPEN, WriterKind
from lodger_daemon.memory.errors import WriterRefused
from lodger_daemon.memory.remote import MemoryRemote
from lodger_daemon.memory.writers import OpenWriter
from support.git_host_server import TOKEN, RunningHost, running_git_host
from support.memory_machines import AGENT, CARD, Machine, note
from support.writer_machines import WriterMachine, at_rest, make_conversation, make_writers, open_database, write_in

SEEDS = range(1, 4)
SOAK_SEEDS = range(1, 61)
STEPS = 22
ACTS = ("open", "write", "write", "write", "done", "done", "cancel", "agent", "restart", "no box")


@dataclass(slots=True)
class Place:
    """One machine through all its daemons."""

    name: str
    folder: Path
    hub: RunningHost
    here: WriterMachine | None = None
    opened: dict[WriterKind, OpenWriter] = field(default_factory=dict)
    markers: list[str] = field(default_factory=list)
    """What stands in commits of writers."""

    async def start(self, *, founded: bool) -> WriterMachine:
        machine = Machine(self.folder, None, remote=MemoryRemote(self.hub.base_url, lambda: TOKEN))
        database = open_database(machine)
        self.here = WriterMachine(machine, database, make_writers(machine, database))
        await machine.memory.prepare(AGENT, CARD if founded else None)
        await make_conversation(database)
        await self.here.writers.start()
        return self.here

    async def stop(self) -> None:
        if self.here is not None:
            await self.here.writers.aclose()
            await self.here.machine.memory.aclose()
            await self.here.database.aclose()
            self.here, self.opened = None, {}


@dataclass(slots=True)
class Story:
    rng: random.Random
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def mark(self) -> str:
        self.count += 1
        return f"marker-{self.count}-"

    async def step(self, place: Place) -> None:
        here = place.here
        assert here is not None
        act = self.rng.choice(
            ("open", "write", "write", "write", "done", "done", "cancel", "agent", "restart", "no box")
        )
        kind = self.rng.choice(list(WriterKind))
        self.lines.append(f"{place.name}: {act} {kind}")
        opened = place.opened.get(kind)
        match act:
            case "open":
                await self._open(place, here, kind)
            case "write" if opened is not None:
                marker = self.mark()
                write_in(opened, self._file(), note(marker), marker)
                place.markers.append(marker)
            case "done" | "no box" if opened is not None:
                del place.opened[kind]
                here.machine.boxes.broken = act == "no box"
                ended = await here.writers.done(opened.id, "said")
                here.machine.boxes.broken = False
                self.lines.append(f"  {ended.state} {ended.paths}")
            case "cancel" if opened is not None:
                del place.opened[kind]
                await here.writers.cancel(opened.id, "stopped")
            case "agent":
                here.machine.commit(self._file(), note(self.mark()), "the agent's")
                await here.machine.end_turn()
            case "restart":
                await place.stop()
                await place.start(founded=False)
            case _:
                await self._open(place, here, kind)

    async def _open(self, place: Place, here: WriterMachine, kind: WriterKind) -> None:
        try:
            place.opened[kind] = await here.open(kind, asked=True)
        except WriterRefused as refused:
            self.lines.append(f"  {refused.skip}")

    def _file(self) -> str:
        """Seldom one that others write, too."""
        return f"shared-{self.rng.randrange(3)}.md" if self.rng.random() < 0.4 else f"own-{self.count}.md"


async def play(seed: int, folder: Path) -> None:
    story = Story(random.Random(seed))
    with running_git_host(folder / "hub") as hub:
        places = [Place(name, folder / name, hub) for name in ("one", "two")]
        try:
            for place in places:
                here = await place.start(founded=place is places[0])
                await here.machine.end_turn()
            for _ in range(STEPS):
                await story.step(story.rng.choice(places))
            for place in places:
                await comes_to_rest(place)
        except BaseException:
            print(f"\nFAILED: seed {seed}\n" + "\n".join(story.lines))
            raise
        finally:
            for place in places:
                await place.stop()


async def comes_to_rest(place: Place) -> None:
    await place.stop()
    here = await place.start(founded=False)
    await at_rest(here.writers)
    await here.machine.end_turn()
    records = await here.writers.of(AGENT)
    assert [one for one in records if one.state in OPEN] == []
    assert set(here.refs()) == {f"refs/lodger/writers/{one.id}" for one in records if one.state in KEPT and one.tip}
    assert set(here.folders()) == {one.id for one in records if one.state in KEPT and not one.tip}
    assert here.machine.fsck() == ""
    git = here.machine.published.git
    commits = git.line("rev-list", "--all").split()
    for marker in place.markers:
        found = git.attempt("grep", "-q", "-F", marker, *commits)
        assert found.exit_code == 0, f"{marker} of {place.name} is lost"


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_writers_committed_is_on_main_or_kept(seed: int, tmp_path: Path) -> None:
    await play(seed, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
async def test_what_writers_committed_is_on_main_or_kept_at_length(seed: int, tmp_path: Path) -> None:
    await play(seed, tmp_path)
