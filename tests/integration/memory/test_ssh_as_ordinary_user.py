"""Memory over SSH where the daemon is no root: the same tests, as somebody else."""

import os
import re

import pytest

from support.ordinary_pytest import run_pytest

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="starts the same tests as somebody else"),
    pytest.mark.timeout(300),
]


def test_memory_over_ssh_as_an_ordinary_user() -> None:
    done = run_pytest("tests/unit/daemon/memory/test_ssh_remotes.py")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"\n\d+ passed in", done.stdout) is not None, f"some were left out: {done.stdout}"
