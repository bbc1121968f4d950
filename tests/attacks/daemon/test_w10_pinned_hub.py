"""W10 over the network: whoever answers in the hub's place with another certificate gets no token and no memory."""

import asyncio
import datetime
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lodger_cli.hub_api import ask_hub
from lodger_cli.pinning import fetch_certificate
from lodger_cli.wire import WireError
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.commits import Identity
from lodger_daemon.memory.git import Git, GitFailed, RunningGits
from lodger_daemon.memory.remote import MemoryRemote
from lodger_daemon.service.link import Hub as DaemonsHub
from lodger_daemon.service.settings import parse_settings
from lodger_daemon.uplink.core.status import UplinkState
from lodger_hub.lan.certificate import prepare_certificate
from lodger_hub.options import LanListener
from support.hub_rig import Hub, running_hub, running_uplink, until

AGENT = AgentId("agent-1")


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running_hub(tmp_path / "hub", lan=LanListener(host="127.0.0.1", port=0)) as hub:
        yield hub


def lan_url(hub: Hub) -> str:
    return next(place.url for place in hub.reach.places if place.url.startswith("https:"))


def impostors_certificate(folder: Path) -> Path:
    now = datetime.datetime.now(datetime.UTC)
    return prepare_certificate(folder, (), "elsewhere", now).certificate


def remote(hub: Hub, ca_file: Path | None) -> MemoryRemote:
    return MemoryRemote(lan_url(hub), lambda: hub.token("machine"), ca_file=ca_file)


def push_and_list(hub: Hub, ca_file: Path | None, folder: Path) -> tuple[bool, tuple[AgentId, ...]]:
    """Whether git got through, and the agents that were listed after it."""
    where = remote(hub, ca_file)
    folder.mkdir()
    git = Git(folder / "published.git", Identity("a", "a@lodger.invalid"), RunningGits())
    git.run("init", "-q", "--bare")
    tree = git.line("mktree")
    commit = git.line("commit-tree", "-m", "x", tree)
    try:
        git.run("push", "-q", where.url(AGENT), f"{commit}:refs/heads/main", environment=where.environment())
    except GitFailed:
        return False, where.list_agents()
    return True, where.list_agents()


async def test_w10_memory_goes_to_the_hub_with_the_pinned_certificate_only(hub: Hub, tmp_path: Path) -> None:
    own = hub.state / "tls" / "lan.pem"
    other = await asyncio.to_thread(impostors_certificate, tmp_path / "other")
    for number, ca_file in enumerate((other, None, tmp_path / "missing.pem")):
        refused = await asyncio.to_thread(push_and_list, hub, ca_file, tmp_path / str(number))
        assert refused == (False, ())
    assert not list((hub.state / "git").glob("*agent-1*"))
    assert await asyncio.to_thread(push_and_list, hub, own, tmp_path / "own") == (True, (AGENT,))


async def test_w10_verification_cannot_be_switched_off_from_around(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_SSL_NO_VERIFY", "1")
    monkeypatch.setenv("GIT_SSL_CAINFO", str(hub.state / "tls" / "lan.pem"))
    other = await asyncio.to_thread(impostors_certificate, tmp_path / "other")
    assert await asyncio.to_thread(push_and_list, hub, other, tmp_path / "git") == (False, ())


async def test_w10_the_uplink_takes_a_replaced_certificate_up(hub: Hub, tmp_path: Path) -> None:
    """As when the hub had to make a new one: the file is copied again, and nothing is restarted."""
    pinned = tmp_path / "hub.pem"
    pinned.write_bytes((await asyncio.to_thread(impostors_certificate, tmp_path / "other")).read_bytes())
    async with running_uplink(lan_url(hub), hub.token("machine"), ca_file=pinned) as rig:
        await until(lambda: rig.uplink.status().failures > 0, "a failed try")
        assert "certificate was not accepted" in (rig.uplink.status().reason or "")
        pinned.write_bytes((hub.state / "tls" / "lan.pem").read_bytes())
        await until(lambda: rig.uplink.status().state is UplinkState.CONNECTED, "connected")


async def test_w10_a_fingerprint_takes_one_certificate_and_no_other(hub: Hub, tmp_path: Path) -> None:
    url, fingerprint = lan_url(hub), hub.reach.fingerprint
    assert fingerprint is not None
    kept = tmp_path / "hub.pem"
    kept.write_text(await asyncio.to_thread(fetch_certificate, url, fingerprint.lower().replace(":", "")))
    call = await asyncio.to_thread(ask_hub, url, hub.token("client"), "GET", "/v1/devices", None, kept)
    assert call["devices"]
    wrong = fingerprint[:-1] + ("0" if fingerprint[-1] != "0" else "1")
    for given, words in ((wrong, "Nothing was sent"), ("AB:CD", "64 hexadecimal digits"), ("", "64")):
        with pytest.raises(WireError, match=words):
            await asyncio.to_thread(fetch_certificate, url, given)
    other = await asyncio.to_thread(impostors_certificate, tmp_path / "other")
    for ca_file in (other, None, tmp_path / "missing.pem"):
        with pytest.raises(WireError):
            await asyncio.to_thread(ask_hub, url, hub.token("client"), "GET", "/v1/devices", None, ca_file)


async def test_a_setting_names_the_file(hub: Hub, tmp_path: Path) -> None:
    text = f'[hub]\nurl = "{lan_url(hub)}"\ntoken_file = "/t"\nca_file = "~/hub.pem"\n'
    settings = parse_settings(text.encode(), "settings.toml")
    assert settings.hub.ca_file == "~/hub.pem"
    kept = DaemonsHub(lan_url(hub), tmp_path / "t", tmp_path / "hub.pem").memory_remote()
    assert (kept.ca_file, urlsplit(kept.base_url).scheme) == (tmp_path / "hub.pem", "https")
