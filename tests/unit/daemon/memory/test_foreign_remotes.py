"""Memory at git hosts that are no hub: as the remote, and as a mirror. Stock `git http-backend` on the other side."""

import asyncio
import base64
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.core.git_addresses import BadAddress, GitAddress, parse_git_address
from lodger_daemon.memory.mirror import MirrorStatus
from lodger_daemon.memory.remote import ForeignRemote
from support.foreign_git_host import running_foreign_host, telling_everything
from support.git_host_server import TOKEN, RunningHost
from support.hanging_host import hanging_host
from support.memory_conflicts import apart, in_order
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git

CANARY = "canary-7f3e-of-a-token"
ENCODED = base64.b64encode(f"letta:{CANARY}".encode()).decode()


def foreign(base_url: str, token: str = TOKEN) -> ForeignRemote:
    with_user = base_url.replace("http://", "http://letta@")
    return ForeignRemote(parse_git_address(f"{with_user}/v1/git/{{agent}}/state.git"), lambda: token)


def repository(root: Path) -> Path:
    return root / "v1" / "git" / AGENT / "state.git"


def main_of(repository: Path) -> str:
    return agent_git(repository, "rev-parse", "main")


async def mirrored(machine: Machine) -> MirrorStatus:
    mirror = machine.memory._mirror
    assert mirror is not None
    await mirror.settled(AGENT, 30)
    status = machine.memory.mirror_status(AGENT)
    assert status is not None
    return status


async def test_two_machines_share_a_memory_by_any_git_host(tmp_path: Path) -> None:
    with running_foreign_host(tmp_path / "host", AGENT) as base_url:
        one = Machine(tmp_path / "a", None, remote=foreign(base_url))
        two = Machine(tmp_path / "b", None, remote=foreign(base_url))
        try:
            await one.memory.prepare(AGENT, CARD)
            one.commit("fact.md", note("blue"))
            assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
            await two.memory.prepare(AGENT, None)
            assert (two.checkout / "fact.md").read_text() == note("blue")
            await two.memory.freshen(AGENT, 30)
            one.commit("fact.md", note("green"))
            await one.end_turn()
            # Nobody announces it, and it was asked a moment ago.
            await two.memory.freshen(AGENT, 30)
            assert (two.checkout / "fact.md").read_text() == note("blue")
            two.memory.repository(AGENT, None).ask_again_at = 0.0
            await two.memory.freshen(AGENT, 30)
            assert (two.checkout / "fact.md").read_text() == note("green")
            in_order(one, two)
        finally:
            await one.memory.aclose()
            await two.memory.aclose()


async def test_a_remote_that_hangs_is_waited_for_by_one_turn_only(tmp_path: Path) -> None:
    with hanging_host() as base_url:
        one = Machine(tmp_path / "a", None, remote=foreign(base_url))
        try:
            await one.memory.prepare(AGENT, CARD)
            started_at = one.clock.mono()
            await one.memory.freshen(AGENT, 0.3)
            assert one.clock.mono() - started_at >= 0.3
            # Nothing has been given up yet, and it is as stale as before: an hour's patience would be needed.
            async with asyncio.timeout(30):
                await one.memory.freshen(AGENT, 3600)
            assert (await one.memory.settled(AGENT, 0)).outcome is SyncOutcome.SKIPPED
        finally:
            await one.memory.aclose()


async def test_a_mirror_gets_main_after_each_sync(tmp_path: Path, hub: RunningHost) -> None:
    with running_foreign_host(tmp_path / "host", AGENT) as base_url:
        one = Machine(tmp_path / "a", hub, mirror=foreign(base_url))
        try:
            await one.memory.prepare(AGENT, CARD)
            one.commit("fact.md", note("blue"))
            assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
            status = await mirrored(one)
            assert (status.head, status.fault) == (one.published.head(), "")
            assert main_of(repository(tmp_path / "host")) == one.published.head() == hub.host.head(AGENT)
            assert agent_git(repository(tmp_path / "host"), "for-each-ref", "--format=%(refname)") == "refs/heads/main"
        finally:
            await one.memory.aclose()


async def test_a_mirror_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    with running_foreign_host(tmp_path / "host", AGENT) as base_url:
        one = Machine(tmp_path / "a", None, mirror=foreign(base_url))
        two = Machine(tmp_path / "b", None, mirror=foreign(base_url))
        try:
            for machine in (one, two):
                await machine.memory.prepare(AGENT, CARD)
                machine.commit("fact.md", note(machine.paths.state.parent.name))
                assert (await machine.end_turn()).outcome is SyncOutcome.SKIPPED
                await mirrored(machine)
            assert main_of(repository(tmp_path / "host")) == one.published.head()
            status = await mirrored(two)
            assert (status.head, "not in this memory" in status.fault) == (None, True)
        finally:
            await one.memory.aclose()
            await two.memory.aclose()


async def test_what_is_in_conflict_is_not_mirrored(tmp_path: Path, hub: RunningHost) -> None:
    with running_foreign_host(tmp_path / "host", AGENT) as base_url:
        async with apart(tmp_path, hub, ("fact.md", note("green"), note("red"))) as (_, two):
            again = Machine(tmp_path / "b", hub, mirror=foreign(base_url))
            try:
                assert (await again.end_turn()).outcome is SyncOutcome.CONFLICT
                await mirrored(again)
                assert main_of(repository(tmp_path / "host")) == hub.host.head(AGENT) != two.published.head()
            finally:
                await again.memory.aclose()


def command_lines() -> bytes:
    found = b""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += (entry / "cmdline").read_bytes() + b"\n"
            except OSError:
                continue
    return found


@pytest.mark.parametrize("as_mirror", [True, False])
async def test_g5_the_credential_stands_nowhere(tmp_path: Path, as_mirror: bool) -> None:
    """Not in configuration, arguments, reflog or any other file, and not in what a person is told."""
    with telling_everything() as (base_url, asked, go_on):
        remote = foreign(base_url, CANARY)
        one = Machine(tmp_path / "a", None, **({"mirror": remote} if as_mirror else {"remote": remote}))
        try:
            go_on.set() if not as_mirror else None
            await one.memory.prepare(AGENT, CARD)
            go_on.clear()
            asked.clear()
            one.commit("fact.md", note("blue"))
            one.memory.turn_ended(AGENT, one.box)
            assert await asyncio.to_thread(asked.wait, 30)
            lines = command_lines()
            assert b"git-remote-http" in lines
            go_on.set()
            status = await one.memory.settled(AGENT, 30)
            said = (await mirrored(one)).fault if as_mirror else status.detail
            assert "403" in said
            told = [lines.decode("utf-8", "replace"), said, *one.memory.reminders(AGENT)]
            for text in told:
                assert CANARY not in text
                assert ENCODED not in text
            files = [path for path in one.published.folder.rglob("*") if path.is_file()]
            assert files
            assert [path for path in files if CANARY.encode() in (held := path.read_bytes())
                    or ENCODED.encode() in held] == []  # fmt: skip
        finally:
            await one.memory.aclose()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (
            "https://ada@git.example.org:8443/ada/{agent}.git",
            GitAddress("https", "https://git.example.org:8443", "https://git.example.org:8443/ada/{agent}.git", "ada"),
        ),
        (
            "http://127.0.0.1:3000/{agent}",
            GitAddress("http", "http://127.0.0.1:3000", "http://127.0.0.1:3000/{agent}", "git"),
        ),
        (
            "ssh://git@example.org:22/memories/{agent}.git",
            GitAddress("ssh", "ssh://example.org:22", "ssh://git@example.org:22/memories/{agent}.git", "git"),
        ),
    ],
)
def test_addresses(text: str, address: GitAddress) -> None:
    assert parse_git_address(text) == address
    assert parse_git_address(text).url("agent-ada") == address.template.replace("{agent}", "agent-ada")


@pytest.mark.parametrize(
    "text",
    [
        "https://git.example.org/ada/memory.git",
        "https://ada:secret@git.example.org/{agent}.git",
        "http://git.example.org/{agent}.git",
        "https://{agent}.example.org/x.git",
        "https://git.example.org/{agent}/../{agent}.git",
        "https://git.example.org/a/../{agent}.git",
        "https://git.example.org/{agent}.git?x={agent}",
        "ssh://-oProxyCommand=x/{agent}.git",
        "ssh://-o@example.org/{agent}.git",
        "ext::sh -c touch% /tmp/x {agent}",
        "file:///srv/{agent}.git",
        "/srv/{agent}.git",
        "git@example.org:{agent}.git",
        "https://git.example.org:port/{agent}.git",
        "https://git.example.org/{agent}.git\nx",
        "https:///{agent}.git",
        "",
    ],
)
def test_addresses_that_memory_is_not_sent_to(text: str) -> None:
    with pytest.raises(BadAddress):
        parse_git_address(text)


def test_ssh_asks_nobody_and_carries_no_token() -> None:
    address = parse_git_address("ssh://git@example.org/{agent}.git")
    environment = ForeignRemote(address, lambda: CANARY, "/run/agent.sock").environment()
    assert environment["SSH_AUTH_SOCK"] == "/run/agent.sock"
    for wanted in ("BatchMode=yes", "StrictHostKeyChecking=yes", "ForwardAgent=no"):
        assert wanted in environment["GIT_SSH_COMMAND"]
    assert CANARY not in str(environment)
