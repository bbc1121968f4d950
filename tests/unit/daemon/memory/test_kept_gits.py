"""A kept git that answers late: its answer is never taken for that to the next question."""

import subprocess
from pathlib import Path

import pytest

from lodger_daemon.memory.core.commits import Identity
from lodger_daemon.memory.errors import GitFailed
from lodger_daemon.memory.git import Git, RunningGits
from lodger_daemon.memory.kept_gits import ObjectReader

FIRST, SECOND = "a" * 40, "b" * 40

ANSWERING = (
    'while read -r _ oid; do until [ -e "$1" ]; do sleep 0.01; done; printf "%s blob 40\\n%s\\n" $oid $oid; done'
)
"""Answers each question with the id it asks for, once a file is there."""


class LateGit(Git):
    """Its first two processes answer when `marker` is there, as on a machine that is too busy; later ones at once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Identity("Lodger", "lodger@localhost"), RunningGits())
        self.marker = folder / "answers"
        self.started = 0

    def start(self, *argv: str) -> "subprocess.Popen[bytes]":
        self.started += 1
        return subprocess.Popen(
            ("/bin/sh", "-c", ANSWERING, "sh", str(self.marker if self.started <= 2 else "/")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )


def test_an_answer_that_comes_too_late_is_not_that_to_the_next_question(tmp_path: Path) -> None:
    git = LateGit(tmp_path)
    reader = ObjectReader(git, limit_s=0.5)
    try:
        with pytest.raises(GitFailed, match="no answer"):
            reader.read(FIRST)
        git.marker.touch()
        assert reader.read(SECOND) == ("blob", SECOND.encode())
    finally:
        reader.close()
