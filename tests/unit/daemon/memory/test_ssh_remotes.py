"""Memory over SSH, as the remote and as a mirror: a real sshd, the person's own ssh agent and known hosts."""

import asyncio
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.core.git_addresses import parse_git_address
from lodger_daemon.memory.core.remote_answers import RemoteAnswer, judge
from lodger_daemon.memory.core.ssh_advice import ssh_advice
from lodger_daemon.memory.errors import MemoryUnavailable
from lodger_daemon.memory.mirror import MirrorStatus
from lodger_daemon.service.memory_hosts import MemoryHost
from support.memory_conflicts import in_order
from support.memory_machines import AGENT, CARD, Machine, note
from support.patience import LIMIT_S
from support.plain_boxes import agent_git
from support.ssh_person import InPersonsHome, SshPerson, ssh_person
from support.ssh_server import SshServer, ssh_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    with ssh_server(tmp_path / "sshd") as running:
        yield running


@pytest.fixture
def person(tmp_path: Path, server: SshServer) -> Iterator[SshPerson]:
    with ssh_person(tmp_path / "person", server) as found:
        yield found


def empty(folder: Path) -> Path:
    """A repository where the server has it."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder / f"{AGENT}.git")], check=True)
    return folder / f"{AGENT}.git"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return empty(tmp_path / "host")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return empty(tmp_path / "copies")


@pytest.fixture
def remote(tmp_path: Path, server: SshServer, person: SshPerson, repository: Path) -> InPersonsHome:
    return person.remote(MemoryHost.REMOTE, f"{server.url(tmp_path / 'host')}/{{agent}}.git")


@asynccontextmanager
async def machines(tmp_path: Path, count: int, remote: InPersonsHome) -> AsyncIterator[list[Machine]]:
    """All have the memory that the first one founded and pushed."""
    made = [Machine(tmp_path / f"m{number}", None, remote=remote) for number in range(count)]
    try:
        await made[0].memory.prepare(AGENT, CARD)
        assert (await made[0].end_turn()).outcome is SyncOutcome.PUSHED
        for machine in made[1:]:
            await machine.memory.prepare(AGENT, None)
        yield made
    finally:
        for machine in made:
            await machine.memory.aclose()


def main_of(repository: Path) -> str:
    return agent_git(repository, "rev-parse", "main")


async def mirrored(machine: Machine) -> MirrorStatus:
    assert machine.memory._mirror is not None
    await machine.memory._mirror.settled(AGENT, LIMIT_S)
    status = machine.memory.mirror_status(AGENT)
    assert status is not None
    return status


async def test_clone_push_and_fetch(tmp_path: Path, remote: InPersonsHome, repository: Path) -> None:
    async with machines(tmp_path, 2, remote) as (one, two):
        one.commit("fact.md", note("blue"))
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        two.memory.repository(AGENT, None).ask_again_at = 0.0
        await two.memory.freshen(AGENT, LIMIT_S)
        assert (two.checkout / "fact.md").read_text() == note("blue")
        assert one.published.head() == two.published.head() == main_of(repository)
        in_order(one, two)


async def test_lost_races_lose_nothing(tmp_path: Path, remote: InPersonsHome, repository: Path) -> None:
    async with machines(tmp_path, 2, remote) as seats:
        for round_number in range(2):
            for seat in seats:
                name = f"{seat.paths.state.parent.name}-{round_number}.md"
                seat.commit(name, note(name))
            ends = await asyncio.gather(*(seat.end_turn() for seat in seats))
            assert {status.outcome for status in ends} == {SyncOutcome.PUSHED}
        names = agent_git(repository, "ls-tree", "--name-only", "main").split()
        assert {f"m{seat}-{turn}.md" for seat in range(2) for turn in range(2)} <= set(names)
        assert agent_git(repository, "fsck", "--full", "--strict", "--no-dangling") == ""
        for seat in seats:
            assert seat.fsck() == ""


Break = Callable[[Path, SshServer, SshPerson], None]


def forget_the_server(tmp_path: Path, server: SshServer, person: SshPerson) -> None:
    person.known_hosts.write_text("")


def give_the_server_another_key(tmp_path: Path, server: SshServer, person: SshPerson) -> None:
    """What stands in known_hosts is then somebody else's."""
    stranger = tmp_path / "stranger"
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stranger)), check=True)
    key = " ".join(stranger.with_suffix(".pub").read_text().split()[:2])
    person.known_hosts.write_text(server.known_hosts_line().replace(server.host_key, key))


def lock_the_person_out(tmp_path: Path, server: SshServer, person: SshPerson) -> None:
    person.drop_keys()


def put_right(server: SshServer, person: SshPerson) -> None:
    person.known_hosts.write_text(server.known_hosts_line())
    person.add_key(server.key)


@pytest.mark.parametrize(
    ("break_it", "words", "quiet"),
    [
        (forget_the_server, "is not in your known_hosts", False),
        (forget_the_server, "is not in your known_hosts", True),
        (give_the_server_another_key, "is another than your known_hosts has", False),
        (lock_the_person_out, "took none of your SSH keys: `ssh-add -l`", True),
    ],
)
async def test_a_host_that_cannot_be_entered_is_told_at_once_and_nothing_is_lost(
    tmp_path: Path,
    server: SshServer,
    person: SshPerson,
    remote: InPersonsHome,
    repository: Path,
    break_it: Break,
    words: str,
    quiet: bool,
) -> None:
    async with machines(tmp_path, 1, remote) as (one,):
        before = main_of(repository)
        if quiet:
            person.config.write_text("LogLevel QUIET\n")
        break_it(tmp_path, server, person)
        one.commit("fact.md", note("blue"))
        waited = len(one.clock.waits)
        status = await one.end_turn()
        assert (status.outcome, status.ahead) == (SyncOutcome.PUSH_FAILED, 1)
        assert words in status.detail
        assert server.host in status.detail
        assert [wait_s for wait_s in one.clock.waits[waited:] if wait_s < 2.5] == [], "it was tried the same way again"
        assert main_of(repository) == before
        put_right(server, person)
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        assert main_of(repository) == one.published.head()


async def test_a_first_clone_from_an_unknown_host_is_no_new_memory(
    tmp_path: Path, person: SshPerson, remote: InPersonsHome
) -> None:
    async with machines(tmp_path, 1, remote):
        person.known_hosts.write_text("")
        two = Machine(tmp_path / "two", None, remote=remote)
        try:
            with pytest.raises(MemoryUnavailable, match="not in your known_hosts"):
                await two.memory.prepare(AGENT, None)
        finally:
            await two.memory.aclose()


async def test_an_agent_that_the_host_does_not_have_is_said_to_be_missing_there(
    tmp_path: Path, remote: InPersonsHome, repository: Path
) -> None:
    shutil.rmtree(repository)
    one = Machine(tmp_path / "a", None, remote=remote)
    try:
        with pytest.raises(MemoryUnavailable, match=re.escape(f"there is none at {remote.url(AGENT)}")):
            await one.memory.prepare(AGENT, None)
    finally:
        await one.memory.aclose()


async def test_a_server_that_stopped_gets_what_it_missed_once_it_is_back(
    tmp_path: Path, person: SshPerson, repository: Path
) -> None:
    with ssh_server(tmp_path / "other") as first:
        person.known_hosts.write_text(first.known_hosts_line())
        person.add_key(first.key)
        port, address = first.port, f"{first.url(tmp_path / 'host')}/{{agent}}.git"
        one = Machine(tmp_path / "a", None, remote=person.remote(MemoryHost.REMOTE, address))
        await one.memory.prepare(AGENT, CARD)
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
    try:
        one.commit("fact.md", note("blue"))
        status = await one.end_turn()
        assert (status.outcome, status.ahead) == (SyncOutcome.PUSH_FAILED, 1)
        assert "Connection refused" in status.detail
        with ssh_server(tmp_path / "other", port=port):
            assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
            assert main_of(repository) == one.published.head()
    finally:
        await one.memory.aclose()


async def test_a_mirror_over_ssh(
    tmp_path: Path, server: SshServer, person: SshPerson, remote: InPersonsHome, repository: Path, copy: Path
) -> None:
    mirror = person.remote(MemoryHost.MIRROR, f"{server.url(tmp_path / 'copies')}/{{agent}}.git")
    one = Machine(tmp_path / "a", None, remote=remote, mirror=mirror)
    try:
        await one.memory.prepare(AGENT, CARD)
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        status = await mirrored(one)
        assert (status.head, status.fault) == (one.published.head(), "")
        assert main_of(copy) == main_of(repository) == one.published.head()
        forget_the_server(tmp_path, server, person)
        one.commit("fact.md", note("blue"))
        await one.end_turn()
        status = await mirrored(one)
        assert (status.head, "not in your known_hosts" in status.fault) == (main_of(copy), True)
        put_right(server, person)
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        status = await mirrored(one)
        assert (status.head, status.fault) == (one.published.head(), "")
        assert main_of(copy) == one.published.head()
    finally:
        await one.memory.aclose()


async def test_no_connection_is_held_open(tmp_path: Path, person: SshPerson, remote: InPersonsHome) -> None:
    """Whatever the person's configuration says: it would outlive the daemon."""
    # A socket's path must be short.
    with tempfile.TemporaryDirectory() as held:
        person.config.write_text(f"ControlMaster auto\nControlPath {held}/%p\nControlPersist 5\n")
        async with machines(tmp_path, 1, remote):
            assert list(Path(held).iterdir()) == []


async def test_our_files_have_neither_address_nor_key(
    tmp_path: Path, server: SshServer, person: SshPerson, remote: InPersonsHome
) -> None:
    key = server.key.read_bytes().splitlines()[2]
    server.key.unlink()
    async with machines(tmp_path, 2, remote) as seats:
        for machine in seats:
            files = [path for path in machine.published.folder.rglob("*") if path.is_file()]
            assert files
            found = [path for path in files if b"ssh://" in (held := path.read_bytes()) or key in held]
            assert found == []


ADDRESS = "ssh://git@example.org/{agent}.git"


@pytest.mark.parametrize(
    ("text", "address", "has_agent", "words"),
    [
        ("No ED25519 host key is known for x and you", ADDRESS, True, "`ssh git@example.org` once by hand"),
        ("Host key for x has changed and you", ADDRESS, True, "`ssh-keygen -R 'example.org'`, then `ssh git@ex"),
        (
            "Host key for x has changed",
            "ssh://h:2222/{agent}",
            True,
            "`ssh-keygen -R '[h]:2222'`, then `ssh -p 2222 h`",
        ),
        ("git@x: Permission denied (publickey).", ADDRESS, False, "the daemon was started without an agent"),
        ("Received disconnect: Too many authentication failures", ADDRESS, True, "IdentitiesOnly"),
        ("error: Permission denied", ADDRESS, True, ""),
        ("ssh: connect to host x port 22: Connection refused", ADDRESS, True, ""),
    ],
)
def test_advice(text: str, address: str, has_agent: bool, words: str) -> None:
    said = ssh_advice(text, parse_git_address(address), has_agent)
    assert words in said if words else said == ""
    if words:
        assert judge(255, f"{text}\nHost key verification failed.") is RemoteAnswer.REFUSED
