"""Memory commands (PROTOCOL.md 4.6, capture 12) with real git, over the wire."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import AgentCard
from lodger_daemon.memory.core.wanted_paths import BadRequest, wanted_path, wanted_revision
from lodger_daemon.memory.core.wiki_links import REFERENCES_LIMIT, by_name, references
from lodger_daemon.memory.persons_view import DIFF_LIMIT_BYTES
from lodger_daemon.memory.published import CHECKOUT, Published
from lodger_daemon.service.memory_commands import MemoryCommands
from lodger_tools.box.contract import BoxKey
from support.memory_machines import Machine, note
from support.plain_boxes import INSIDE, agent_git
from support.turn_parts import House
from support.wire_client import Frame, WireClient, WireHouse

TODO = "---\nname: todo\ndescription: todo list\n---\n\n- first\n"


class Rig:
    """The conversations of one house and the memory of one machine, for the same agent."""

    def __init__(self, folder: Path) -> None:
        self.house = House(folder)
        self.machine = Machine(folder / "machine", None)
        self.wire = WireHouse(self.house)
        self.count = 0

    async def open(self) -> None:
        await self.house.start()
        self.agent = AgentId(str(self.house.key.agent_id))
        self.box = BoxKey(self.agent, str(self.house.folder))
        commands = MemoryCommands(self.machine.memory, self.house.conversations, INSIDE, self.house.clock)
        self.wire.serve(memory=commands)
        self.client: WireClient = self.wire.client()

    async def ask(self, command: str, **fields: object) -> Frame:
        self.count += 1
        frame = {"type": command, "request_id": f"{command}-{self.count}", "agent_id": self.agent, **fields}
        return await self.client.ask(frame)

    async def write(self, path: str, content: str, **fields: object) -> Frame:
        return await self.ask("write_memory_file", path=path, content=content, **fields)

    @property
    def published(self) -> Published:
        return self.machine.memory.repository(self.agent, None).room.published

    @property
    def checkout(self) -> Path:
        return Path(self.machine.memory.checkout_path(self.agent))

    async def close(self) -> None:
        await self.wire.router.aclose()
        await self.machine.memory.aclose()
        await self.house.close()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    await rig.open()
    yield rig
    await rig.close()


async def test_as_recorded(rig: Rig) -> None:
    """The sequence of capture 12, with the front matter that a memory of Lodger has."""
    first = await rig.ask("list_memory", include_references=True)
    assert (first["total"], first["done"], first["memfs_enabled"], first["memfs_initialized"]) == (2, True, True, True)
    assert [entry["relative_path"] for entry in first["entries"]] == ["MEMORY.md", "about-me.md"]

    written = await rig.write("notes/todo.md", TODO, commit_message="add todo")
    assert written == {
        "type": "write_memory_file_response",
        "request_id": written["request_id"],
        "success": True,
        "agent_id": rig.agent,
        "path": "notes/todo.md",
        "committed": True,
        "commit_sha": rig.published.head(),
    }
    assert rig.client.frames[-2] == {
        "type": "memory_updated",
        "affected_paths": ["notes/todo.md"],
        "timestamp": int(rig.house.clock.wall() * 1000),
    }
    read = await rig.ask("read_memory_file", path="notes/todo.md")
    assert (read["content"], read["encoding"], read["agent_id"]) == (TODO, "utf8", rig.agent)
    none = await rig.ask("read_memory_file", path="notes/none.md")
    assert (none["success"], none["content"], none["encoding"]) == (False, None, "utf8")
    outside = await rig.ask("read_memory_file", path="../../etc/passwd")
    assert (outside["error"], outside["content"]) == ("path must resolve inside the memory root", None)
    escape = await rig.write("../escape.md", "x")
    assert escape["error"] == "write_memory_file: path must resolve inside the memory root"
    assert "committed" not in escape

    await rig.write("profile.png", "iVBORw0KGgo=", encoding="base64")
    second = await rig.write("notes/todo.md", TODO + "- second\n")
    whole = await rig.ask("memory_history")
    assert [commit["message"] for commit in whole["commits"]] == [
        "Update memory file notes/todo.md",
        "Update memory file profile.png",
        "add todo",
        "Begin this memory",
    ]
    assert {commit["author_name"] for commit in whole["commits"][:3]} == {"person"}
    one = await rig.ask("memory_history", file_path="notes/todo.md", limit=5)
    assert [commit["sha"] for commit in one["commits"]] == [second["commit_sha"], written["commit_sha"]]
    old = await rig.ask("memory_file_at_ref", file_path="notes/todo.md", ref=written["commit_sha"])
    assert (old["content"], old["ref"], old["file_path"]) == (TODO, written["commit_sha"], "notes/todo.md")
    absent = await rig.ask("memory_file_at_ref", file_path="notes/absent.md", ref=written["commit_sha"])
    assert (absent["success"], absent["content"]) == (False, None)
    diff = await rig.ask("memory_commit_diff", sha=second["commit_sha"])
    assert diff["diff"].startswith("diff --git a/notes/todo.md b/notes/todo.md\nindex ")
    assert diff["diff"].endswith(" - first\n+- second\n")
    unknown = await rig.ask("memory_commit_diff", sha="deadbeef")
    assert (unknown["success"], unknown["diff"], unknown["sha"]) == (False, None, "deadbeef")

    listed = await rig.ask("list_memory")
    assert listed["entries"][2:] == [
        {
            "relative_path": "notes/todo.md",
            "is_system": False,
            "description": "todo list",
            "content": "- first\n- second",
            "size": 16,
            "kind": "markdown",
            "mime_type": "text/markdown",
        },
        {
            "relative_path": "profile.png",
            "is_system": False,
            "description": None,
            "content": "",
            "size": 8,
            "kind": "image",
            "mime_type": "image/png",
        },
    ]
    image = await rig.ask("read_memory_file", path="profile.png", encoding="base64")
    assert base64.b64decode(image["content"]) == base64.b64decode("iVBORw0KGgo=")
    dropped = await rig.ask("delete_memory_file", path="notes/todo.md", commit_message="drop")
    assert (dropped["committed"], dropped["commit_sha"]) == (True, rig.published.head())
    again = await rig.ask("delete_memory_file", path="notes/todo.md")
    assert (again["success"], again["committed"], "commit_sha" in again) == (True, False, False)
    enabled = await rig.ask("enable_memfs")
    assert enabled["memory_directory"] == INSIDE
    assert rig.client.frames[-1]["affected_paths"] == ["*"]
    await rig.machine.memory.settled(rig.agent, 30)
    assert rig.published.git.line("fsck", "--full", "--strict", "--no-dangling") == ""


async def test_the_checkout_follows_a_persons_change(rig: Rig) -> None:
    await rig.ask("list_memory")
    written = await rig.write("notes/todo.md", TODO)
    await rig.machine.memory.settled(rig.agent, 30)
    assert agent_git(rig.checkout, "rev-parse", "main") == written["commit_sha"] == rig.published.ref(CHECKOUT)
    assert (rig.checkout / "notes" / "todo.md").read_text() == TODO
    assert agent_git(rig.checkout, "status", "--porcelain") == ""
    await rig.ask("delete_memory_file", path="notes/todo.md")
    await rig.machine.memory.settled(rig.agent, 30)
    assert not (rig.checkout / "notes").exists()


async def test_a_list_comes_five_at_a_time(rig: Rig) -> None:
    for index in range(11):
        assert (await rig.write(f"notes/n{index:02}.md", note(f"see [[n{index + 1:02}]] and [[gone]]")))["success"]
    rig.client.forget()
    request = {"type": "list_memory", "request_id": "all", "agent_id": rig.agent, "include_references": True}
    await rig.client.say(request)
    await rig.client.until(lambda: any(frame.get("done") for frame in rig.client.frames))
    assert [len(frame["entries"]) for frame in rig.client.frames] == [5, 5, 3]
    assert [frame["done"] for frame in rig.client.frames] == [False, False, True]
    assert {(frame["total"], frame["request_id"]) for frame in rig.client.frames} == {(13, "all")}
    entries = [entry for frame in rig.client.frames for entry in frame["entries"]]
    assert entries[2]["references"] == ["notes/n01.md"]
    assert entries[-1]["references"] == []
    assert [entry["is_system"] for entry in entries] == [True, True, *[False] * 11]


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("notes/bare.md", "no front matter", "front"),
        ("notes/CON.md", note("x"), "Windows"),
        (".git/hooks/post-commit", "x", "git's own"),
        ("a/.GIT/config", "x", "git's own"),
        (".gitmodules", "x", "git's own"),
        ("MEMORY.md/x.md", note("x"), "is a file"),
        ("/etc/x.md", note("x"), "inside the memory root"),
        ("a/../../x.md", note("x"), "inside the memory root"),
        ("notes/a\0b.md", note("x"), "inside the memory root"),
        ("notes/large.md", note("x" * 300_000), "at most"),
    ],
)
async def test_what_breaks_a_memory_is_not_published(rig: Rig, path: str, content: str, words: str) -> None:
    await rig.ask("list_memory")
    before = rig.published.head()
    refused = await rig.write(path, content)
    assert (refused["success"], "commit_sha" in refused) == (False, False)
    assert words in refused["error"] and refused["error"].startswith("write_memory_file: ")
    assert rig.published.head() == before
    assert rig.client.of("memory_updated") == []


async def test_the_index_cannot_be_deleted_nor_a_folder(rig: Rig) -> None:
    await rig.write("notes/todo.md", TODO)
    for path, words in (("MEMORY.md", "the index MEMORY.md is missing"), ("notes", "is a folder")):
        refused = await rig.ask("delete_memory_file", path=path)
        assert not refused["success"]
        assert words in refused["error"]


async def test_a_person_may_change_what_agents_may_not(rig: Rig) -> None:
    await rig.ask("list_memory")
    toml = (await rig.ask("read_memory_file", path="agent.toml"))["content"]
    assert (await rig.write("agent.toml", toml + 'read_only = ["about-me.md"]\n'))["committed"]
    assert (await rig.write("about-me.md", note("I am somebody else.", "about-me")))["committed"]
    await rig.machine.memory.settled(rig.agent, 30)
    (rig.checkout / "about-me.md").write_text(note("I am free.", "about-me"))
    agent_git(rig.checkout, "commit", "-q", "-a", "-m", "free")
    report = await rig.machine.memory.import_commits(rig.agent, rig.box)
    assert not report.moved
    assert "read_only" in report.text


async def test_the_same_content_makes_no_commit(rig: Rig) -> None:
    await rig.write("notes/todo.md", TODO)
    rig.client.forget()
    again = await rig.write("notes/./todo.md", TODO)
    assert (again["success"], again["committed"]) == (True, False)
    assert rig.client.of("memory_updated") == []


async def test_agents_and_requests_that_are_not_there(rig: Rig) -> None:
    for command, fields in (
        ("list_memory", {}),
        ("memory_history", {}),
        ("read_memory_file", {"path": "MEMORY.md"}),
        ("write_memory_file", {"path": "x.md", "content": ""}),
    ):
        answer = await rig.ask(command, **{**fields, "agent_id": "agent-none"})
        assert (answer["success"], answer["error"]) == (False, "Agent agent-none not found")
    assert not (await rig.ask("read_memory_file"))["success"]
    assert (await rig.ask("memory_history", limit="nonsense"))["success"]
    assert not (rig.machine.paths.agents / "agent-none").exists()


@pytest.mark.parametrize(
    "revision",
    ["HEAD~1", "--all", "main@{0}", "refs/lodger/checkout", "x" * 40, "DEADBEEF", "abc", "main:MEMORY.md", ":/Begin"],
)
async def test_git_gives_no_meaning_to_a_revision(rig: Rig, revision: str) -> None:
    await rig.ask("list_memory")
    for command in ("memory_file_at_ref", "memory_commit_diff"):
        answer = await rig.ask(command, file_path="MEMORY.md", ref=revision, sha=revision)
        assert not answer["success"]
        assert "names no commit" in answer["error"]


async def test_a_commit_by_the_beginning_of_its_id_and_main_by_name(rig: Rig) -> None:
    written = await rig.write("notes/todo.md", TODO)
    for ref in (written["commit_sha"][:10], "HEAD", "main"):
        assert (await rig.ask("memory_file_at_ref", file_path="notes/todo.md", ref=ref))["content"] == TODO
    tree = rig.published.git.line("rev-parse", f"{written['commit_sha']}^{{tree}}")
    assert not (await rig.ask("memory_commit_diff", sha=tree))["success"]


async def test_a_long_diff_is_cut(rig: Rig) -> None:
    await rig.ask("list_memory")
    line = "x" * 99 + "\n"
    for index in range(10):
        folder = rig.checkout / "notes"
        folder.mkdir(exist_ok=True)
        (folder / f"n{index}.md").write_text(note(line * 2400))
    agent_git(rig.checkout, "add", "-A")
    agent_git(rig.checkout, "commit", "-q", "-m", "much")
    assert (await rig.machine.memory.import_commits(rig.agent, rig.box)).moved
    diff = (await rig.ask("memory_commit_diff", sha="main"))["diff"]
    assert len(diff) <= DIFF_LIMIT_BYTES + 100
    assert diff.endswith("[The rest of this commit is not shown.]\n")


async def test_a_memory_that_is_not_made_yet_is_waited_for(rig: Rig) -> None:
    assert not rig.published.exists()
    assert (await rig.ask("read_memory_file", path="MEMORY.md"))["success"]
    assert await rig.machine.memory.prepare(rig.agent, None) == AgentCard("Lodger", "", "test/model", None)


def test_paths() -> None:
    assert wanted_path("a/./b//c.md") == ("a", "b", "c.md")
    assert wanted_path("a/../b.md") == ("b.md",)
    for text in (
        "",
        ".",
        "..",
        "/",
        "/a",
        "//a",
        "../a",
        "a/../..",
        "a\0",
        ".git",
        "a/.gitignore",
        ".\uff27\uff29\uff34/x",
        "\ud800.md",
    ):
        with pytest.raises(BadRequest):
            wanted_path(text)
    assert (wanted_revision("HEAD"), wanted_revision("main"), wanted_revision("abcd")) == (None, None, "abcd")


def test_references() -> None:
    paths = ("MEMORY.md", "a/one.md", "a/two.md", "b/two.md", "b/three.md")
    names = by_name(paths)

    def seen(text: str, source: str = "a/one.md") -> tuple[str, ...]:
        return references(text, source, paths, names)

    assert seen("[[b/two]] [[two]] [[three|shown]] [[three#part]] [[MEMORY.md]]") == (
        "b/two.md",
        "a/two.md",
        "b/three.md",
        "MEMORY.md",
    )
    assert seen("[[two]]", "MEMORY.md") == ()
    assert seen("[[../b/three]]") == ("b/three.md",)
    assert seen("[[nothing]] [[]] [not] [[a\nb]] [[../../etc/passwd]]") == ()
    many = tuple(f"n{index}.md" for index in range(REFERENCES_LIMIT + 5))
    text = "".join(f"[[{path}]]" for path in many)
    assert len(references(text, "x.md", many, by_name(many))) == REFERENCES_LIMIT
