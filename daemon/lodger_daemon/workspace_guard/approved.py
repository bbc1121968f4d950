"""What was last approved of a repository's configuration, kept where no box can see it. Blocking."""

import base64
import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lodger_daemon.durable_files import write_durably


@dataclass(frozen=True, slots=True)
class Approved:
    content: bytes | None
    """None: there was no configuration."""
    once_tracked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class ApprovedFiles:
    """One file for each workspace, replaced as a whole.

    While a workspace is marked open, a program of an agent may have changed its configuration since: a daemon that
    finds the mark after a crash judges what it finds. After a power cut the mark may be missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, workspace: str) -> Approved | None:
        try:
            record = json.loads(self._file(workspace).read_bytes())
            content = record["content"]
            return Approved(
                None if content is None else base64.b64decode(content),
                {key: tuple(values) for key, values in record["once_tracked"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def save(self, workspace: str, approved: Approved) -> None:
        """Raises: OSError."""
        content = None if approved.content is None else base64.b64encode(approved.content).decode("ascii")
        record = {
            "workspace": workspace,
            "content": content,
            "once_tracked": {key: list(values) for key, values in approved.once_tracked.items()},
        }
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._file(workspace), json.dumps(record))

    def is_open(self, workspace: str) -> bool:
        return self._mark(workspace).exists()

    def mark_open(self, workspace: str) -> None:
        """Raises: OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._mark(workspace).touch(mode=0o600)

    def mark_closed(self, workspace: str) -> None:
        with contextlib.suppress(OSError):
            self._mark(workspace).unlink(missing_ok=True)

    def _file(self, workspace: str) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(workspace)).hexdigest()}.json"

    def _mark(self, workspace: str) -> Path:
        return self._file(workspace).with_suffix(".open")
