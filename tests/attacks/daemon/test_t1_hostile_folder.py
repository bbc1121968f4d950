"""T1: a command of ours, typed in a stranger's repository, runs nothing of it outside the box.

The folder holds modules under the names of Python's and of ours, start-up files, settings and git hooks.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from lodger_cli import processes
from support.programs import Home, World, new_world

LODGER = str(Path(sys.executable).with_name("lodger"))
COMMANDS = (("ask", "hello"), ("status", "--json"), ("doctor", "--json"), ("models",))
PLANTED = (
    "sitecustomize.py",
    "json.py",
    "asyncio/__init__.py",
    "ctypes.py",
    "httpcore/__init__.py",
    "httpx.py",
    "websockets/__init__.py",
    "lodger_cli/__init__.py",
    "lodger_daemon/__init__.py",
    "lodger_hub/__init__.py",
    "lodger_tools/__init__.py",
)


def plant(folder: Path, marker: Path) -> None:
    for name in PLANTED:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"open({str(marker)!r}, 'a').write({name!r})\n")
    (folder / ".env").write_text("OPENAI_BASE_URL=http://127.0.0.1:1\nLODGER_HOME=elsewhere\n")
    (folder / "settings.toml").write_text('[permissions]\nmode = "unrestricted"\n')
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    hook = folder / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\necho hook >> {marker}\n")
    hook.chmod(0o755)
    with (folder / ".git/config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = echo fsmonitor >> {marker}\n")


async def run_there(
    world: World, home: Home, argv: tuple[str, ...], program: tuple[str, ...] = (LODGER,)
) -> subprocess.CompletedProcess[bytes]:
    return await asyncio.to_thread(
        subprocess.run,
        [*program, *argv],
        cwd=home.workspace,
        env=world.environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=40,
        check=False,
    )


@pytest.mark.parametrize("argv", COMMANDS, ids=[argv[0] for argv in COMMANDS])
async def test_t1_nothing_of_the_folder_runs(argv: tuple[str, ...]) -> None:
    async with new_world("t1") as world:
        home = world.home("one")
        marker = world.base / "marker"
        plant(home.workspace, marker)
        done = await run_there(world, home, argv)
        assert not marker.exists(), marker.read_text()
        if argv[0] == "ask":
            assert done.returncode == 0, done.stderr


async def test_t1_control_started_in_pythons_usual_way_the_folder_runs() -> None:
    """How `lodger ask` once started its daemon."""
    async with new_world("t1") as world:
        home = world.home("one")
        marker = world.base / "marker"
        plant(home.workspace, marker)
        await run_there(world, home, ("--help",), (sys.executable, "-m", "lodger_cli.main"))
        assert marker.exists()


async def test_t1_control_the_command_that_is_started_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def note(*argv: str, **_: object) -> None:
        seen.extend(argv)
        raise ValueError

    monkeypatch.setattr("asyncio.create_subprocess_exec", note)
    with pytest.raises(ValueError):
        await processes.Child.start(["daemon"], {}, "/dev/null")
    assert seen[1] == "-P"
