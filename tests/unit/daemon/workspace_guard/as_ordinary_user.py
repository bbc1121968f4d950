"""Works in guarded boxes as whoever starts this. Prints one JSON object."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from lodger_daemon.randomness import SystemRng
from lodger_daemon.workspace_guard.git_guard import GitGuard
from lodger_daemon.workspace_guard.guarded_boxes import GuardedBoxes
from lodger_tools.box.contract import BoxCall, BoxKey, RunCommand
from lodger_tools.box.manager import BoxManager
from support.real_boxes import RealRequests, someone

FOLDER = Path(sys.argv[1])
REQUESTS = RealRequests(FOLDER / "state", FOLDER / "home", user=someone())


class Silent:
    def note(self, box: BoxKey, decision: str, what: str) -> None:
        pass


async def work() -> dict[str, object]:
    workspace = FOLDER / "workspace"
    for folder in (workspace, FOLDER / "home", FOLDER / "state"):
        folder.mkdir()
    manager = BoxManager(FOLDER / "state/boxes", REQUESTS)
    boxes = GuardedBoxes(manager, GitGuard(manager, FOLDER / "state/guard", SystemRng(), Silent()))
    key = BoxKey("agent-1", str(workspace))

    async def run(command: str) -> str:
        outcome = await boxes.run(key, BoxCall(f"user/{command}", RunCommand(command), str(workspace)))
        return f"{outcome.exit_code} {outcome.text}"

    def pager() -> str:
        command = ("git", "-C", str(workspace), "config", "core.pager")
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    await run("git init -q -b main .")
    try:
        everyday = await run("git config user.name a && git config user.email b && git commit -q --allow-empty -m one")
        refused = await run("git config core.pager evil")
        after = pager()
        fresh = workspace / "fresh"
        fresh.write_text(".\n")
        fresh.replace(workspace / ".git/commondir")
        lost = await run("echo ../evil > .git/commondir")
        return {"everyday": everyday, "refused": refused, "pager": after, "lost": lost}
    finally:
        for box in manager.statuses():
            await manager.end(box.key)
        await manager.aclose()


print(json.dumps(asyncio.run(work())))
