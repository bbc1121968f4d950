"""A whole hub in a process of its own, which dies by `kill -9` at a seam of its git host and starts on the same data.

As a program: arguments are its state folder, its port, and `tidies` if upkeep follows each push. Each line of its
input names the seam to die at, or says how many to pass before (0: none), and is answered by a line; the end of its
input ends it. It writes `DIED` and the name as its last word.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from support.patience import LIMIT_S

SEAMS: Final = tuple(
    f"{side} {step}"
    for step in (
        "naming a repository",
        "starting git for a reader",
        "answering a reader",
        "starting git for a push",
        "answering a push",
        "telling of a head",
        "repack",
        "prune",
        "pack-refs",
    )
    for side in ("before", "after")
)
"""What a push passes, and the upkeep after it; the first only where the hub has no such memory yet."""
DIED: Final = "died "
DEAD_LOCK_S: Final = 1.0


class HubProcess:
    """The handle. Blocking."""

    def __init__(self, state: Path, *, tidies: bool) -> None:
        self.state = state
        self.tidies = tidies
        self.url = ""
        self._port = 0
        self._said = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def token(self, role: str) -> str:
        return (self.state / f"{role}.token").read_text().strip()

    def start(self) -> None:
        """On the data there is, and on the port it had."""
        self._forget()
        tests = Path(__file__).resolve().parent.parent
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.memory_hub", str(self.state), str(self._port)] + ["tidies"] * self.tidies,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=tests,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(tests)},
        )
        assert self._process.stdout is not None
        self.url = json.loads(self._process.stdout.readline())["url"]
        self._port = int(self.url.rpartition(":")[2])

    def arm(self, die_at: int | str) -> None:
        """A seam's name, or how many to pass; 0 disarms."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{die_at}\n".encode())
            self._process.stdin.flush()
            self._said = self._process.stdout.readline().decode()

    def kill(self) -> None:
        """At whatever it does now. From any thread."""
        if self._process is not None:
            self._process.kill()

    def died_at(self) -> str:
        """The seam of a process that has ended; empty when it was killed from outside."""
        assert self._process is not None and self._process.stdout is not None
        self._process.wait(LIMIT_S)
        said = self._said + self._process.stdout.read().decode()
        return said.partition(DIED)[2].strip()

    def stop(self) -> None:
        """As a service manager does."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(LIMIT_S)
        self._forget()

    def _forget(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process = None


class _Dying:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name = ""
        self._left = 0

    def listen(self) -> None:
        for line in sys.stdin:
            said = line.strip()
            with self._lock:
                self._name, self._left = ("", int(said)) if said.isdecimal() else (said, 0)
                os.write(1, b"armed\n")
        os._exit(0)

    def __call__(self, name: str) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0 or name == self._name:
                os.write(1, f"{DIED}{name}\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)


def main(state: Path, port: int, tidies: bool) -> None:
    from lodger_hub.git_host import seams, upkeep

    dying = _Dying()
    seams.no_seam = dying
    upkeep.DEAD_LOCK_S = DEAD_LOCK_S  # type: ignore[misc]
    if tidies:
        upkeep.LOOSE_OBJECTS = -1  # type: ignore[misc]
    from lodger_hub.options import HubOptions
    from lodger_hub.server import serve

    threading.Thread(target=dying.listen, daemon=True).start()
    asyncio.run(serve(HubOptions(state, port=port)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), "tidies" in sys.argv[3:])
