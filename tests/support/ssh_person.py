"""A person with a home, known hosts and a running SSH agent of their own, for remotes over SSH. Real ssh and ssh-agent.

ssh finds a home in the list of users and nowhere else, so each ssh here is shown a list of its own, by bubblewrap.
"""

import os
import pwd
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.remote import Remote
from lodger_daemon.paths import Paths
from lodger_daemon.service.memory_hosts import MemoryHost, memory_host
from support.ssh_agent import agent_environment, ssh_agent
from support.ssh_server import SshServer


@dataclass(frozen=True, slots=True)
class SshPerson:
    home: Path
    users: Path
    """The list of users in which this is the home of whoever runs the tests."""
    agent_socket: Path

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    @property
    def config(self) -> Path:
        return self.home / ".ssh" / "config"

    def add_key(self, key: Path) -> None:
        """The key's file may be gone afterwards: the agent holds it."""
        subprocess.run(["ssh-add", "-q", str(key)], env=agent_environment(self.agent_socket), check=True)

    def drop_keys(self) -> None:
        subprocess.run(["ssh-add", "-q", "-D"], env=agent_environment(self.agent_socket), check=True)

    def remote(self, host: MemoryHost, address: str) -> "InPersonsHome":
        """As a daemon makes it that was started by this person."""
        found = memory_host(host, address, Paths(*[self.home] * 4), agent_environment(self.agent_socket))
        assert found is not None
        return InPersonsHome(found, self)


@dataclass(frozen=True, slots=True)
class InPersonsHome:
    """The very remote that is tested, but for where its ssh finds the home."""

    remote: Remote
    person: SshPerson

    @property
    def announces(self) -> bool:
        return self.remote.announces

    def url(self, agent_id: AgentId) -> str:
        return self.remote.url(agent_id)

    def environment(self) -> dict[str, str]:
        environment = self.remote.environment()
        shown = ("bwrap", "--dev-bind", "/", "/", "--ro-bind", str(self.person.users), "/etc/passwd", "--")
        return environment | {"GIT_SSH_COMMAND": f"{shlex.join(shown)} {environment['GIT_SSH_COMMAND']}"}

    def cleaned(self, text: str) -> str:
        return self.remote.cleaned(text)

    def list_agents(self) -> tuple[AgentId, ...]:
        return self.remote.list_agents()


@contextmanager
def ssh_person(folder: Path, server: SshServer) -> Iterator[SshPerson]:
    """Knows the server, and has its key in the agent and in no file of the home."""
    home, users = folder / "home", folder / "passwd"
    (home / ".ssh").mkdir(mode=0o700, parents=True)
    me = pwd.getpwuid(os.getuid())
    users.write_text(f"{me.pw_name}:x:{me.pw_uid}:{me.pw_gid}::{home}:/bin/sh\n")
    with tempfile.TemporaryDirectory() as short, ssh_agent(Path(short) / "agent", server.key) as place:
        person = SshPerson(home, users, place)
        person.known_hosts.write_text(server.known_hosts_line())
        yield person
