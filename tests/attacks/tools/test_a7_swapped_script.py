"""A7: the script of an allowed command is swapped before it runs. Its marks are taken and compared in the box."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_tools.box.contract import PinnedFile
from lodger_tools.runner.look_at_files import ABSENT, UNREADABLE
from lodger_tools.toolbox_contract import ToolOutcome, ToolRequest
from support.real_boxes import workspace_for_tests
from support.tool_room import ToolRoom, closing

pytestmark = pytest.mark.needs("bwrap")


class Room(ToolRoom):
    def write(self, name: str, text: str) -> None:
        path = self.workspace / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        path.parent.chmod(0o755)

    def request(self, command: str) -> ToolRequest:
        self.count += 1
        return ToolRequest(f"k{self.count}", "Bash", {"command": command}, self.key, str(self.workspace))

    async def run(self, command: str, pinned: tuple[PinnedFile, ...]) -> ToolOutcome:
        return await self.toolbox.run(replace(self.request(command), pinned=pinned))


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    with workspace_for_tests() as workspace:
        async with closing(Room(tmp_path, workspace)) as room:
            yield room


GOOD, EVIL = "#!/bin/sh\necho good\n", "#!/bin/sh\necho evil\n"
COMMANDS = {
    "by-path": ("./run.sh", "run.sh"),
    "by-shell": ("sh -e run.sh", "run.sh"),
    "through-a-wrapper": ("env A=1 nice -n 3 sh ./run.sh", "run.sh"),
    "sourced": (". ./run.sh", "run.sh"),
    "below-another-folder": ("cd sub && ./run.sh", "sub/run.sh"),
    "through-a-pipe": ("cat run.sh | sh", "run.sh"),
    "quoted": ("'./'run.sh", "run.sh"),
    "in-a-shell-of-its-own": ("bash -c 'sh run.sh'", "run.sh"),
    "in-a-loop": ("for i in 1; do ./run.sh; done", "run.sh"),
}


@pytest.mark.parametrize(("command", "file"), COMMANDS.values(), ids=list(COMMANDS))
async def test_a7_a_script_that_changed_after_it_was_allowed_does_not_run(room: Room, command: str, file: str) -> None:
    room.write(file, GOOD)
    pinned = await room.toolbox.pin(room.request(command))
    assert (await room.run(command, pinned)).text == "good\n"
    room.write(file, EVIL)
    swapped = await room.run(command, pinned)
    assert swapped.status == "error"
    assert "is not what it was" in swapped.text
    assert "evil" not in swapped.text


@pytest.mark.parametrize(("command", "file"), COMMANDS.values(), ids=list(COMMANDS))
async def test_a7_control_without_the_marks_it_would(room: Room, command: str, file: str) -> None:
    room.write(file, EVIL)
    assert (await room.run(command, ())).text == "evil\n"


async def test_a7_also_a_link_that_leads_elsewhere_and_a_file_that_was_not_there(room: Room) -> None:
    room.write("good.sh", GOOD)
    room.write("evil.sh", EVIL)
    (room.workspace / "run.sh").symlink_to("good.sh")
    pinned = await room.toolbox.pin(room.request("sh run.sh"))
    (room.workspace / "run.sh").unlink()
    (room.workspace / "run.sh").symlink_to("evil.sh")
    assert "is not what it was" in (await room.run("sh run.sh", pinned)).text

    [absent] = await room.toolbox.pin(room.request("sh later.sh"))
    assert absent == PinnedFile("later.sh", ABSENT)
    room.write("later.sh", EVIL)
    assert "is not what it was" in (await room.run("sh later.sh", (absent,))).text


async def test_a7_a_pipe_in_the_place_of_a_script_holds_nobody_up(room: Room) -> None:
    os.mkfifo(room.workspace / "run.sh")
    assert await room.toolbox.pin(room.request("sh run.sh")) == (PinnedFile("run.sh", UNREADABLE),)


async def test_a7_what_the_script_works_on_may_change(room: Room) -> None:
    room.write("run.sh", GOOD)
    room.write("notes.txt", "one")
    command = "./run.sh notes.txt && cat notes.txt"
    pinned = await room.toolbox.pin(room.request(command))
    assert [file.path for file in pinned] == ["./run.sh"]
    room.write("notes.txt", "two")
    assert (await room.run(command, pinned)).text == "good\ntwo"
