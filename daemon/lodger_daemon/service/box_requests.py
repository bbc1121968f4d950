"""What each box of this machine may see: the one place that decides mounts, masks and environment."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.commits import Identity, identity_of
from lodger_daemon.memory.core.shared import ShareRole
from lodger_daemon.memory.shared_folders import SharedFolders
from lodger_daemon.memory.work_trees import WorkTrees
from lodger_daemon.network.core.ssh_texts import AGENT_INSIDE
from lodger_daemon.network.network import PROXY_PORT, WITH_NETWORK, proxy_environment
from lodger_daemon.network.ssh_files import SshFiles
from lodger_daemon.paths import Paths
from lodger_daemon.service.box_locale import box_locale
from lodger_daemon.service.core.box_git import AGENT_NAME, CONFIG_INSIDE, config_text
from lodger_daemon.service.folder_boxes import PERSON
from lodger_daemon.service.installation import installation_folders
from lodger_daemon.service.persons_git import persons_git
from lodger_daemon.service.settings import Settings
from lodger_sandbox.contract import BoxLimits, BoxRequest, BoxUser, Mount, SandboxUnavailable, WrittenFile
from lodger_sandbox.core.policy import PolicyRefused
from lodger_sandbox.users import WorkspaceRefused, box_user
from lodger_tools.box.contract import BoxKey, BoxProfile
from lodger_tools.output.overflow import OverflowFolder

MEMORY_FOLDER_NAME: Final = "memory"
SHARED_FOLDER_NAME: Final = "shared-memory"
"""Beside it; in it one folder for each memory that the agent shares."""
READS_FOLDER_NAME: Final = "to-read"
"""In the boxes of background writers of memory."""
_SYSTEM_PATH: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_TOOLCHAINS: Final = (".local/bin", ".cargo/bin", ".volta/bin", ".deno/bin", ".bun/bin", ".pyenv/shims", "go/bin")
_OWN_GIT: Final = (BoxProfile.GUARD, BoxProfile.MEMORY_WORKER)
"""Git there is the daemon's, which says all it needs itself."""
_PASSED_ON: Final = ("TZ", "TERM", "COLORTERM")


class BoxRequests:
    """Turns a box key into a request. Paths and settings are those of the daemon's start."""

    def __init__(self, paths: Paths, settings: Settings, environment: Mapping[str, str]) -> None:
        self._paths = paths
        self._settings = settings
        self._environment = environment
        self._installation = installation_folders()
        self.ssh: Final = SshFiles(paths.state / "ssh", paths.home, PROXY_PORT)

    @property
    def memory_inside(self) -> str:
        """Where every box shows its agent's checkout."""
        return str(self._paths.home / MEMORY_FOLDER_NAME)

    def shared_inside(self, name: str) -> str:
        """Where every box of an agent shows a memory that it shares."""
        return str(self._paths.home / SHARED_FOLDER_NAME / name)

    @property
    def reads_inside(self) -> str:
        """Where the box of a background writer shows what it is given to read."""
        return str(self._paths.home / READS_FOLDER_NAME)

    def user(self) -> BoxUser:
        """Raises: SandboxUnavailable, naming the command that makes the user."""
        return box_user(self._settings.machine.box_user if os.getuid() == 0 else None)

    def owner(self) -> tuple[int, int] | None:
        """Uid and gid of the boxes' user when it is not the daemon's own; None also when there is none yet."""
        if os.geteuid() != 0:
            return None
        try:
            user = self.user()
        except SandboxUnavailable:
            return None
        return user.uid, user.gid

    def checkout(self, agent_id: AgentId) -> Path:
        return self._paths.agents / agent_id / "checkout"

    def for_key(self, key: BoxKey, overflow: OverflowFolder) -> BoxRequest:
        """Blocking. Raises: SandboxUnavailable."""
        if key.agent_id == PERSON:
            return self._request(key.workspace, key.profile, (), {})
        if key.profile is BoxProfile.MEMORY_WORKER:
            # Its workspace is a checkout or a writer's tree, and that is all it may write.
            reads = WorkTrees(self._paths.agents).reads_beside(key.workspace)
            shown = () if reads is None else (Mount(str(reads), self.reads_inside),)
            return self._request(key.workspace, key.profile, shown, {})
        network, ssh = (self._way_out(), self.ssh.mounts()) if key.profile in WITH_NETWORK else ({}, ())
        checkout = str(self.checkout(AgentId(key.agent_id)))
        mounts = (
            Mount(checkout, self.memory_inside, writable=key.profile is not BoxProfile.READ_ONLY),
            overflow.mount(key.agent_id),
            *self._shared(key),
            *ssh,
        )
        environment = {"MEMORY_DIR": self.memory_inside, "AGENT_ID": key.agent_id, **network}
        request = self._request(key.workspace, key.profile, mounts, environment)
        return self._with_git(request, identity_of(key.agent_id, AGENT_NAME))

    def _way_out(self) -> dict[str, str]:
        agent = {"SSH_AUTH_SOCK": AGENT_INSIDE} if self._settings.network.ssh_agent else {}
        return {**proxy_environment(), **agent}

    def _shared(self, key: BoxKey) -> tuple[Mount, ...]:
        """What the agent may only read, nothing in its boxes may write."""
        agent_id, folders = AgentId(key.agent_id), SharedFolders(self._paths.agents)
        return tuple(
            Mount(
                str(folders.checkout(agent_id, name)),
                self.shared_inside(name),
                writable=role is ShareRole.WRITE and key.profile is not BoxProfile.READ_ONLY,
            )
            for name, role in folders.attached(agent_id).items()
            if folders.checkout(agent_id, name).is_dir()
        )

    def for_person(self, folder: str, profile: BoxProfile) -> BoxRequest:
        """A box for a command of the person's own: no agent's memory in it. Raises: SandboxUnavailable."""
        request = self._request(folder, profile, (), {})
        return request if profile in _OWN_GIT else self._with_git(request, None)

    def refusal_of(self, folder: str) -> str:
        """Why no agent can work in a folder, in words for the person; empty when one can, or when no box at all can be
        had here, which each call says by itself. Blocking, up to some 20 ms."""
        # A command line that knows no box starts faster without them.
        from lodger_sandbox.access import workspace_access
        from lodger_sandbox.foreground import policy_for_command

        try:
            request = self._request(folder, BoxProfile.AGENT, (), {})
            workspace_access(request.user, policy_for_command(request).workspace)
        except (PolicyRefused, WorkspaceRefused) as refusal:
            return str(refusal)
        except (SandboxUnavailable, OSError):
            return ""
        return ""

    def _request(
        self, workspace: str, profile: BoxProfile, mounts: tuple[Mount, ...], more: Mapping[str, str]
    ) -> BoxRequest:
        return BoxRequest(
            workspace=workspace,
            profile=profile.value,
            user=self.user(),
            home=str(self._paths.home),
            mounts=mounts,
            masks=(str(self._paths.config), str(self._paths.state)),
            installation=self._installation,
            environment={**self._base_environment(), **more},
            limits=BoxLimits(processors=self._settings.machine.box_processors),
        )

    def _with_git(self, request: BoxRequest, agent: Identity | None) -> BoxRequest:
        """The person's own configuration stays outside: with it, programs and tokens that stand in it."""
        text = config_text(request.workspace, persons_git(self._paths.home), agent)
        return replace(
            request,
            written=(WrittenFile(CONFIG_INSIDE, text),),
            environment={**request.environment, "GIT_CONFIG_SYSTEM": CONFIG_INSIDE},
        )

    def _base_environment(self) -> dict[str, str]:
        home = self._paths.home
        toolchains = [str(home / name) for name in _TOOLCHAINS if (home / name).is_dir()]
        environment = {name: self._environment[name] for name in _PASSED_ON if name in self._environment}
        return {
            **environment,
            **box_locale(self._environment),
            "HOME": str(home),
            "PATH": ":".join((*toolchains, *_SYSTEM_PATH)),
            "USER": self.user().name,
            "LOGNAME": self.user().name,
            "SHELL": "/bin/bash",
            "GIT_TERMINAL_PROMPT": "0",
            "PAGER": "cat",
            "GIT_PAGER": "cat",
        }
