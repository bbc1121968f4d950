"""Files and folders of ours that stand after a crash."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Replace a file of ours whole, readable by its owner only; after a crash the old or the new text stands."""
    with _draft(path, text) as draft:
        _sync(draft, os.O_RDONLY)
        draft.replace(path)
        sync_folder(path.parent)


def make_durably(path: Path, text: str) -> None:
    """The same where no file stands yet: of several at once, one makes it. Raises: FileExistsError for the others."""
    with _draft(path, text) as draft:
        name_durably(draft, path)


def name_durably(draft: Path, path: Path) -> None:
    """Give a file that was written under another name in this folder its own, whole. The draft stays. Raises:
    FileExistsError where something stands already."""
    _sync(draft, os.O_RDONLY)
    os.link(draft, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """What was made, renamed or removed in it is so after a crash, too."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


@contextlib.contextmanager
def _draft(path: Path, text: str) -> Iterator[Path]:
    # mkstemp makes files that only their owner can read.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
