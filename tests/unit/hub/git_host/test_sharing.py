"""Memories that agents share: names, who may do what, and a real hub with stock git."""

import asyncio
import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_hub.git_host import repositories
from lodger_hub.git_host.deleted import KEPT_DAYS
from lodger_hub.git_host.grants import Right
from lodger_hub.git_host.repositories import Repositories, TooManyRepositories, own_memory
from lodger_hub.git_host.sharing import MAX_ATTACHED, BadAgentsFile, NotShared, Sharing, StillThere, TooManyAttached
from lodger_protocol.shared_names import shared_name_fault
from lodger_tools.validator.limits import DEFAULT_LIMITS
from lodger_tools.validator.names import fold, name_fault
from support.git_host_server import TOKEN, running_git_host
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


def test_what_is_deleted_is_kept_for_a_time_and_comes_back_to_who_had_it(tmp_path: Path) -> None:
    sharing = Sharing(Repositories(tmp_path))
    day_ns, now_ns = 24 * 3600 * 10**9, time.time_ns()
    with pytest.raises(NotShared):
        sharing.delete("team", now_ns)
    for number in range(2):
        sharing.create("team")
        (tmp_path / "shared" / "team" / "mark").write_text(f"{number}")
        sharing.attach("team", "agent-a", Right.WRITE)
        assert sharing.delete("team", now_ns + number) == ("agent-a",)
    assert (sharing.list(), sharing.right("team", "agent-a"), sharing.of_agent("agent-a")) == ((), Right.NONE, {})
    sharing.create("other")
    with pytest.raises(StillThere):
        sharing.bring_back("other")
    assert Sharing(Repositories(tmp_path)).bring_back("team") == ("agent-a",)
    assert (tmp_path / "shared" / "team" / "mark").read_text() == "1"
    assert sharing.of_agent("agent-a") == {"team": Right.WRITE}
    sharing.delete("team", now_ns + 2)
    sharing.drop_old(now_ns + KEPT_DAYS * day_ns + 1)
    assert [place.name for place in (tmp_path / "deleted").iterdir()] == [f"{now_ns + 2}-team"]
    sharing.delete("other", now_ns + KEPT_DAYS * day_ns + 3)
    with pytest.raises(NotShared, match="in the last 30 days"):
        sharing.bring_back("team")
    with pytest.raises(ValueError, match="a name is made of"):
        sharing.bring_back("../team")


def test_one_that_was_half_made_is_not_in_the_way_of_the_one_that_was_deleted(tmp_path: Path) -> None:
    class Died(BaseException):
        pass

    def die(command: list[str], **_: object) -> None:
        Path(command[-1]).mkdir()
        raise Died

    sharing = Sharing(Repositories(tmp_path))
    sharing.create("team")
    sharing.attach("team", "agent-a", Right.WRITE)
    sharing.delete("team", time.time_ns())
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Died):
        patch.setattr("lodger_hub.git_host.repositories.subprocess.run", die)
        sharing.create("team")
    assert (sharing.list(), list((tmp_path / "shared" / "team").iterdir()) != []) == ((), True)
    sharing = Sharing(Repositories(tmp_path))
    assert sharing.bring_back("team") == ("agent-a",)
    assert [place.name for place in (tmp_path / "shared").glob("*/making-*")] == []


def test_one_that_was_half_removed_does_not_come_back(tmp_path: Path) -> None:
    class Died(BaseException):
        pass

    def die(place: Path, **_: object) -> None:
        (place / "state.git" / "HEAD").unlink()
        raise Died

    late_ns = (KEPT_DAYS * 24 * 3600 + 1) * 10**9
    sharing = Sharing(Repositories(tmp_path))
    sharing.create("team")
    sharing.delete("team", 1)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Died):
        patch.setattr("lodger_hub.git_host.deleted.shutil.rmtree", die)
        sharing.drop_old(late_ns)
    sharing = Sharing(Repositories(tmp_path))
    with pytest.raises(NotShared):
        sharing.bring_back("team")
    sharing.drop_old(late_ns)
    assert list((tmp_path / "deleted").iterdir()) == []


def test_as_many_memories_as_a_hub_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories, "MAX_REPOSITORIES", 3)
    made = Repositories(tmp_path)
    sharing = Sharing(made)
    made.ensure(own_memory("agent-a"))
    sharing.create("team")
    sharing.create("old")
    with pytest.raises(TooManyRepositories, match="holds 3 memories"):
        made.ensure(own_memory("agent-b"))
    # What is there goes on, and what was deleted does not count.
    assert (made.ensure(own_memory("agent-a")).is_dir(), sharing.create("team")) == (True, False)
    sharing.delete("old", time.time_ns())
    made.ensure(own_memory("agent-b"))
    for refused in (lambda: sharing.create("new"), lambda: sharing.bring_back("old")):
        with pytest.raises(TooManyRepositories):
            refused()
    assert sharing.delete("team", time.time_ns()) == ()
    assert sharing.bring_back("old") == ()


async def test_a_deleted_memory_is_nobodys_until_it_is_brought_back(tmp_path: Path) -> None:
    async with running_hub(tmp_path / "hub") as hub:
        await asyncio.to_thread(_delete_it, hub, tmp_path)


def _delete_it(hub: Hub, place: Path) -> None:
    url = f"{hub.url}/v1/git/agent-w/repositories/team.git"
    ask(hub, "POST", "/v1/repositories", body={"name": "team"})
    ask(hub, "PUT", "/v1/repositories/team/agents/agent-w", body={})
    assert git(hub, place, "clone", "-q", url, "w")
    assert git(hub, place / "w", "checkout", "-q", "-B", "main")
    for message in ("first", "second"):
        assert git(hub, place / "w", "commit", "-q", "--allow-empty", "-m", message)
    assert git(hub, place / "w", "push", "-q", "origin", "main~1:refs/heads/main")
    for method, path in (("DELETE", "/v1/repositories/team"), ("POST", "/v1/repositories/team/restore")):
        assert ask(hub, method, path, "machine")[0] == 403
    assert ask(hub, "POST", "/v1/repositories/team/restore") == (409, "still_there")
    assert ask(hub, "DELETE", "/v1/repositories/none") == (404, "not_shared")
    deleted = {"name": "team", "agents": ["agent-w"], "kept_days": KEPT_DAYS}
    assert ask(hub, "DELETE", "/v1/repositories/team") == (200, deleted)
    assert ask(hub, "GET", "/v1/repositories")[1] == {"repositories": []}
    assert not git(hub, place / "w", "push", "-q", "origin", "main")
    assert ask(hub, "POST", "/v1/repositories/team/restore") == (200, {"name": "team", "agents": ["agent-w"]})
    assert git(hub, place / "w", "push", "-q", "origin", "main")
    assert ask(hub, "POST", "/v1/repositories/other/restore") == (404, "not_shared")


def test_a_request_that_was_let_in_before_makes_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_git_host(tmp_path) as hub:
        hub.host.sharing.create("team")
        monkeypatch.setattr(hub.host.sharing, "right", lambda name, agent_id: Right.WRITE)
        url = f"{hub.base_url}/v1/git/agent-w/repositories/team.git/info/refs?service=git-receive-pack"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.status == 200
        hub.host.delete_shared("team")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(request, timeout=20)
        assert list((tmp_path / "shared").iterdir()) == []


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
