"""A small file system of its own, to be filled. Needs the right to mount."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BALLAST: Final = "ballast"
_PIECE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class SmallDisk:
    folder: Path

    def fill(self, free_bytes: int = 0) -> None:
        """Leave so much, in whole pieces."""
        with (self.folder / _BALLAST).open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(_PIECE_BYTES))
            except OSError:
                ballast.truncate(max(0, ballast.tell() - free_bytes))

    def free(self) -> None:
        (self.folder / _BALLAST).unlink()


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        # Lazily: a git that is just ending may still stand in it.
        subprocess.run(["umount", "-l", str(folder)], check=True)
