"""This machine's device id: made once, kept for ever."""

import re
import uuid
from pathlib import Path
from typing import Final

from lodger_daemon.durable_files import make_durably, write_durably

ID_FORM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def load_device_id(file: Path) -> str:
    """Read the id, or make one. Blocking. A crash in the middle leaves either no file or a whole one; of two processes
    that start at once, both use the id that reached the file first."""
    kept = _read(file)
    if kept is not None:
        return kept
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = str(uuid.uuid4())
    try:
        make_durably(file, f"{made}\n")
    except FileExistsError:
        # Another process was faster, or what stands there is no id.
        kept = _read(file)
        if kept is not None:
            return kept
        write_durably(file, f"{made}\n")
    return made


def _read(file: Path) -> str | None:
    try:
        kept = file.read_bytes()[:256].decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    return kept if ID_FORM.fullmatch(kept) else None
