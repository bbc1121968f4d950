"""This machine's device id: made once, kept for ever."""

import os
import re
import uuid
from pathlib import Path
from typing import Final

ID_FORM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def load_device_id(file: Path) -> str:
    """Read the id, or make one. Blocking. A crash in the middle leaves either no file or a whole one; of two processes
    that start at once, both use the id that reached the file first."""
    try:
        kept = file.read_bytes()[:256].decode("ascii", "replace").strip()
    except FileNotFoundError:
        kept = ""
    if ID_FORM.fullmatch(kept):
        return kept
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        made = str(uuid.uuid4())
        with os.fdopen(descriptor, "w") as stream:
            stream.write(made + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        if kept:
            draft.replace(file)
        else:
            try:
                os.link(draft, file)
            except FileExistsError:
                if file.stat().st_size > 0:
                    return load_device_id(file)
                draft.replace(file)
        return made
    finally:
        draft.unlink(missing_ok=True)
