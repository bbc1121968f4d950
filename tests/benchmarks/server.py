"""One fresh server: a HOME and a workspace of its own, started, timed to its port, stopped, swept up."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.process_tree import ServerTree
from benchmarks.programs import Program
from benchmarks.wire_client import BenchmarkError

START_LIMIT_S: Final = 60.0
STOP_LIMIT_S: Final = 30.0
PROBE_EVERY_S: Final = 0.002
LOG_TAIL_CHARACTERS: Final = 1500


class Server:
    """A started program whose port accepts. `started` is the monotonic time just before its process began."""

    def __init__(self, program: Program, endpoint: str, tree: ServerTree) -> None:
        self._tree = tree
        # Others may enter: boxes run as another user when this runs as root.
        self.home = Path(tempfile.mkdtemp(prefix=f"bench-{program.name}-"))
        self.home.chmod(0o755)
        self.folder = self.home / "workspace"
        self.folder.mkdir()
        program.prepare(self.home, self.folder, endpoint)
        port = _free_port()
        self.url = f"ws://127.0.0.1:{port}/ws"
        self._log = self.home / "server.log"
        with self._log.open("wb") as log:
            environment = program.environment(self.home, endpoint)
            argv = program.serve(port)
            self.started = time.monotonic()
            self._process = subprocess.Popen(
                argv, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self._wait_for(port)
        except BenchmarkError:
            self.discard()
            raise
        self.listening_ms = (time.monotonic() - self.started) * 1e3

    def _wait_for(self, port: int) -> None:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if self._process.poll() is not None:
                    raise BenchmarkError(
                        f"the server ended with code {self._process.returncode}:\n{self.log_tail()}"
                    ) from None
                if time.monotonic() - self.started > START_LIMIT_S:
                    raise BenchmarkError(f"no port within {START_LIMIT_S:.0f} s:\n{self.log_tail()}") from None
                time.sleep(PROBE_EVERY_S)

    def log_tail(self) -> str:
        """The end of what the server wrote on its outputs."""
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]

    def stop(self) -> float:
        """Ask it to end and wait. Returns the milliseconds from SIGTERM to exit. Raises: BenchmarkError."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"the server did not end within {STOP_LIMIT_S:.0f} s of SIGTERM") from None
        return (time.monotonic() - began) * 1e3

    def discard(self) -> None:
        """End what is left of it, by id, and remove its folders."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._tree.end()
        if not os.environ.get("BENCH_KEEP"):
            shutil.rmtree(self.home, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
