"""W10, the other way round: another user of this machine takes the hub's port while no hub runs, and gets nothing."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lodger_cli.places import known_hub
from lodger_daemon.clients import peers
from lodger_daemon.clients.peers import PortOwner, owner_of_port
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.commits import Identity
from lodger_daemon.memory.git import Git, RunningGits
from lodger_daemon.paths import find_paths
from lodger_daemon.service import link
from lodger_daemon.service.link import Hub
from support.sandbox_users import user_of_boxes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
TOKEN = "machine-token-5d1c"
AGENT = AgentId("agent-1")
IMPOSTOR = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    connection.settimeout(5)
    print(connection.recv(65536), flush=True)
    connection.close()
"""


@contextmanager
def impostor() -> Iterator[tuple[int, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        ["/usr/bin/env", "python3", "-I", "-c", IMPOSTOR]
        if Path("/usr/bin/python3").exists()
        else [sys.executable, "-I", "-c", IMPOSTOR],
        user=user_of_boxes().uid,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process
    finally:
        process.kill()
        process.wait()


def hub_at(port: int, folder: Path) -> Hub:
    (folder / "token").write_text(TOKEN)
    return Hub(f"http://127.0.0.1:{port}", folder / "token")


def heard(process: subprocess.Popen[str]) -> str:
    process.kill()
    assert process.stdout is not None
    return process.stdout.read()


def fetches(hub: Hub, folder: Path) -> None:
    remote = hub.memory_remote()
    git = Git(folder / "published.git", Identity("a", "a@lodger.invalid"), RunningGits())
    git.run("init", "-q", "--bare")
    git.attempt("fetch", "-q", remote.url(AGENT), "+refs/heads/main:refs/lodger/x", environment=remote.environment())
    remote.list_agents()


def test_w10_an_impostor_gets_no_token_and_no_word(tmp_path: Path) -> None:
    with impostor() as (port, process):
        hub = hub_at(port, tmp_path)
        with pytest.raises(LookupError, match="another user"):
            hub.token()
        fetches(hub, tmp_path)
        assert heard(process) == ""


def test_w10_control_without_the_look_it_hears_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "owner_of_port", lambda _: PortOwner.OURS)
    with impostor() as (port, process):
        hub = hub_at(port, tmp_path)
        assert hub.token() == TOKEN
        fetches(hub, tmp_path)
        said = heard(process)
        assert f"Bearer {TOKEN}" in said
        assert "Authorization: Basic" in said


def test_w10_the_command_line_does_not_know_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = find_paths({"HOME": str(tmp_path), "LODGER_HOME": str(tmp_path)})
    where.hub.mkdir(parents=True)
    (where.hub / "client.token").write_text("client-token")
    with impostor() as (port, _):
        (where.hub / "running.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}"}))
        assert known_hub(where) is None
        monkeypatch.setattr("lodger_cli.places.owner_of_port", lambda _: PortOwner.OURS)
        assert known_hub(where) is not None


def test_a_port_of_ours_is_known_as_such_and_an_empty_one_too(tmp_path: Path) -> None:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.create_server((address, 0), family=family) as listener:
            port = listener.getsockname()[1]
            assert owner_of_port(port) is PortOwner.OURS
            assert hub_at(port, tmp_path).token() == TOKEN
        assert owner_of_port(port) is PortOwner.NOBODY
        with pytest.raises(ConnectionRefusedError):
            hub_at(port, tmp_path).token()


def test_where_the_kernel_does_not_tell_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_TABLES", ())
    assert owner_of_port(1) is PortOwner.UNKNOWN
