"""Which device may use which memory: the file, and a real hub with stock git."""

import asyncio
import base64
import json
import os
import subprocess
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_hub.git_host.grants import BadGrants, DeviceGrant, Grants, Right, parse_grants
from support.hub_rig import Hub, running_hub

OWN = "own-machine"


def git(hub: Hub, cwd: Path, *argv: str) -> bool:
    basic = base64.b64encode(f"letta:{hub.token('machine')}".encode()).decode()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {basic}",
    }
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return (
        subprocess.run(["git", *who, *argv], cwd=cwd, env=environment, capture_output=True, timeout=60).returncode == 0
    )


def url(hub: Hub, agent: str) -> str:
    return f"{hub.url}/v1/git/{agent}/state.git"


def listed(hub: Hub, role: str) -> list[str]:
    request = urllib.request.Request(f"{hub.url}/v1/agents/")
    request.add_header("Authorization", f"Bearer {hub.token(role)}")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return [entry["id"] for entry in json.load(answer)]


async def test_a_device_gets_what_it_is_granted(tmp_path: Path) -> None:
    async with running_hub(tmp_path / "hub") as hub:
        await asyncio.to_thread(_use_it, hub, tmp_path)


def _use_it(hub: Hub, place: Path) -> None:
    file = hub.state / "grants.toml"
    for agent in ("agent-a", "agent-b", "agent-c"):
        assert git(hub, place, "clone", "-q", url(hub, agent), agent)
        assert git(hub, place / agent, "checkout", "-q", "-B", "main")
        assert git(hub, place / agent, "commit", "-q", "--allow-empty", "-m", "first")
        assert git(hub, place / agent, "push", "-q", "origin", "main")
        assert git(hub, place / agent, "commit", "-q", "--allow-empty", "-m", "second")
    file.write_text(f'[devices."{OWN}"]\nread = ["agent-a"]\nwrite = ["agent-b"]\n')
    can_read = [
        git(hub, place, "ls-remote", url(hub, agent)) for agent in ("agent-a", "agent-b", "agent-c", "agent-new")
    ]
    can_write = [git(hub, place / agent, "push", "-q", "origin", "main") for agent in ("agent-a", "agent-b", "agent-c")]
    assert (can_read, can_write) == ([True, True, False, False], [False, True, False])
    assert not (hub.state / "git" / "agent-new").exists()
    assert (listed(hub, "machine"), listed(hub, "client")) == (
        ["agent-a", "agent-b"],
        ["agent-a", "agent-b", "agent-c"],
    )
    file.write_text("[devices\n")
    assert (git(hub, place, "ls-remote", url(hub, "agent-b")), listed(hub, "client")) == (False, [])
    file.unlink()
    assert git(hub, place / "agent-c", "push", "-q", "origin", "main")


def test_rights(tmp_path: Path) -> None:
    file = tmp_path / "grants.toml"
    grants = Grants(file)
    assert grants.right("device-1", "agent-a") is Right.WRITE
    file.write_text('[devices."device-1"]\nread = ["*"]\nwrite = ["agent-b"]\n[devices."device-2"]\n')
    asked = [grants.right(*who) for who in (("device-1", "agent-a"), ("device-1", "agent-b"), ("device-2", "agent-a"))]
    assert asked == [Right.READ, Right.WRITE, Right.NONE]
    assert grants.right("device-3", "agent-a") is Right.WRITE
    file.unlink()
    file.mkdir()
    assert grants.right("device-3", "agent-a") is Right.NONE


@pytest.mark.parametrize(
    "text",
    [
        "devices = 1",
        "read = ['agent-a']",
        "[devices.a]\nread = 'agent-a'",
        "[devices.a]\nread = [1]",
        "[devices.a]\nreed = ['agent-a']",
        "[devices]\na = 1",
        "\xff",
        "[devices.a",
    ],
)
def test_files_that_are_not_understood(text: str) -> None:
    with pytest.raises(BadGrants):
        parse_grants(text.encode("latin-1"))


@given(st.binary(max_size=200) | st.text(alphabet='[].="devicsrawt*\n', max_size=60).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        assert all(isinstance(grant, DeviceGrant) for grant in parse_grants(data).values())
    except BadGrants:
        pass
