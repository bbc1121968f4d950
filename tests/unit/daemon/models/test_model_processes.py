"""The processes of this room: none outlives the daemon, and none trusts a stranger's port."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lodger_daemon.models.discovery import find_servers

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
import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"data": [{"id": "m"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
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
        daemon.wait(5)
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}/exe").exists() for pid in pids):
        assert time.monotonic() < deadline, "a worker outlived its daemon"
        time.sleep(0.01)


def parent_of(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="needs another user, whom only root can be")
@pytest.mark.parametrize(("uid", "found"), [(54321, False), (0, True)])
def test_a_port_of_another_person_is_not_used(uid: int, found: bool) -> None:
    interpreter = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    stranger = subprocess.Popen([interpreter, "-c", STRANGER], stdout=subprocess.PIPE, user=uid, cwd="/")
    assert stranger.stdout is not None
    try:
        servers = {"ollama": f"http://127.0.0.1:{int(stranger.stdout.readline())}/v1"}
        assert bool(asyncio.run(find_servers(servers, os.geteuid()))) is found
    finally:
        stranger.kill()
        stranger.wait()
        stranger.stdout.close()
