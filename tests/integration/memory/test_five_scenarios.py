"""What memory that travels is for, told as five scenes, each over our hub and over a git host that is not ours."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome, SyncStatus
from lodger_daemon.memory.core.git_addresses import parse_git_address
from lodger_daemon.memory.core.writers import WriterKind, WriterState
from lodger_daemon.memory.remote import ForeignRemote, MemoryRemote, Remote
from support.foreign_git_host import running_foreign_host
from support.git_host_server import TOKEN, running_git_host
from support.memory_conflicts import in_order
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git
from support.writer_machines import make_writers, open_database, write_in

KINDS = ("hub", "foreign")
AUTOCRLF = "[core]\n\tautocrlf = true\n\teol = crlf\n\tsafecrlf = false\n"


@dataclass(slots=True)
class Place:
    """Where the machines meet: a remote, and its repository as stock git sees it."""

    remote: Remote
    repository: Path

    def head(self) -> str:
        return agent_git(self.repository, "rev-parse", "main")

    def holds(self, path: str) -> str:
        return agent_git(self.repository, "show", f"main:{path}")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with meeting_place(request.param, tmp_path / "remote") as made:
        yield made


@contextmanager
def meeting_place(kind: str, folder: Path) -> Iterator[Place]:
    if kind == "hub":
        with running_git_host(folder) as running:
            yield Place(MemoryRemote(running.base_url, lambda: TOKEN), running.host._repositories.path(AGENT))
        return
    with running_foreign_host(folder, AGENT) as base_url:
        address = parse_git_address(f"{base_url.replace('http://', 'http://letta@')}/v1/git/{{agent}}/state.git")
        yield Place(ForeignRemote(address, lambda: TOKEN), folder / "v1" / "git" / AGENT / "state.git")


@asynccontextmanager
async def laptop_and_desktop(folder: Path, place: Place) -> AsyncIterator[tuple[Machine, Machine]]:
    """Both have the agent's memory; only the laptop has made anything of it."""
    laptop = Machine(folder / "laptop", None, remote=place.remote)
    desktop = Machine(folder / "desktop", None, remote=place.remote)
    try:
        await laptop.memory.prepare(AGENT, CARD)
        laptop.commit("fact.md", note("blue"))
        assert (await laptop.end_turn()).outcome is SyncOutcome.PUSHED
        await desktop.memory.prepare(AGENT, None)
        yield laptop, desktop
    finally:
        await laptop.memory.aclose()
        await desktop.memory.aclose()


async def a_turn_begins(machine: Machine, place: Place) -> SyncStatus:
    """What a turn's start does, later than the remote was last asked; a hub has announced its head by then."""
    if place.remote.announces:
        machine.memory.head_announced(AGENT, place.head())
    machine.memory.repository(AGENT, None).ask_again_at = 0.0
    await machine.memory.freshen(AGENT, 30)
    return await machine.memory.settled(AGENT, 30)


async def test_a_fact_told_to_the_laptop_is_known_to_the_desktop_that_never_spoke(tmp_path: Path, place: Place) -> None:
    async with laptop_and_desktop(tmp_path, place) as (laptop, desktop):
        before = desktop.published.head()
        laptop.commit("key.md", note("The key is under the stone.", "key"))
        assert (await laptop.end_turn()).outcome is SyncOutcome.PUSHED
        assert "under the stone" in place.holds("key.md")
        await a_turn_begins(desktop, place)
        assert "under the stone" in (await desktop.memory.compiled(AGENT)).text
        assert "key.md" in (await desktop.memory.changed_since(AGENT, before))[1]
        assert (desktop.checkout / "key.md").read_text() == note("The key is under the stone.", "key")
        assert laptop.published.head() == desktop.published.head() == place.head()
        in_order(laptop, desktop)


async def test_different_files_merge_by_themselves(tmp_path: Path, place: Place) -> None:
    async with laptop_and_desktop(tmp_path, place) as (laptop, desktop):
        laptop.commit("laptop.md", note("of the laptop"))
        desktop.commit("desktop.md", note("of the desktop"))
        assert (await laptop.end_turn()).outcome is SyncOutcome.PUSHED
        assert (await desktop.end_turn()).outcome is SyncOutcome.PUSHED
        await a_turn_begins(laptop, place)
        for machine in (laptop, desktop):
            assert (machine.checkout / "laptop.md").read_text() == note("of the laptop")
            assert (machine.checkout / "desktop.md").read_text() == note("of the desktop")
            assert machine.memory.reminders(AGENT) == ()
            assert machine.published.head() == place.head()
        in_order(laptop, desktop)


async def test_the_same_line_conflicts_and_neither_side_is_lost(tmp_path: Path, place: Place) -> None:
    async with laptop_and_desktop(tmp_path, place) as (laptop, desktop):
        theirs = laptop.commit("fact.md", note("green"))
        ours = desktop.commit("fact.md", note("red"))
        assert (await laptop.end_turn()).outcome is SyncOutcome.PUSHED
        assert (await desktop.end_turn()).outcome is SyncOutcome.CONFLICT
        assert place.head() == theirs
        assert "fact.md" in desktop.memory.reminders(AGENT)[0]
        kept = desktop.published.git.line("for-each-ref", "--format=%(objectname)", "refs/lodger/conflict").split()
        assert set(kept) == {theirs, ours}
        assert (desktop.checkout / "fact.md").read_text() == note("red")
        assert agent_git(desktop.checkout, "show", "refs/lodger/theirs:fact.md") == note("green").strip()
        desktop.commit("fact.md", note("green on Mondays, else red"))
        assert (await desktop.end_turn()).outcome is SyncOutcome.PUSHED
        await a_turn_begins(laptop, place)
        assert (laptop.checkout / "fact.md").read_text() == note("green on Mondays, else red")
        assert laptop.published.is_ancestor(theirs, place.head())
        in_order(laptop, desktop)


async def test_a_background_writer_merges_over_what_another_machine_pushed(tmp_path: Path, place: Place) -> None:
    async with laptop_and_desktop(tmp_path, place) as (laptop, desktop):
        database = open_database(desktop)
        writers = make_writers(desktop, database)
        try:
            opened = await writers.open(AGENT, WriterKind.REFLECTION)
            write_in(opened, "fact.md", note("blue\n\nSaid twice."))
            write_in(opened, "habits.md", note("Rises early.", "habits"))
            laptop.commit("key.md", note("The key is under the stone.", "key"))
            laptop.commit("about-me.md", (laptop.checkout / "about-me.md").read_text() + "\nI am at the sea.\n")
            assert (await laptop.end_turn()).outcome is SyncOutcome.PUSHED
            pushed = place.head()
            ended = await writers.done(opened.id, "Two habits.")
            assert ended.state is WriterState.MERGED
            assert (await desktop.memory.settled(AGENT, 30)).outcome is SyncOutcome.PUSHED
            # Without a merge commit: over what was pushed, in the order in which it was written.
            log = agent_git(place.repository, "log", "--format=%P", f"{pushed}..main").split()
            assert log[-1] == pushed
            assert len(log) == 2
            assert "under the stone" in (desktop.checkout / "key.md").read_text()
            await a_turn_begins(laptop, place)
            for machine in (laptop, desktop):
                assert (machine.checkout / "fact.md").read_text() == note("blue\n\nSaid twice.")
                assert (machine.checkout / "habits.md").read_text() == note("Rises early.", "habits")
                assert "I am at the sea." in (machine.checkout / "about-me.md").read_text()
                assert machine.memory.reminders(AGENT) == ()
                assert machine.published.head() == place.head()
            in_order(laptop, desktop)
        finally:
            await writers.aclose()
            await database.aclose()


async def test_a_global_core_autocrlf_changes_nothing(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(AUTOCRLF)
    monkeypatch.setenv("HOME", str(home))
    windows_like = Machine(tmp_path / "windows-like", None, remote=place.remote)
    windows_like.boxes.home = str(home)
    try:
        async with laptop_and_desktop(tmp_path, place) as (laptop, _):
            laptop.commit("fact.md", note("blue\ngreen"))
            (laptop.checkout / "crlf.md").write_bytes(note("one\ntwo").replace("\n", "\r\n").encode())
            laptop.commit("more.md", note("more"))
            assert (await laptop.end_turn()).outcome is SyncOutcome.PUSHED
            await windows_like.memory.prepare(AGENT, None)
            for name in ("fact.md", "crlf.md", "more.md"):
                assert (windows_like.checkout / name).read_bytes() == (laptop.checkout / name).read_bytes()
            assert agent_git(windows_like.checkout, "status", "--porcelain", home=str(home)) == ""
            (windows_like.checkout / "lines.md").write_bytes(note("three\nfour").encode())
            agent_git(windows_like.checkout, "add", "-A", home=str(home))
            agent_git(windows_like.checkout, "commit", "-q", "-m", "lines", home=str(home))
            assert (await windows_like.end_turn()).outcome is SyncOutcome.PUSHED
            await a_turn_begins(laptop, place)
            assert (laptop.checkout / "lines.md").read_bytes() == note("three\nfour").encode()
            laptop.commit("fact.md", note("blue\nred"))
            assert (await laptop.end_turn()).outcome is SyncOutcome.PUSHED
            await a_turn_begins(windows_like, place)
            # An update of the checkout writes files as well.
            assert (windows_like.checkout / "fact.md").read_bytes() == note("blue\nred").encode()
            assert agent_git(windows_like.checkout, "status", "--porcelain", home=str(home)) == ""
            in_order(laptop, windows_like)
    finally:
        await windows_like.memory.aclose()
