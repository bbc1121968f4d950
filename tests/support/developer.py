"""An agent's boxes in one workspace, as the daemon makes them: its own policy, guard, network and broker."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lodger_daemon.network.network import Network
from lodger_daemon.network.ssh_agent import lend_agent
from lodger_daemon.paths import Paths
from lodger_daemon.randomness import SystemRng
from lodger_daemon.service.box_requests import BoxRequests
from lodger_daemon.service.settings import NetworkSettings, Settings
from lodger_daemon.system_clock import SystemClock
from lodger_daemon.workspace_guard.git_guard import GitGuard
from lodger_daemon.workspace_guard.guarded_boxes import GuardedBoxes
from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, RunCommand
from lodger_tools.box.manager import BoxManager
from lodger_tools.output.overflow import OverflowFolder, OverflowOwner
from support.real_boxes import box_user_for_tests
from support.sandbox_users import own

LIMIT_S = 110.0


class Silent:
    def note(self, box: BoxKey, decision: str, what: str) -> None:
        pass


class Nobody:
    """Nobody can be asked about hosts."""

    def can_ask(self, box: BoxKey) -> bool:
        return False

    async def ask_about_hosts(self, box: BoxKey, hosts: Sequence[str]) -> frozenset[str] | None:
        raise AssertionError("nobody is there")

    def tell(self, box: BoxKey, text: str) -> bool:
        return False


class Developer:
    """To be started, and closed."""

    def __init__(
        self,
        state: Path,
        workspace: Path,
        allowed: NetworkSettings,
        home: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            home: the person's; by default that of whoever runs the tests.
            environment: the daemon's; by default that of the tests.
        """
        user = box_user_for_tests()
        paths = Paths(state / "config", state / "state", workspace, home or Path.home())
        for folder in (paths.config, paths.overflow, paths.agents / "agent-1" / "checkout"):
            folder.mkdir(parents=True)
        own(paths.agents / "agent-1" / "checkout", user)
        self.allowed = allowed
        self.environment = dict(environment or os.environ)
        self.lent = contextlib.AsyncExitStack()
        self.requests = BoxRequests(paths, Settings(network=allowed), self.environment)
        overflow = OverflowFolder(paths.overflow, OverflowOwner(user.uid, user.gid) if os.getuid() == 0 else None)
        owner = self.requests.owner()
        self.network = Network(
            paths.state / "egress", allowed.allow_list(), lambda: owner, lambda *row: None, SystemClock()
        )
        self.manager = BoxManager(paths.boxes, lambda key: self.requests.for_key(key, overflow), watcher=self.network)
        self.boxes = GuardedBoxes(self.manager, GitGuard(self.manager, paths.state / "guard", SystemRng(), Silent()))
        self.workspace = workspace
        self.key = BoxKey("agent-1", str(workspace))
        self.count = 0

    async def start(self) -> None:
        self.network.let_ask(Nobody())
        await self.network.start()
        if self.allowed.ssh_agent:
            await lend_agent(self.lent, self.requests.ssh, self.environment["SSH_AUTH_SOCK"], self.requests.user)

    async def runs(self, command: str) -> BoxOutcome:
        self.count += 1
        call = BoxCall(f"work/{self.count}", RunCommand(f"set -e\n{command}", LIMIT_S), str(self.workspace))
        return await self.boxes.run(self.key, call)

    async def does(self, command: str) -> str:
        """Its output; the command must succeed."""
        done = await self.runs(command)
        assert done.exit_code == 0, done.text
        return done.text

    def writes(self, name: str, text: str) -> None:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        own(self.workspace, box_user_for_tests())

    async def aclose(self) -> None:
        for box in self.manager.statuses():
            await self.manager.end(box.key)
        await self.manager.aclose()
        await self.network.aclose()
        await self.lent.aclose()
