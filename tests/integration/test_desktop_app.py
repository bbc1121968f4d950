"""docs/desktop-app.md: the program on the page runs as it stands, and the first line is as it says."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.programs import LODGER, ROOT, World, new_world

PAGE = (ROOT / "docs" / "desktop-app.md").read_text()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("desktop") as made:
        yield made


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


async def test_the_first_line_has_what_the_page_shows(world: World) -> None:
    home = world.home("a")
    program = await world.start("app-server", [*LODGER, "app-server"], world.environment(home))
    shown = json.loads(block("json"))
    assert list(program.first) == list(shown)
    assert {key: type(value) for key, value in program.first.items()} == {
        key: type(value) for key, value in shown.items()
    }
    token = Path(program.first["token_file"])
    assert token.name == Path(shown["token_file"]).name
    assert token.stat().st_mode & 0o777 == 0o600
    second = await world.run(home, "app-server")
    assert second.code == 1
    assert "lodger:" in second.err
    assert await program.stop() == 0


async def test_the_program_on_the_page_gets_an_answer(world: World) -> None:
    home = world.home("a")
    file = home.home / "client.py"
    file.write_text(block("python"))
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(file)], env=world.environment(home), cwd=home.workspace, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), done.stderr
