"""Looking into a box's network and entering it needs no more rights than starting the box did."""

import json
import os
from pathlib import Path

import pytest

from support.sandbox_users import as_ordinary_user, visible_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")


def test_a_port_is_seen_and_reached_where_the_daemon_is_an_ordinary_user() -> None:
    with visible_folder() as folder:
        folder.chmod(0o777)
        done = as_ordinary_user(Path(__file__).with_name("ports_as_ordinary_user.py"), str(folder))
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
    assert told["uid"] != 0
    assert told["seen"] == [3128, 18673], "the proxy's, made for the socket to enter by, and the server's"
    assert told["answer"].endswith("\r\n\r\nhello")
