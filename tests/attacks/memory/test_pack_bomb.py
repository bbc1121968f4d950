"""A pack bomb, pushed by a hostile machine or served by a hostile hub: 16 KB that would fill the memory (R11)."""

import http.client
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lodger_daemon.memory import git as daemon_git
from lodger_daemon.memory.core.commits import Identity
from lodger_daemon.memory.git import Git, RunningGits
from lodger_hub.git_host import backend
from support.git_host_server import TOKEN, RunningHost, basic, running_git_host
from support.pack_bomb import delta_bomb

MIB = 1024 * 1024
LIMIT = 400 * MIB
BOMB = delta_bomb(600 * MIB)
"""Above the limit set here and cheap enough for the control, which has to swallow it."""
NO_LIMIT = 1 << 50


def push(running: RunningHost, pack: bytes) -> bytes:
    """What git says to a push of this pack."""
    parts = urlsplit(running.url("agent-bomb"))
    line = f"{'0' * 40} {'1' * 40} refs/heads/main\0 report-status".encode()
    body = f"{len(line) + 4:04x}".encode() + line + b"0000" + pack
    headers = {"Authorization": basic(TOKEN), "Content-Type": "application/x-git-receive-pack-request"}
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request("POST", f"{parts.path}/git-receive-pack", body, headers)
        return connection.getresponse().read()
    finally:
        connection.close()


def take_in(folder: Path) -> int | None:
    """The exit code of the daemon's git for the same, as a fetch would do it."""
    git = Git(folder / "published.git", Identity("a", "a@lodger.invalid"), RunningGits())
    git.run("init", "-q", "--bare")
    return git.attempt("index-pack", "--stdin", "--fsck-objects", stdin=BOMB, max_file_bytes=1024 * MIB).exit_code


def test_the_hub_does_not_swallow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "MEMORY_LIMIT_BYTES", LIMIT)
    with running_git_host(tmp_path) as running:
        answer = push(running, BOMB)
        assert b"unpack ok" not in answer
        assert b"unpack" in answer
        # What is no bomb still passes under the same limit.
        assert b"unpack ok" in push(running, delta_bomb(32 * MIB))


def test_control_without_the_limit_the_hub_swallows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "MEMORY_LIMIT_BYTES", NO_LIMIT)
    with running_git_host(tmp_path) as running:
        assert b"unpack ok" in push(running, BOMB)


def test_the_daemon_does_not_swallow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_git, "MEMORY_LIMIT_BYTES", LIMIT)
    assert take_in(tmp_path) != 0


def test_control_without_the_limit_the_daemon_swallows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_git, "MEMORY_LIMIT_BYTES", NO_LIMIT)
    assert take_in(tmp_path) == 0


def test_the_limits_that_hold_in_earnest() -> None:
    assert backend.MEMORY_LIMIT_BYTES <= 1024 * MIB
    assert daemon_git.MEMORY_LIMIT_BYTES <= 1024 * MIB
