"""A box so full of processes that no call could begin: the next one makes room, and the box lives."""

import os
import sys
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


async def run(manager: BoxManager, key: BoxKey, number: int, command: str) -> BoxOutcome:
    return await manager.run(key, BoxCall(f"call-{number}", RunCommand(command, 60.0), key.workspace))


async def test_a_full_box_is_emptied_of_what_no_call_needs(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        key = BoxKey("agent-full", str(workspace), BoxProfile.AGENT)
        manager = BoxManager(tmp_path / "boxes", RealRequests(tmp_path / "boxes", workspace.parent / "no-home"))
        try:
            await run(manager, key, 0, f"exec \"{PYTHON}\" -I -S -c '{FILL}'")
            for number in range(1, 1000):
                refused = await run(manager, key, number, "echo here")
                if "background processes were ended" in refused.text:
                    break
            assert "background processes were ended" in refused.text
            for number in range(1000, 2000):
                # What was killed still needs a moment of processor time to be gone.
                again = await run(manager, key, number, "ls -d /proc/[0-9]* | wc -l")
                if again.status == "success" and int(again.text) < 10:
                    break
            assert (again.status, int(again.text) < 10) == ("success", True)
        finally:
            await manager.end(key)
            await manager.aclose()
