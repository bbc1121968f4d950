"""Replacing a file of ours whole."""

import os
import tempfile
from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Replace a file of ours whole, readable by its owner only; after a crash the old or the new text stands."""
    # mkstemp makes files that only their owner can read.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
