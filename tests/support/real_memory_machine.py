"""A machine's memory with a real box around the checkout."""

import os
from pathlib import Path

from lodger_daemon.memory.memory import Memory
from lodger_daemon.memory.remote import MemoryRemote
from lodger_daemon.paths import Paths
from lodger_daemon.randomness import SystemRng
from lodger_sandbox.contract import BoxRequest, Mount
from lodger_tools.box.contract import BoxCall, BoxKey, RunCommand
from lodger_tools.box.manager import BoxManager
from support.git_host_server import TOKEN, RunningHost
from support.memory_machines import AGENT, QuickClock
from support.sandbox_users import user_of_boxes

INSIDE = "/home/lodger-test/memory"


class RealMachine:
    def __init__(self, folder: Path, workspace: Path, hub: RunningHost) -> None:
        self.user = user_of_boxes()
        self.paths = Paths(folder / "config", folder / "state", workspace, Path(INSIDE).parent)
        self.paths.config.mkdir(parents=True)
        self.paths.agents.mkdir(parents=True, mode=0o700)
        self.box = BoxKey(AGENT, str(workspace))
        self.boxes = BoxManager(self.paths.boxes, self.request)
        owner = (self.user.uid, self.user.gid) if os.geteuid() == 0 else None
        self.memory = Memory(
            self.paths,
            self.boxes,
            lambda agent: self.box,
            MemoryRemote(hub.base_url, lambda: TOKEN),
            QuickClock(),
            SystemRng(),
            checkout_inside=INSIDE,
            box_owner=owner,
        )

    def request(self, key: BoxKey) -> BoxRequest:
        checkout = self.memory.checkout_path(AGENT)
        return BoxRequest(
            key.workspace,
            "agent",
            self.user,
            home=str(Path(INSIDE).parent),
            mounts=(Mount(checkout, INSIDE, writable=True),),
            masks=(str(self.paths.config), str(self.paths.state)),
            environment={"PATH": "/usr/bin:/bin", "HOME": str(Path(INSIDE).parent), "LANG": "C.UTF-8"},
        )

    async def shell(self, command: str) -> str:
        outcome = await self.boxes.run(self.box, BoxCall(f"t/{os.urandom(8).hex()}", RunCommand(command), cwd=INSIDE))
        assert outcome.exit_code == 0, outcome.text
        return outcome.text.strip()

    async def aclose(self) -> None:
        await self.memory.aclose()
        await self.boxes.end(self.box)
        await self.boxes.aclose()
