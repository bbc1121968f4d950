"""Files and folders of ours that stand after a crash."""

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
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """What was made, renamed or removed in it is so after a crash, too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
