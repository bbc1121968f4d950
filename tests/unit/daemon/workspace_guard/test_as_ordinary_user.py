"""The guard and the watch over mounts where the daemon is no root: its boxes run as its own user."""

import json
import os
from pathlib import Path

import pytest

from support.sandbox_users import as_ordinary_user, visible_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


def test_both_hold_for_an_ordinary_user() -> None:
    with visible_folder() as folder:
        folder.chmod(0o777)
        done = as_ordinary_user(Path(__file__).with_name("as_ordinary_user.py"), str(folder))
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
    assert told["everyday"] == "0 "
    assert "was put back" in told["refused"]
    assert told["pager"] == ""
    assert told["lost"].startswith("1 ") and "replaced" in told["lost"]
