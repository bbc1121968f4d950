"""A box so full of processes that no call could begin: the next one makes room, and the box lives."""

import asyncio
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, BoxProfile, RunCommand
from lodger_tools.box.manager import BoxManager
from support.real_boxes import RealRequests, workspace_for_tests

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes a user and folders for it")

FILL = """
import os, time
if os.fork():
    raise SystemExit
os.setsid()
while True:
    try:
        if not os.fork():
            time.sleep(600)
    except OSError:
        time.sleep(0.001)
"""
"""Takes every process that becomes free, also the one of the command itself."""
PYTHON = f"$(ls /run/lodger/python/bin/python3 {os.path.realpath(sys.executable)} 2>/dev/null | head -1)"


async def until(manager: BoxManager, key: BoxKey, command: str, holds: Callable[[BoxOutcome], bool]) -> None:
    async with asyncio.timeout(30):
        for number in itertools.count():
            if holds(await manager.run(key, BoxCall(f"{command}-{number}", RunCommand(command, 60.0), key.workspace))):
                return


async def test_a_full_box_is_emptied_of_what_no_call_needs(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        key = BoxKey("agent-full", str(workspace), BoxProfile.AGENT)
        manager = BoxManager(tmp_path / "boxes", RealRequests(tmp_path / "boxes", workspace.parent / "no-home"))
        try:
            fill = RunCommand(f"exec \"{PYTHON}\" -I -S -c '{FILL}'", 60.0)
            await manager.run(key, BoxCall("fill", fill, key.workspace))
            await until(manager, key, "echo here", lambda seen: "background processes were ended" in seen.text)
            # What was killed still needs a moment of processor time to be gone.
            await until(
                manager,
                key,
                "ls -d /proc/[0-9]* | wc -l",
                lambda seen: seen.status == "success" and seen.text.strip().isdigit() and int(seen.text) < 10,
            )
        finally:
            await manager.end(key)
            await manager.aclose()
