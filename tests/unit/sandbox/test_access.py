"""What is said of a folder before there is a box: the kernel's answer, without a process where it is certain."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lodger_sandbox import access
from lodger_sandbox.access import workspace_access
from lodger_sandbox.contract import BoxUser, SandboxUnavailable
from lodger_sandbox.users import WorkspaceRefused
from support.patience import LIMIT_S
from support.sandbox_users import own, user_of_boxes, visible_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root asks as another user")

RDONLY_MOUNT = """
import subprocess, sys
from lodger_sandbox.access import workspace_access
from lodger_sandbox.users import WorkspaceRefused, box_user
folder = sys.argv[1]
subprocess.run(["mount", "--bind", folder, folder], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
workspace_access(box_user(), folder, writable=False)
try:
    workspace_access(box_user(), folder)
except WorkspaceRefused:
    print("refused")
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with visible_folder() as made:
        yield made


@pytest.fixture
def user(folder: Path) -> BoxUser:
    user = user_of_boxes()
    own(folder, user)
    return user


@pytest.fixture
def without_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks the kernel as another user fails."""
    monkeypatch.setattr(access, "LAUNCHER", "/nonexistent-launcher")


def _allowed(user: BoxUser, folder: Path, *, writable: bool) -> bool:
    try:
        workspace_access(user, str(folder), writable=writable)
    except WorkspaceRefused:
        return False
    return True


@pytest.mark.parametrize("owners", range(8))
def test_the_bits_of_an_owner_count_as_the_kernel_counts_them(user: BoxUser, folder: Path, owners: int) -> None:
    """Everybody else may everything there, which helps an owner nothing."""
    folder.chmod(owners << 6 | 0o077)
    for writable in (False, True):
        wanted = 0o7 if writable else 0o5
        assert _allowed(user, folder, writable=writable) == (owners & wanted == wanted)


def test_nobody_is_asked_about_a_folder_of_the_users_own(user: BoxUser, folder: Path, without_launcher: None) -> None:
    workspace_access(user, str(folder))


def test_the_kernel_is_asked_where_the_folder_is_anothers(user: BoxUser, folder: Path, without_launcher: None) -> None:
    os.chown(folder, 0, 0)
    folder.chmod(0o777)
    with pytest.raises(SandboxUnavailable, match="launcher failed"):
        workspace_access(user, str(folder))


def test_an_owner_cannot_write_what_is_mounted_to_be_read(user: BoxUser, folder: Path) -> None:
    argv = ("unshare", "--mount", sys.executable, "-c", RDONLY_MOUNT, str(folder))
    asked = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S)
    assert (asked.stdout, asked.stderr) == ("refused\n", "")
