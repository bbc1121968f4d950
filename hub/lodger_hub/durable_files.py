"""Files and folders of the hub's own that stand after a crash."""

import os
from pathlib import Path


def write_durably(file: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file whole, by default readable by its owner only; after a crash the old or the new content stands.
    Makes the folder if there is none. Blocking. Raises: OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    # Never a file that stands there already: it could be a link, or open to others.
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """What was made, renamed or removed in it is so after a crash, too. Blocking. Raises: OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
