"""Folders seen through a real read-only box on them, over the wire."""

import asyncio
import base64
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lodger_daemon.identity import DEFAULT_CONVERSATION, AgentId, ConversationKey
from lodger_daemon.randomness import SeededRng
from lodger_daemon.service.folder_boxes import FolderBoxes
from lodger_daemon.service.place_commands import PlaceCommands
from lodger_daemon.service.workplaces import Workplaces
from lodger_protocol.limits import FILE_CONTENT_LIMIT_BYTES
from lodger_tools.box.contract import BoxCall, BoxKey, RunCommand
from lodger_tools.box.manager import BoxManager
from lodger_tools.json_value import JsonObject
from support.real_boxes import RealRequests, box_user_for_tests, workspace_for_tests
from support.turn_parts import House, TurnOptions
from support.wire_client import Frame, WireClient, WireHouse


@pytest.fixture
def workspace() -> Iterator[Path]:
    with workspace_for_tests() as folder:
        (folder / "new" / "dir").mkdir(parents=True)
        (folder / "new" / "dir" / "file.txt").write_text("alpha\n")
        (folder / "notes").mkdir()
        (folder / ".hidden").mkdir()
        (folder / ".git").mkdir()
        (folder / ".git" / "config").write_text("")
        (folder / "node_modules" / "app").mkdir(parents=True)
        (folder / "app.py").write_text("print()\n")
        (folder / "README.md").write_text("hello world\n")
        (folder / "image.png").write_bytes(b"\x89PNG\xff")
        yield folder


class Rig:
    def __init__(self, state: Path, workspace: Path) -> None:
        self.house = House(state, TurnOptions(workspace=str(workspace)))
        self.wire = WireHouse(self.house)
        self.boxes = BoxManager(state / "boxes", RealRequests(state, Path.home()))
        self.workspace = workspace

    async def open(self) -> WireClient:
        await self.house.start()
        folders = FolderBoxes(self.boxes, SeededRng(3))
        self.workplaces = Workplaces(self.boxes, folders, self.house.clock)
        places = PlaceCommands(self.house.conversations, folders)
        self.wire.serve(places=places, workplaces=self.workplaces)
        return self.wire.client()

    async def close(self) -> None:
        await self.wire.router.aclose()
        await self.workplaces.aclose()
        for status in self.boxes.statuses():
            await self.boxes.end(status.key)
        await self.boxes.aclose()
        await self.house.close()


@pytest.fixture
async def rig(tmp_path: Path, workspace: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path, workspace)
    yield rig
    await rig.close()


def listing(path: Path | str, **fields: object) -> Frame:
    return {"type": "list_in_directory", "request_id": f"l{path}{fields}", "path": str(path), **fields}


def reading(path: Path | str, **fields: object) -> Frame:
    return {"type": "read_file", "request_id": f"r{path}{fields}", "path": str(path), **fields}


async def test_folders_and_files_as_recorded(rig: Rig) -> None:
    """The sequence of capture 11, as far as it reads."""
    client, folder = await rig.open(), rig.workspace
    assert await client.ask(listing(folder, include_files=True)) == {
        "type": "list_in_directory_response",
        "request_id": client.frames[-1]["request_id"],
        "success": True,
        "path": str(folder),
        "folders": [".hidden", "new", "node_modules", "notes"],
        "files": ["app.py", "image.png", "README.md"],
        "hasMore": False,
        "total": 7,
    }
    page = await client.ask(listing(folder, include_files=True, limit=2, offset=3))
    assert (page["folders"], page["files"], page["hasMore"], page["total"]) == (["notes"], ["app.py"], True, 7)
    folders_only = await client.ask(listing(folder))
    assert folders_only["total"] == 4
    assert "files" not in folders_only
    missing = await client.ask(listing(folder / "nope", include_files=True))
    assert (missing["success"], missing["folders"], missing["hasMore"]) == (False, [], False)

    tree = {"type": "get_tree", "request_id": "t1", "path": str(folder), "depth": 3}
    near = [
        {"path": ".hidden", "type": "dir"},
        {"path": "new", "type": "dir"},
        {"path": "notes", "type": "dir"},
        {"path": "app.py", "type": "file"},
        {"path": "image.png", "type": "file"},
        {"path": "README.md", "type": "file"},
    ]
    deep = [{"path": "new/dir", "type": "dir"}, {"path": "new/dir/file.txt", "type": "file"}]
    whole = await client.ask(tree)
    assert (whole["entries"], whole["has_more_depth"]) == ([*near, *deep], False)
    one = await client.ask({**tree, "request_id": "t2", "depth": 1})
    assert (one["entries"], one["has_more_depth"]) == (near, True)
    none = await client.ask({**tree, "request_id": "t3", "path": f"{folder}/nope"})
    assert (none["success"], none["entries"], none["has_more_depth"]) == (True, [], False)

    found = await client.ask(
        {"type": "search_files", "request_id": "s1", "query": "APP", "cwd": str(folder), "max_results": 5}
    )
    assert found["files"] == [{"path": "app.py", "type": "file"}]
    few = await client.ask({"type": "search_files", "request_id": "s2", "query": ""})
    assert few["files"] == near[:5]


async def test_reading_files(rig: Rig) -> None:
    client, folder = await rig.open(), rig.workspace
    assert await client.ask(reading(folder / "README.md")) == {
        "type": "read_file_response",
        "request_id": client.frames[-1]["request_id"],
        "success": True,
        "path": f"{folder}/README.md",
        "content": "hello world\n",
        "encoding": "utf8",
    }
    image = await client.ask(reading(folder / "image.png", encoding="base64"))
    assert (base64.b64decode(image["content"]), image["encoding"]) == (b"\x89PNG\xff", "base64")
    for refused, words in (
        (reading(folder / "image.png"), "not UTF-8"),
        (reading(folder / "missing.txt"), "no file"),
        (reading(folder / "new"), "is no file"),
        (reading(folder / "README.md", encoding="latin1"), "Malformed read_file: encoding"),
    ):
        answer = await client.ask(refused)
        assert (answer["success"], answer["content"]) == (False, None)
        assert words in answer["error"]


async def test_a_file_of_the_largest_size_reaches_a_client_that_keeps_up(rig: Rig) -> None:
    client, folder = await rig.open(), rig.workspace
    large = folder / "large.bin"
    with large.open("wb") as file:
        file.truncate(FILE_CONTENT_LIMIT_BYTES)
    for name in ("first", "second"):
        await client.say({**reading(large, encoding="base64"), "request_id": name})
    await client.until(lambda: len(client.of("read_file_response")) == 2)
    for answer in client.of("read_file_response"):
        assert len(base64.b64decode(answer["content"])) == FILE_CONTENT_LIMIT_BYTES
    with large.open("ab") as file:
        file.write(b"x")
    assert "larger than 25 MiB" in (await client.ask({**reading(large), "request_id": "more"}))["error"]
    assert not client.was_cut


@pytest.mark.parametrize(
    "path", ["/", "/etc/passwd", "/root", "{0}/../other", "{0}x/file", "relative", "{0}/a\0b", "{0}/../../etc/shadow"]
)
async def test_what_no_agent_works_in_is_refused(rig: Rig, path: str) -> None:
    client = await rig.open()
    path = path.format(rig.workspace)
    for command in (listing(path), reading(path)):
        answer = await client.ask(command)
        assert not answer["success"]
        assert "no folder that an agent" in answer["error"] or "no absolute path" in answer["error"]
    assert rig.boxes.statuses() == ()


async def test_links_lead_no_further_than_the_box(rig: Rig, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hidden")
    (rig.workspace / "link").symlink_to(secret)
    (rig.workspace / "folder").symlink_to(tmp_path)
    client = await rig.open()
    for command in (reading(rig.workspace / "link"), reading(rig.workspace / "folder/secret.txt")):
        assert not (await client.ask(command))["success"]
    os.mkfifo(rig.workspace / "pipe")
    assert "is no file" in (await client.ask(reading(rig.workspace / "pipe")))["error"]


async def test_nothing_can_be_written_from_such_a_box(rig: Rig) -> None:
    client = await rig.open()
    await client.ask(listing(rig.workspace))
    (status,) = rig.boxes.statuses()
    outcome = await rig.boxes.run(status.key, BoxCall("k", RunCommand("touch made"), str(rig.workspace)))
    assert outcome.status == "error"
    assert not (rig.workspace / "made").exists()


async def test_boot_folder_is_kept_and_used(rig: Rig, tmp_path: Path) -> None:
    client, folder = await rig.open(), rig.workspace
    chosen = folder / "notes"
    agent = str(rig.house.key.agent_id)
    first = await client.ask({"type": "get_cwd_map", "request_id": "m1"})
    assert (first["cwd_map"], first["boot_working_directory"]) == ({}, str(folder))
    boot = {"type": "set_boot_working_directory", "request_id": "b1", "cwd": str(chosen)}
    assert await client.ask(boot) == {
        "type": "set_boot_working_directory_response",
        "request_id": "b1",
        "success": True,
        "boot_working_directory": str(chosen),
        "cwd_revision": 1,
    }
    refused = await client.ask({**boot, "request_id": "b2", "cwd": f"{folder}/nope"})
    assert (refused["success"], refused["boot_working_directory"], refused["cwd_revision"]) == (False, str(chosen), 1)
    started = {"type": "runtime_start", "request_id": "rs", "agent_id": agent, "conversation_id": "default"}
    await client.ask(started)
    await client.until(lambda: bool(client.of("update_device_status")))
    assert client.of("update_device_status")[0]["device_status"]["current_working_directory"] == str(chosen)
    made = await client.ask({**started, "request_id": "rs2", "conversation_id": None, "cwd": str(folder / "new")})
    await client.ask({**started, "request_id": "rs3", "cwd": str(folder)})
    second = await client.ask({"type": "get_cwd_map", "request_id": "m2"})
    assert second["cwd_map"] == {
        f"conversation:{made['runtime']['conversation_id']}": str(folder / "new"),
        f"agent:{agent}::conversation:default": str(folder),
    }
    rig.house.options = TurnOptions(workspace=str(folder))
    await rig.house.restart()
    await rig.house.conversations.recover()
    assert (await rig.house.conversations.folders()).boot == str(chosen)


def make_repository(folder: Path) -> None:
    user = box_user_for_tests()
    (folder / ".git" / "config").unlink()
    (folder / ".git").rmdir()
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*argv: str) -> None:
        named = ("-c", "user.name=u", "-c", "user.email=u@x.invalid", "-c", "safe.directory=*")
        subprocess.run(("git", "-C", str(folder), *named, *argv), env=environment, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("add", "app.py")
    git("commit", "-q", "-m", "first")
    git("branch", "other")
    git("branch", "feature/one")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user.uid, user.gid, follow_symlinks=False)


async def test_branches(rig: Rig) -> None:
    make_repository(rig.workspace)
    client = await rig.open()
    ask: JsonObject = {"type": "search_branches", "request_id": "b1", "query": ""}
    found = await client.ask(ask)
    assert sorted(found["branches"], key=lambda branch: str(branch["name"])) == [
        {"name": "feature/one", "is_current": False, "is_remote": False},
        {"name": "main", "is_current": True, "is_remote": False},
        {"name": "other", "is_current": False, "is_remote": False},
    ]
    one = await client.ask({**ask, "request_id": "b2", "query": "FEAT", "max_results": "nonsense", "cwd": 7})
    assert [branch["name"] for branch in one["branches"]] == ["feature/one"]
    none = await client.ask({**ask, "request_id": "b3", "cwd": f"{rig.workspace}/nope"})
    assert (none["success"], none["branches"]) == (False, [])


async def test_git_context_appears_once_the_agent_has_a_box(rig: Rig) -> None:
    make_repository(rig.workspace)
    client = await rig.open()
    agent = str(rig.house.key.agent_id)
    start = {"type": "runtime_start", "request_id": "rs", "agent_id": agent, "conversation_id": "default"}
    await client.ask(start)
    await client.until(lambda: bool(client.of("update_device_status")))
    assert client.of("update_device_status")[-1]["device_status"]["git_context"] is None
    tasks = asyncio.all_tasks()
    assert rig.workplaces.git_context(AgentId(agent), f"{rig.workspace}/notes", lambda: None) is None
    assert asyncio.all_tasks() == tasks
    assert rig.boxes.statuses() == ()

    call = BoxCall("k1", RunCommand("sleep 600 & echo started"), str(rig.workspace))
    await rig.boxes.run(BoxKey(agent, str(rig.workspace)), call)
    await client.ask({**start, "request_id": "rs2"})
    await client.until(lambda: client.of("update_device_status")[-1]["device_status"]["git_context"] is not None)
    status = client.of("update_device_status")[-1]["device_status"]
    assert status["git_context"]["branch"] == "main"
    assert sorted(status["git_context"]["recent_branches"]) == ["feature/one", "other"]
    (process,) = status["background_processes"]
    assert (process["kind"], process["status"]) == ("bash", "running")
    assert process["command"].endswith(": 1]")
    stranger = ConversationKey(AgentId("agent-other"), DEFAULT_CONVERSATION)
    assert rig.workplaces.background_processes(stranger, str(rig.workspace)) == ()
