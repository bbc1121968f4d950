"""Memories that agents share: names, who may do what, and a real hub with stock git."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_hub.git_host.grants import Right
from lodger_hub.git_host.repositories import Repositories
from lodger_hub.git_host.sharing import MAX_ATTACHED, BadAgentsFile, NotShared, Sharing, TooManyAttached
from lodger_protocol.shared_names import shared_name_fault
from lodger_tools.validator.limits import DEFAULT_LIMITS
from lodger_tools.validator.names import fold, name_fault
from support.hub_rig import Hub, running_hub
from unit.hub.git_host.test_grants import git


def test_names() -> None:
    good = ("notes", "a", "team.notes", "x_1", "2026-plans", "a" * 64, "a--b")
    bad = (
        "", "a" * 65, "Notes", "memory", ".git", ".hidden", "-x", "a.", "a/b", "..", "a b", "ä", "con", "con.md", "nul",
        "lpt1.x", "x.git", "x.lock", "a\n", "a%2f", "a:b",
    )  # fmt: skip
    assert [shared_name_fault(name) for name in good] == [None] * len(good)
    assert all(shared_name_fault(name) for name in bad)


@given(st.text(max_size=70) | st.from_regex(r"[a-z0-9._-]{1,70}", fullmatch=True))
def test_a_name_is_one_on_every_file_system(name: str) -> None:
    if shared_name_fault(name) is None:
        assert fold(name) == name
        assert name_fault(name.encode(), DEFAULT_LIMITS) is None


def test_who_may_do_what_outlives_the_hub_and_a_broken_file_lets_nobody_in(tmp_path: Path) -> None:
    sharing = Sharing(Repositories(tmp_path))
    assert (sharing.create("team"), sharing.create("team"), sharing.create("other")) == (True, False, True)
    sharing.attach("team", "agent-a", Right.WRITE)
    sharing.attach("team", "agent-b", Right.READ)
    again = Sharing(Repositories(tmp_path))
    rights = [
        again.right(name, agent) for name in ("team", "other", "none", "../x") for agent in ("agent-a", "agent-b")
    ]
    assert rights == [Right.WRITE, Right.READ, *[Right.NONE] * 6]
    assert (again.of_agent("agent-b"), [one.name for one in again.list()]) == ({"team": Right.READ}, ["other", "team"])
    for text in (b"", b"[]", b'{"agents": {"agent-a": "admin"}}', b'{"agents": {"../x": "read"}}', b"[" * 5000):
        (tmp_path / "shared" / "team" / "agents.json").write_bytes(text)
        assert (again.right("team", "agent-a"), again.of_agent("agent-a")) == (Right.NONE, {}), text
        with pytest.raises(BadAgentsFile):
            again.attach("team", "agent-c", Right.WRITE)
        assert (tmp_path / "shared" / "team" / "agents.json").read_bytes() == text


def test_what_cannot_be_attached(tmp_path: Path) -> None:
    sharing = Sharing(Repositories(tmp_path))
    with pytest.raises(NotShared):
        sharing.attach("team", "agent-a", Right.WRITE)
    with pytest.raises(ValueError, match="no agent id"):
        sharing.attach("team", "../agent-a", Right.WRITE)
    with pytest.raises(ValueError, match="a name is made of"):
        sharing.create("Team")
    for number in range(MAX_ATTACHED + 1):
        sharing.create(f"n{number}")
    for number in range(MAX_ATTACHED):
        sharing.attach(f"n{number}", "agent-a", Right.READ)
    with pytest.raises(TooManyAttached):
        sharing.attach(f"n{MAX_ATTACHED}", "agent-a", Right.READ)
    sharing.attach("n0", "agent-a", Right.WRITE)
    sharing.attach("n1", "agent-a", Right.NONE)
    sharing.attach(f"n{MAX_ATTACHED}", "agent-a", Right.READ)
    assert sharing.of_agent("agent-a")["n0"] is Right.WRITE


def ask(hub: Hub, method: str, path: str, role: str = "client", body: object = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{hub.url}{path}", data, method=method)
    request.add_header("Authorization", f"Bearer {hub.token(role)}")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["errorCode"]


async def test_stock_git_reads_and_writes_what_its_agent_may(tmp_path: Path) -> None:
    async with running_hub(tmp_path / "hub") as hub:
        await asyncio.to_thread(_share_it, hub, tmp_path)


def _share_it(hub: Hub, place: Path) -> None:
    def url(agent: str, name: str = "team") -> str:
        return f"{hub.url}/v1/git/{agent}/repositories/{name}.git"

    assert ask(hub, "POST", "/v1/repositories", body={"name": "team"}) == (
        201,
        {"id": "team", "name": "team", "made": True},
    )
    for agent, right in (("agent-w", "write"), ("agent-r", "read")):
        path = f"/v1/repositories/team/agents/{agent}"
        assert ask(hub, "PUT", path, body={"permissions": right})[1]["permissions"] == right
    assert git(hub, place, "clone", "-q", url("agent-w"), "w")
    assert git(hub, place / "w", "checkout", "-q", "-B", "main")
    assert git(hub, place / "w", "commit", "-q", "--allow-empty", "-m", "first")
    assert git(hub, place / "w", "push", "-q", "origin", "main")
    assert git(hub, place, "clone", "-q", url("agent-r"), "r")
    assert git(hub, place / "r", "commit", "-q", "--allow-empty", "-m", "second")
    assert not git(hub, place / "r", "push", "-q", "origin", "main")
    for nobody in (url("agent-x"), url("agent-w", "nothing"), url("agent-w", "te%61m"), url("agent-w", "Team")):
        assert not git(hub, place, "ls-remote", nobody)
    # Another's right is not had by another address.
    assert not git(hub, place, "ls-remote", f"{hub.url}/v1/git/shared/state.git")
    assert not (hub.state / "git" / "shared" / "nothing").exists()

    head = (hub.state / "git" / "shared" / "team" / "state.git" / "refs" / "heads" / "main").read_text().strip()
    assert ask(hub, "GET", "/v1/agents/agent-r/repositories", "machine")[1]["repositories"] == [
        {"id": "agent-r", "name": "memory", "permissions": "write", "is_primary": True, "head": None},
        {"id": "team", "name": "team", "permissions": "read", "is_primary": False, "head": head},
    ]
    assert ask(hub, "GET", "/v1/repositories")[1]["repositories"] == [
        {
            "id": "team",
            "name": "team",
            "agents": [
                {"agent_id": "agent-r", "permissions": "read"},
                {"agent_id": "agent-w", "permissions": "write"},
            ],
        }
    ]
    # A machine cannot widen what its agents may do.
    assert ask(hub, "PUT", "/v1/repositories/team/agents/agent-r", "machine", {"permissions": "write"})[0] == 403
    assert ask(hub, "POST", "/v1/repositories", "machine", {"name": "mine"})[0] == 403
    assert ask(hub, "PUT", "/v1/repositories/none/agents/agent-r", body={}) == (404, "not_shared")
    assert ask(hub, "PUT", "/v1/repositories/team/agents/agent-r", body={"permissions": "all"})[0] == 400
    assert ask(hub, "POST", "/v1/repositories", body={"name": "Team"}) == (400, "invalid_name")
    assert ask(hub, "DELETE", "/v1/repositories/team/agents/agent-w")[1]["permissions"] == "none"
    assert git(hub, place / "w", "commit", "-q", "--allow-empty", "-m", "late")
    assert not git(hub, place / "w", "push", "-q", "origin", "main")
    assert not git(hub, place / "w", "fetch", "-q", "origin")
    # A device that may not use the agent's memory may not use what it shares.
    (hub.state / "grants.toml").write_text('[devices."own-machine"]\nread = ["agent-x"]\n')
    assert not git(hub, place / "r", "fetch", "-q", "origin")
    assert ask(hub, "GET", "/v1/agents/agent-r/repositories", "machine") == (404, "not_found")
