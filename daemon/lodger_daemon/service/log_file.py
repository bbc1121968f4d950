"""A log file with rotation, for machines without a journal."""

import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final, cast

SIZE_BYTES: Final = 5 * 1024 * 1024
KEPT: Final = 3
"""With the current one at most 20 MiB: weeks of an ordinary daemon, and nothing on any disk."""


class _PrivateFile(RotatingFileHandler):
    """Every file it begins is its owner's alone."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        return cast("TextIOWrapper", os.fdopen(descriptor, self.mode, encoding=self.encoding))


def log_to(path: Path, level: int = logging.INFO) -> None:
    """Send every log line of this process to the file instead of standard error. Call it once, before anything logs.

    Blocking. Raises: OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handler = _PrivateFile(path, maxBytes=SIZE_BYTES, backupCount=KEPT, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
