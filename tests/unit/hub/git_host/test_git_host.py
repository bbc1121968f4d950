"""The git host with real git clients."""

import gzip
import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lodger_hub.git_host.app import HostLimits
from lodger_hub.git_host.upkeep import DEAD_LOCK_S, Checked, Upkeep, _sole, needs_tidying
from support.git_host_server import READ_TOKEN, TOKEN, RunningHost, basic, running_git_host
from support.patience import LIMIT_S

AGENT = "agent-1"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHost]:
    with running_git_host(tmp_path / "hub", HostLimits(request_bytes=4 * 1024 * 1024, stall_s=1.0)) as running:
        yield running


def git(*argv: str, cwd: Path, token: str = TOKEN) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: {basic(token)}",
    }
    return subprocess.run(["git", *argv], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)


def ok(*argv: str, cwd: Path, token: str = TOKEN) -> str:
    done = git(*argv, cwd=cwd, token=token)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def clone(hub: RunningHost, place: Path, agent: str = AGENT) -> Path:
    ok("clone", "-q", hub.url(agent), str(place), cwd=place.parent)
    ok("checkout", "-q", "-B", "main", cwd=place) if hub.host.head(agent) is None else None
    return place


def commit(place: Path, name: str, content: bytes) -> str:
    (place / name).write_bytes(content)
    ok("add", "-A", cwd=place)
    ok("commit", "-q", "-m", name, cwd=place)
    return ok("rev-parse", "HEAD", cwd=place)


def test_push_moves_the_head_and_tells(hub: RunningHost, tmp_path: Path) -> None:
    place = clone(hub, tmp_path / "a")
    first = commit(place, "one.md", b"one")
    ok("push", "-q", "-u", "origin", "main", cwd=place)
    assert (hub.told(1), hub.host.head(AGENT), hub.host.list_agents()) == ([(AGENT, first)], first, (AGENT,))
    other = clone(hub, tmp_path / "b")
    assert (other / "one.md").read_bytes() == b"one"


def test_a_hub_without_git_says_so(hub: RunningHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lodger_hub.git_host.repositories._GIT_PLACES", ())
    request = urllib.request.Request(f"{hub.url(AGENT)}/info/refs?service=git-upload-pack")
    request.add_header("Authorization", basic(TOKEN))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=LIMIT_S)
    with refused.value as answer:
        assert (answer.status, b"install git" in answer.read()) == (503, True)


def test_large_chunked_push_and_refusal_above_the_cap(hub: RunningHost, tmp_path: Path) -> None:
    place = clone(hub, tmp_path / "a")
    head = commit(place, "big", os.urandom(3 * 1024 * 1024))
    ok("push", "-q", "origin", "main", cwd=place)
    assert hub.host.head(AGENT) == head
    commit(place, "bigger", os.urandom(9 * 1024 * 1024))
    refused = git("push", "-q", "origin", "main", cwd=place)
    assert refused.returncode != 0
    assert hub.host.head(AGENT) == head


def test_forced_push_and_delete_are_refused(hub: RunningHost, tmp_path: Path) -> None:
    place = clone(hub, tmp_path / "a")
    head = commit(place, "one.md", b"one")
    ok("push", "-q", "origin", "main", cwd=place)
    ok("commit", "-q", "--amend", "-m", "other", cwd=place)
    assert git("push", "-q", "--force", "origin", "main", cwd=place).returncode != 0
    assert git("push", "-q", "origin", ":main", cwd=place).returncode != 0
    assert hub.host.head(AGENT) == head


def test_read_grant_reads_and_does_not_write(hub: RunningHost, tmp_path: Path) -> None:
    place = clone(hub, tmp_path / "a")
    head = commit(place, "one.md", b"one")
    ok("push", "-q", "origin", "main", cwd=place)
    assert ok("ls-remote", hub.url(AGENT), "main", cwd=place, token=READ_TOKEN).split()[0] == head
    commit(place, "two.md", b"two")
    assert git("push", "-q", "origin", "main", cwd=place, token=READ_TOKEN).returncode != 0
    assert hub.host.head(AGENT) == head


def status(hub: RunningHost, path: str, token: str | None = TOKEN, data: bytes | None = None) -> tuple[int, str]:
    headers = {"Authorization": basic(token)} if token else {}
    request = urllib.request.Request(hub.base_url + path, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("WWW-Authenticate") or ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/git/agent-1/state.git/info/refs?service=git-upload-pack", 200),
        ("/agent-1/state.git/info/refs?service=git-upload-pack", 200),
        ("/v1/git/agent-1/state.git/info/refs", 403),
        ("/v1/git/agent-1/state.git/HEAD", 404),
        ("/v1/git/agent-1/state.git/config", 404),
        ("/v1/git/agent-1/state.git/objects/info/packs", 404),
        ("/v1/git/agent-1/state.git/../state.git/config", 404),
        ("/v1/git/agent-1/state.git/%2e%2e/%2e%2e/x/info/refs?service=git-upload-pack", 404),
        ("/v1/git/agent%2d1/state.git/info/refs?service=git-upload-pack", 404),
        ("/v1/git/agent-foreign/state.git/info/refs?service=git-upload-pack", 404),
        ("/v1/git/person-1/state.git/info/refs?service=git-upload-pack", 404),
        ("/v1/git/agent-1/state.git/git-upload-archive", 404),
        ("/v1/git/agent-1/state.git/git-receive-pack", 405),
    ],
)
def test_only_the_three_routes_are_served(hub: RunningHost, path: str, expected: int) -> None:
    assert status(hub, path)[0] == expected


def test_without_a_token_asks_for_basic(hub: RunningHost) -> None:
    path = "/v1/git/agent-1/state.git/info/refs?service=git-upload-pack"
    assert status(hub, path, token=None) == (401, 'Basic realm="lodger memory"')
    assert not (hub.host._repositories.root / AGENT).exists()


def test_gzip_body_is_understood(hub: RunningHost) -> None:
    body = gzip.compress(b"0014command=ls-refs\n0000")
    request = urllib.request.Request(hub.url(AGENT) + "/git-upload-pack", data=body)
    for name, value in {
        "Authorization": basic(TOKEN),
        "Content-Encoding": "gzip",
        "Content-Type": "application/x-git-upload-pack-request",
        "Git-Protocol": "version=2",
    }.items():
        request.add_header(name, value)
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        assert (answer.status, answer.read()) == (200, b"0000")


def test_stalled_client_is_let_go(hub: RunningHost) -> None:
    port = int(hub.base_url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as client:
        head = (
            f"POST /v1/git/{AGENT}/state.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(TOKEN)}\r\n"
        )
        client.sendall((head + "Content-Length: 1000\r\n\r\nabc").encode())
        assert b" 408 " in client.recv(200)


def test_only_main_is_taken(hub: RunningHost, tmp_path: Path) -> None:
    place = clone(hub, tmp_path / "a")
    head = commit(place, "one.md", b"one")
    ok("tag", "v1", cwd=place)
    for name in ("main:other", "v1", "main:refs/notes/x", "main:refs/lodger/x"):
        assert git("push", "-q", "origin", name, cwd=place).returncode != 0
    ok("push", "-q", "origin", "main", cwd=place)
    refs = ok("for-each-ref", "--format=%(refname) %(objectname)", cwd=hub.host._repositories.path(AGENT))
    assert refs == f"refs/heads/main {head}"


def test_a_full_repository_is_read_and_takes_no_more(tmp_path: Path) -> None:
    with running_git_host(tmp_path / "hub", HostLimits(repository_bytes=100_000)) as hub:
        place = clone(hub, tmp_path / "a")
        head = commit(place, "big", os.urandom(150_000))
        ok("push", "-q", "origin", "main", cwd=place)
        commit(place, "small", b"x")
        refused = git("push", "-q", "origin", "main", cwd=place)
        assert (refused.returncode != 0, "413" in refused.stderr) == (True, True)
        assert clone(hub, tmp_path / "b").joinpath("big").exists()
        assert hub.host.head(AGENT) == head


def test_a_hub_takes_so_many_memories(hub: RunningHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone(hub, tmp_path / "a")
    monkeypatch.setattr("lodger_hub.git_host.repositories.MAX_REPOSITORIES", 1)
    refused = git("clone", "-q", hub.url("agent-2"), "b", cwd=tmp_path)
    assert (refused.returncode != 0, "403" in refused.stderr) == (True, True)
    ok("ls-remote", hub.url(AGENT), cwd=tmp_path)


def test_repositories_are_tidied_while_others_push(tmp_path: Path) -> None:
    # After each push.
    with running_git_host(tmp_path / "hub", HostLimits(loose_objects=-1)) as hub:
        repository = push_at_once(hub, tmp_path, pushers=4, steps=6)
        hub.tidied()
        left = repository / "objects" / "pack" / "tmp_pack_x"
        left.write_bytes(b"")
        os.utime(left, (1, 1))
        upkeep = Upkeep()
        with _sole(repository) as ours:
            assert ours
            assert upkeep.tidy(repository) is False
        assert upkeep.tidy(repository) is True
        assert not left.exists()
        assert sum(1 for _ in (repository / "objects" / "pack").glob("*.pack")) == 1
        reachable = {line[:40] for line in ok("rev-list", "--objects", "main", cwd=repository).splitlines()}
        loose = {path.parent.name + path.name for path in (repository / "objects").glob("??/*")}
        # Of pushes that lost a race something may stay for two days, as of a push that is not finished.
        assert reachable & loose == set()
        assert upkeep.check(repository) == Checked(True, "")
        assert not needs_tidying(repository)
        assert needs_tidying(repository, max_packs=0)
        clone(hub, tmp_path / "after")


def test_check_tells_what_is_broken(hub: RunningHost, tmp_path: Path) -> None:
    place = clone(hub, tmp_path / "a")
    commit(place, "one.md", b"one")
    ok("push", "-q", "origin", "main", cwd=place)
    repository = hub.host._repositories.path(AGENT)
    blob = ok("rev-parse", "main:one.md", cwd=place)
    (repository / "objects" / blob[:2] / blob[2:]).unlink()
    found = Upkeep().check(repository)
    assert (found.whole, blob in found.text) == (False, True)


def test_upkeep_that_is_stopped_starts_nothing_more(hub: RunningHost, tmp_path: Path) -> None:
    place = clone(hub, tmp_path / "a")
    commit(place, "one.md", b"one")
    ok("push", "-q", "origin", "main", cwd=place)
    upkeep = Upkeep()
    upkeep.stop()
    assert upkeep.tidy(hub.host._repositories.path(AGENT)) is False
    ok("fsck", "--full", "--strict", cwd=hub.host._repositories.path(AGENT))


@pytest.mark.parametrize("lock", ["refs/heads/main.lock", "packed-refs.lock", "packed-refs.new"])
def test_a_lock_that_a_killed_git_left_is_in_the_way_for_a_while_only(
    hub: RunningHost, tmp_path: Path, lock: str
) -> None:
    place = clone(hub, tmp_path / "a")
    commit(place, "one.md", b"one")
    ok("push", "-q", "-u", "origin", "main", cwd=place)
    Upkeep().tidy(hub.host._repositories.path(AGENT))
    left = hub.host._repositories.path(AGENT) / lock
    left.touch()
    second = commit(place, "two.md", b"two")
    if lock.startswith("refs"):
        assert git("push", "-q", cwd=place).returncode != 0, "somebody may be moving it now"
    os.utime(left, times=(left.stat().st_atime, left.stat().st_mtime - DEAD_LOCK_S - 1))
    ok("push", "-q", cwd=place)
    assert hub.host.head(AGENT) == second and not left.exists()
    assert Upkeep().tidy(hub.host._repositories.path(AGENT)) is True


def test_many_pushers_lose_nothing(hub: RunningHost, tmp_path: Path) -> None:
    push_at_once(hub, tmp_path, pushers=4, steps=2)


def push_at_once(hub: RunningHost, tmp_path: Path, pushers: int, steps: int) -> Path:
    """The hub's repository, once everything has arrived and is whole."""
    seed = clone(hub, tmp_path / "seed")
    commit(seed, "seed.md", b"seed")
    ok("push", "-q", "origin", "main", cwd=seed)

    def push_some(number: int) -> None:
        place = clone(hub, tmp_path / f"p{number}")
        for step in range(steps):
            commit(place, f"{number}-{step}.md", b"x")
            for _ in range(30):
                if git("push", "-q", "origin", "main", cwd=place).returncode == 0:
                    break
                ok("pull", "-q", "--rebase", "origin", "main", cwd=place)
            else:
                pytest.fail("never pushed")

    with ThreadPoolExecutor(pushers) as pool:
        list(pool.map(push_some, range(pushers)))
    final = clone(hub, tmp_path / "final")
    assert len(list(final.glob("*.md"))) == 1 + pushers * steps
    ok("fsck", "--full", "--strict", cwd=hub.host._repositories.path(AGENT))
    return hub.host._repositories.path(AGENT)
