"""ssh, and programs that know of no proxy, find their way out of boxes, also where the daemon is no root."""

import os
import re

import pytest

from support.ordinary_pytest import run_pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes a network, and becomes another user")
WITHOUT_PROXY = "tests/integration/programs_without_proxy.py"


@pytest.mark.parametrize("as_root", [True, False])
def test_programs_that_know_of_no_proxy(as_root: bool) -> None:
    run_all(WITHOUT_PROXY, as_root=as_root)


def test_ssh_as_an_ordinary_user() -> None:
    run_all("tests/integration/test_ssh_from_boxes.py", as_root=False)


def run_all(file: str, as_root: bool) -> None:
    done = run_pytest(file, as_root=as_root, own_network=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"\n\d+ passed in", done.stdout) is not None, f"some were left out: {done.stdout}"
