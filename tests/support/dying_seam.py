"""The seam of a process that is to be killed at one of its points."""

import os
import signal
from pathlib import Path


class DyingSeam:
    """Writes the names it is given into a file, from when it counts on, and kills the process at one of them."""

    def __init__(self, record: Path, die_at: int | str, *, counts: bool = True, counts_from: str = "") -> None:
        """
        Args:
            die_at: how many to pass, or the name of one; 0 or an empty name: never.
            counts: whether it does from the beginning; a victim may set it later.
            counts_from: it begins with this name.
        """
        self.counts = counts
        self._counts_from = counts_from
        self._record = record
        self._die_at = die_at
        self._passed = 0

    def __call__(self, name: str) -> None:
        self.counts = self.counts or name == self._counts_from
        if not self.counts:
            return
        self._passed += 1
        with self._record.open("a") as names:
            names.write(name + "\n")
        if self._die_at in (self._passed, name):
            os.kill(os.getpid(), signal.SIGKILL)
