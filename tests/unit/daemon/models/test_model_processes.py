"""The processes of this room: none outlives the daemon, and none trusts a stranger's port."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lodger_daemon.models.contract import FailureKind
from lodger_daemon.models.gateway import Models
from lodger_daemon.paths import Paths
from lodger_daemon.system_clock import SystemClock
from support.endpoint_process import model_endpoint
from support.model_contract import collect, failure, scripted, texts
from support.patience import LIMIT_S

DAEMON = """
import asyncio, sys
from pathlib import Path
from lodger_daemon.models.gateway import Models
from lodger_daemon.paths import Paths
from lodger_daemon.system_clock import SystemClock

async def main():
    base = Path(sys.argv[1])
    models = Models(Paths(base, base, base, base), SystemClock(), {}, {}, local_servers={})
    await models.start()
    await models._warming
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""

STRANGER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, flush=True)
        body = b'{"data": [{"id": "m"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
    do_POST = do_GET
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer)
print(server.server_port, flush=True)
server.serve_forever()
"""


def test_workers_end_when_the_daemon_is_killed(tmp_path: Path) -> None:
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON, str(tmp_path)], stdout=subprocess.PIPE)
    assert daemon.stdout is not None
    with daemon.stdout as lines:
        assert lines.readline() == b"ready\n"
        pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and parent_of(p) == daemon.pid]
        assert len(pids) == 2
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.wait(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    while any(Path(f"/proc/{pid}/exe").exists() for pid in pids):
        assert time.monotonic() < deadline, "a worker outlived its daemon"
        time.sleep(0.01)


def parent_of(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def local(tmp_path: Path, url: str) -> Models:
    paths = Paths(tmp_path / "config", tmp_path / "state", tmp_path / "work", tmp_path)
    return Models(paths, SystemClock(), {}, {}, local_servers={"ollama": url})


@contextmanager
def stranger(uid: int, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server of another user; its address, and the process that prints every path it is asked for."""
    interpreter = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    argv = [interpreter, "-c", STRANGER, str(port)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, user=uid, cwd="/")
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1", process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


as_root = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="needs another user, whom only root can be"
)


@as_root
@pytest.mark.parametrize(("uid", "default"), [(54321, "practice/practice"), (0, "ollama/m")])
async def test_a_port_of_another_person_is_not_used(tmp_path: Path, uid: int, default: str) -> None:
    with stranger(uid) as (url, _):
        models = local(tmp_path, url)
        assert await models.default_handle() == default
        await models.aclose()


@as_root
async def test_a_port_that_passed_to_another_person_gets_no_conversation(tmp_path: Path) -> None:
    with model_endpoint() as endpoint:
        models = local(tmp_path, f"{endpoint.url}/v1")
        assert await models.default_handle() == "ollama/scripted"
        assert texts(await collect(models, scripted("ollama/scripted", {"text": "hi"}))) == "hi"
    try:
        with stranger(54321, int(endpoint.url.rpartition(":")[2])) as (_, process):
            found = await failure(models, scripted("ollama/scripted", {"text": "hi"}))
            assert found.kind is FailureKind.NETWORK
            assert "another user of this machine" in found.message
            process.kill()
            assert process.stdout is not None
            assert process.stdout.read() == b"", "it was asked for nothing"
    finally:
        await models.aclose()
