"""ssh and git over ssh from a box, with a real sshd: by the broker, to known servers, and without the person's keys."""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lodger_daemon.service.settings import NetworkSettings
from support.developer import Developer
from support.real_boxes import box_user_for_tests, workspace_for_tests
from support.sandbox_users import own
from support.ssh_agent import keys_in, ssh_agent
from support.ssh_server import SshServer, ssh_server

pytestmark = pytest.mark.needs("bwrap", "ssh", "sshd")
DEPLOY_KEY = "deploy_key"
"""In the workspace: the agent's own, as far as anybody's."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with ssh_server(tmp_path / "sshd") as made:
        yield made


@pytest.fixture
def home(tmp_path: Path, server: SshServer) -> Path:
    """A person's, with a key that opens the server, and a configuration."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(mode=0o700, parents=True)
    for name, text in (
        ("known_hosts", server.known_hosts_line()),
        ("id_ed25519", server.key.read_text()),
        ("config", f"Host alias\n  HostName {server.address}\n"),
    ):
        (folder / ".ssh" / name).write_text(text)
        (folder / ".ssh" / name).chmod(0o600)
    return folder


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A repository at the server."""
    bare, first = tmp_path / "project.git", tmp_path / "first"
    subprocess.run(("git", "init", "-q", "--bare", "-b", "main", str(bare)), check=True)
    subprocess.run(("git", "init", "-q", "-b", "main", str(first)), check=True)
    git = ("git", "-C", str(first), "-c", "user.name=Ada", "-c", "user.email=a@b.example")
    subprocess.run((*git, "commit", "-q", "--allow-empty", "-m", "first"), check=True)
    subprocess.run((*git, "push", "-q", str(bare), "main"), check=True)
    return bare


@asynccontextmanager
async def developer(
    tmp_path: Path, home: Path, allowed: NetworkSettings, key: Path | None = None, agent: Path | None = None
) -> AsyncIterator[Developer]:
    """
    Args:
        key: of the agent's own, in its workspace.
        agent: the person's, for the daemon to know of.
    """
    with workspace_for_tests() as workspace:
        environment = {**os.environ, "SSH_AUTH_SOCK": str(agent or "")}
        made = Developer(tmp_path / "daemon", workspace, allowed, home, environment)
        if key is not None:
            (workspace / DEPLOY_KEY).write_text(key.read_text())
            (workspace / DEPLOY_KEY).chmod(0o600)
            own(workspace, box_user_for_tests())
        await made.start()
        try:
            yield made
        finally:
            await made.aclose()


def with_deploy_key(command: str) -> str:
    return f'export GIT_SSH_COMMAND="ssh -i $PWD/{DEPLOY_KEY} -o IdentitiesOnly=yes"\n{command}'


async def test_git_clone_fetch_and_push(tmp_path: Path, server: SshServer, home: Path, upstream: Path) -> None:
    async with developer(tmp_path, home, NetworkSettings(allow=(server.host,)), server.key) as ada:
        said = await ada.does(
            with_deploy_key(
                f"git clone -q {server.url(upstream)} cloned && cd cloned\n"
                "git config user.name Ada && git config user.email a@b.example\n"
                "git switch -q -c topic && echo text > file && git add file && git commit -q -m second\n"
                "git push -q -u origin topic && git fetch origin 2>&1 && git log --format=%s origin/topic"
            )
        )
        assert "second\nfirst\n" in said
    branches = subprocess.run(("git", "-C", str(upstream), "branch"), check=True, capture_output=True, text=True)  # noqa: ASYNC221
    assert "topic" in branches.stdout


async def test_a_server_that_is_not_listed_is_not_reached_and_the_agent_is_told(
    tmp_path: Path, server: SshServer, home: Path, upstream: Path
) -> None:
    elsewhere = f"{server.address}:{server.port + 1 if server.port < 65_535 else 1024}"
    async with developer(tmp_path, home, NetworkSettings(allow=(elsewhere,)), server.key) as ada:
        count = ada.network.refused_count(ada.key)
        said = await ada.runs(with_deploy_key(f"git clone -q {server.url(upstream)} cloned"))
        assert said.exit_code != 0
        assert f"Lodger lets no connection through to {server.host}: " in said.text
        assert "the list of allowed hosts names the address itself" in said.text
        assert [to for to, _ in await ada.network.refused_since(ada.key, count)] == [server.host]
    assert not server.log.exists(), "sshd is started by a connection"


@pytest.mark.parametrize("known", ["", "another"])
async def test_a_server_with_a_key_nobody_knows_gets_nothing(
    tmp_path: Path, server: SshServer, home: Path, upstream: Path, known: str
) -> None:
    other = f"{server.known_hosts_line().split()[0]} {' '.join(server.key.with_suffix('.pub').read_text().split()[:2])}"
    (home / ".ssh/known_hosts").write_text(f"{other}\n" if known else "")
    async with developer(tmp_path, home, NetworkSettings(allow=(server.host,)), server.key) as ada:
        said = await ada.runs(with_deploy_key(f"git clone -q {server.url(upstream)} cloned"))
        assert said.exit_code != 0
        assert "Host key verification failed" in said.text
        assert (await ada.runs(f"echo x >> {home}/.ssh/known_hosts")).exit_code != 0
    assert "Accepted" not in server.log.read_text()


async def test_neither_keys_nor_agent_nor_configuration_of_the_person_are_in_a_box(
    tmp_path: Path, server: SshServer, home: Path
) -> None:
    with ssh_agent(tmp_path / "agent", server.key) as agent:
        async with developer(tmp_path, home, NetworkSettings(allow=(server.host,)), agent=agent) as ada:
            said = await ada.runs(
                f"ls -A {home}/.ssh /run/lodger/ssh; env | grep SSH_ || true; export SSH_AUTH_SOCK={agent}\n"
                f"ssh -p {server.port} {server.user}@{server.address} true"
            )
            inside = said.text.split()
            assert "known_hosts" in inside and not {"id_ed25519", "agent"} & set(inside)
            assert "SSH_" not in said.text
            assert "Permission denied (publickey)" in said.text
            assert "PRIVATE KEY" not in await ada.does("cat /run/lodger/ssh/* /etc/ssh/ssh_config")


async def test_with_the_setting_the_persons_agent_opens_what_is_listed_and_stays_as_it_is(
    tmp_path: Path, server: SshServer, home: Path, upstream: Path
) -> None:
    with ssh_agent(tmp_path / "agent", server.key) as agent:
        before = keys_in(agent)
        allowed = NetworkSettings(allow=(server.host,), ssh_agent=True)
        async with developer(tmp_path, home, allowed, agent=agent) as ada:
            assert await ada.does("ssh-add -l") == before
            await ada.does(f"git clone -q {server.url(upstream)} cloned && git -C cloned fetch -q")
            for words in ("ssh-add -D", "ssh-add -q own", "ssh-add -s /usr/lib/x.so", "ssh-add -q -t 1 own"):
                said = await ada.runs(f"ssh-keygen -q -t ed25519 -N '' -f own <<<y >/dev/null; {words} <<<1")
                assert said.exit_code != 0, words
            # What a box puts in the socket's place would be met by other boxes.
            assert (await ada.runs("rm -f /run/lodger/ssh/agent")).exit_code != 0
        assert "(ED25519)" in before
        assert keys_in(agent) == before


async def test_a_server_of_the_box_itself_is_reached_without_the_broker(
    tmp_path: Path, server: SshServer, home: Path
) -> None:
    async with developer(tmp_path, home, NetworkSettings(allow=(server.host,))) as ada:
        said = await ada.runs("ssh -p 2222 127.0.0.1 true")
        assert "Connection refused" in said.text
        assert "Lodger" not in said.text


async def test_who_the_person_knows_meanwhile_counts(
    tmp_path: Path, server: SshServer, home: Path, upstream: Path
) -> None:
    """At once; where the daemon is root, whose file is root's alone, in the next box."""
    known = home / ".ssh/known_hosts"
    line = known.read_text()
    known.write_text("")
    async with developer(tmp_path, home, NetworkSettings(allow=(server.host,)), server.key) as ada:
        clone = with_deploy_key(f"git clone -q {server.url(upstream)} cloned")
        assert "Host key verification failed" in (await ada.runs(clone)).text
        with known.open("a") as file:
            file.write(line)
        if os.geteuid() == 0:
            await ada.manager.end(ada.key)
        await ada.does(clone)


async def test_what_boxes_are_told_for_ssh_cannot_be_written_there(
    tmp_path: Path, server: SshServer, home: Path
) -> None:
    async with developer(tmp_path, home, NetworkSettings(allow=(server.host,))) as ada:
        for path in ("/etc/ssh/ssh_config", "/run/lodger/ssh/config", "/run/lodger/ssh/connect", "/run/lodger/ssh/new"):
            assert (await ada.runs(f"echo >> {path}")).exit_code != 0, path
            assert (await ada.runs(f"mv {path} {path}.old")).exit_code != 0, path
            assert (await ada.runs(f"rm -f {path}.absent; ln -sf /dev/null {path}")).exit_code != 0, path
