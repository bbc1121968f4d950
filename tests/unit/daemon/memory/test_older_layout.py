"""A memory of the older layout (BEHAVIOUR.md F1) is read as such, written as such, and stays so whatever moves."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from lodger_daemon.backends.core.system_prompt import PromptFacts, compile_system_prompt
from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.persons_change import Committed, Invalid
from lodger_daemon.memory.persons_view import list_files
from lodger_daemon.memory.settling import Decision, Settled
from lodger_daemon.models.practice.core.brain import Call, reply
from lodger_tools.validator.objects import parse_tree
from lodger_tools.validator.tree import Layout, layout_of
from support.git_host_server import TOKEN, RunningHost
from support.memory_conflicts import in_order
from support.memory_machines import AGENT, CARD, Machine, note
from support.patience import LIMIT_S
from support.persons_git import git
from support.plain_boxes import agent_environment, agent_git

PERSONA = "---\ndescription: Who I am\nlimit: 5000\n---\n\nI am Ada.\n"
LOCKED = "---\ndescription: House rules\nread_only: true\n---\n\nNo shoes indoors.\n"
FILES = {
    "system/persona.md": PERSONA,
    "system/rules.md": LOCKED,
    "reference/tea.md": "---\ndescription: How tea is made\n---\n\nWith water.\n",
    "skills/walk/SKILL.md": "---\nname: walk\ndescription: How to walk\n---\n\nOne foot, then the other.\n",
    "notes.md": "free\n",
}


def fact(text: str) -> str:
    return f"---\ndescription: A fact\n---\n\n{text}\n"


@pytest.fixture
def older(hub: RunningHost, tmp_path: Path) -> RunningHost:
    """A hub that has such a memory, as the reference made them: no card, no index."""
    place = tmp_path / "reference"
    git("init", "-q", "-b", "main", str(place))
    for name, text in FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    agent_git(place, "add", "-A")
    agent_git(place, "-c", "user.name=Ada", "-c", "user.email=a@b", "commit", "-q", "-m", "Initialize memory")
    git("-C", str(place), "push", "-q", hub.url(AGENT), "main", token=TOKEN)
    return hub


def layout(machine: Machine) -> Layout:
    published = machine.published
    return layout_of(parse_tree(published.reader.read(published.commit(published.head() or "").tree)[1]))


async def prompt_of(machine: Machine) -> str:
    compiled = await machine.memory.compiled(AGENT)
    return compile_system_prompt(PromptFacts("Ada", "", "/home/p/memory", compiled.text, compiled.layout))


async def told(machine: Machine, hub: RunningHost) -> SyncOutcome:
    machine.memory.head_announced(AGENT, hub.host.head(AGENT) or "")
    return (await machine.memory.settled(AGENT, LIMIT_S)).outcome


async def test_it_stays_what_it_is_over_syncs_conflicts_and_changes_of_a_person(
    tmp_path: Path, older: RunningHost
) -> None:
    one, two = Machine(tmp_path / "a", older), Machine(tmp_path / "b", older)
    try:
        for machine in (one, two):
            await machine.memory.prepare(AGENT, None)
        one.commit("system/north.md", fact("The harbour is at the north."))
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        two.commit("reference/ships.md", fact("Three ships."))
        assert (await two.end_turn()).outcome is SyncOutcome.PUSHED
        assert await told(one, older) is SyncOutcome.CLEAN
        assert one.published.head() == two.published.head() == older.host.head(AGENT)

        one.commit("system/north.md", fact("At the north-west."))
        await one.end_turn()
        two.commit("system/north.md", fact("At the north-east."))
        assert (await two.end_turn()).outcome is SyncOutcome.CONFLICT
        decided = fact("At the north-west, and a pier at the north-east.").encode()
        assert isinstance(await two.memory.settle(AGENT, Decision({"system/north.md": decided})), Settled)
        assert (await two.memory.settled(AGENT, LIMIT_S)).outcome is SyncOutcome.PUSHED
        assert await told(one, older) is SyncOutcome.CLEAN

        written = await one.memory.change_for_person(AGENT, "system/human.md", fact("I help Grace.").encode(), "write")
        assert isinstance(written, Committed)
        unlocked = LOCKED.replace("No shoes", "No boots")
        assert isinstance(
            await one.memory.change_for_person(AGENT, "system/rules.md", unlocked.encode(), "w"), Committed
        )
        assert isinstance(await one.memory.change_for_person(AGENT, "notes.md", None, "delete"), Committed)
        # A push on the way may have taken the last one along.
        assert (await one.memory.settled(AGENT, LIMIT_S)).outcome in (SyncOutcome.PUSHED, SyncOutcome.CLEAN)
        assert one.published.head() == older.host.head(AGENT)
        assert await told(two, older) is SyncOutcome.CLEAN
        in_order(one, two)
        assert layout(one) == layout(two) == Layout.V1
        names = agent_git(two.checkout, "ls-files").split()
        assert names == sorted({*FILES, "system/north.md", "reference/ships.md", "system/human.md"} - {"notes.md"})
        assert "pier" in (two.checkout / "system" / "north.md").read_text()
    finally:
        await one.memory.aclose()
        await two.memory.aclose()


async def test_prompt_and_list_know_its_core(tmp_path: Path, older: RunningHost) -> None:
    one = Machine(tmp_path / "a", older)
    try:
        await one.memory.prepare(AGENT, None)
        text = await prompt_of(one)
        assert '<memory_file path="system/persona.md">\nI am Ada.\n</memory_file>' in text
        assert "- reference/tea.md: How tea is made" in text
        assert "- skills/walk/SKILL.md: How to walk" in text
        assert ("With water" in text, "description:" in text, "One foot" in text) == (False, False, False)
        # What the agent is told of the form is what the validator asks for.
        assert "below system/" in text
        assert "`name` and `description`" not in text
        listed = await one.memory.look(AGENT, list_files)
        assert [file.path for file in listed if file.is_core] == ["system/persona.md", "system/rules.md"]
        before = one.memory.standing(AGENT)
        one.commit("system/north.md", fact("The harbour is at the north."))
        one.commit("notes.md", "freer\n")
        await one.bring_in()
        _, change = await one.memory.changed_since(AGENT, before)
        assert "+The harbour is at the north." in change
        assert ("- changed: notes.md" in change, "freer" in change) == (True, False)
    finally:
        await one.memory.aclose()


async def test_a_folder_of_that_name_is_no_core_where_there_is_an_index(tmp_path: Path, hub: RunningHost) -> None:
    """The prompt, the list for people and the word of a change go by one rule."""
    one = Machine(tmp_path / "a", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        before = one.memory.standing(AGENT)
        one.commit("system/solar.md", note("Eight planets.", "solar"))
        await one.bring_in()
        text = await prompt_of(one)
        assert "Eight planets." not in text
        assert "`name` and `description`" in text
        listed = await one.memory.look(AGENT, list_files)
        assert [file.path for file in listed if file.is_core] == ["MEMORY.md", "about-me.md"]
        _, change = await one.memory.changed_since(AGENT, before)
        assert ("- new: system/solar.md" in change, "Eight planets" in change) == (True, False)
    finally:
        await one.memory.aclose()


async def test_what_it_may_not_hold_is_not_published(tmp_path: Path, older: RunningHost) -> None:
    one = Machine(tmp_path / "a", older)
    try:
        await one.memory.prepare(AGENT, None)
        head = one.published.head()
        of_the_newer = "---\nname: x\ndescription: y\n---\n\nz\n"
        for path, text, word in (
            ("system/x.md", of_the_newer, "unknown key name"),
            ("MEMORY.md", "# Memory\n", "name is missing"),
            ("system/rules.md", LOCKED.replace("No", "Any"), "is read_only"),
            ("system/persona.md", PERSONA.replace("limit: 5000", "read_only: true"), "read_only"),
        ):
            one.commit(path, text)
            report = await one.bring_in()
            assert (report.moved, word in report.text) == (False, True), report.text
            agent_git(one.checkout, "reset", "-q", "--hard", head or "")
        assert isinstance(await one.memory.change_for_person(AGENT, "system/x.md", of_the_newer.encode(), "w"), Invalid)
        assert one.published.head() == head
        assert layout(one) is Layout.V1
    finally:
        await one.memory.aclose()


async def test_the_practice_model_remembers_in_its_form(tmp_path: Path, older: RunningHost) -> None:
    one = Machine(tmp_path / "a", older)
    try:
        await one.memory.prepare(AGENT, None)
        asked = [
            {"role": "system", "content": await prompt_of(one)},
            {"role": "user", "content": "Remember that the tide is high"},
        ]
        answer = reply(asked, [{"function": {"name": "Bash"}}])  # type: ignore[list-item]
        assert isinstance(answer, Call)
        environment = agent_environment() | {"MEMORY_DIR": str(one.checkout)}
        words = ("bash", "-c", str(answer.arguments["command"]))
        await asyncio.to_thread(subprocess.run, words, env=environment, check=True, timeout=LIMIT_S)
        assert (await one.bring_in()).moved
        assert layout(one) is Layout.V1
        assert "the tide is high\n</memory_file>" in (await one.memory.compiled(AGENT)).text
    finally:
        await one.memory.aclose()
