"""Programs of the machine that tests use: where one is missing the test fails and says what brings it.

A test that skipped would prove nothing and look well. It skips only where there is no such program: most are Linux's.
`@pytest.mark.needs("bwrap")` looks before anything of the test is made.
"""

import os
import shutil
import sys
import unittest
from typing import Final

FOR_ROOT: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where servers lie, and what manages a machine; not on everybody's PATH."""
LINUX_ALONE: Final = frozenset(
    {
        "bwrap",
        "dbus-daemon",
        "gnome-keyring-daemon",
        "ip",
        "linux.uml",
        "systemctl",
        "systemd-analyze",
        "unshare",
        "useradd",
    }
)


def needed(program: str) -> str:
    """Its path."""
    if program in LINUX_ALONE and not sys.platform.startswith("linux"):
        raise unittest.SkipTest(f"{program} is Linux's")
    found = shutil.which(program, path=f"{os.environ['PATH']}:{FOR_ROOT}")
    assert found is not None, f"{program} is missing: install it (on Linux: bash scripts/system-packages.sh test)"
    return found
