"""Where Lodger runs as an ordinary user, boxes run as that user too, and bubblewrap binds by descriptor: what root's
boxes hold is tried again there. The mechanisms of the catalogues are in `test_attacks.py`."""

import os
import re

import pytest

from support.ordinary_pytest import run_pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starts the same tests as somebody else")
HERE = "tests/attacks"
GUARD = "tests/unit/daemon/workspace_guard/test_git_guard.py"


def passed(*arguments: str) -> int:
    done = run_pytest(*arguments)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None, done.stdout
    return int(found[1])


def test_incidents() -> None:
    """F3, F5, F6, F11 and N6, with their controls."""
    assert passed(f"{HERE}/sandbox/test_incidents.py") >= 16


def test_what_a_model_may_ask_for() -> None:
    """F4, A5, A6, A10."""
    tools = f"{HERE}/tools"
    assert passed(f"{tools}/test_f4_links_and_rules.py", f"{tools}/test_a5_a6_a10_real_box.py") >= 10


def test_the_guard_of_git(request: pytest.FixtureRequest) -> None:
    """One of each kind; all of them in the long form."""
    some = () if request.config.getoption("--soak") else ("-k", "everyday or unseen or git_outside or disarmed")
    assert passed(GUARD, *some) >= 8


def test_the_network(request: pytest.FixtureRequest) -> None:
    """N1, N3, N7; in the long form N4 and N8 too."""
    some = () if request.config.getoption("--soak") else ("-k", "n3_n7 or n1_an_empty")
    assert passed(f"{HERE}/network/test_box_network.py", *some) >= 2
