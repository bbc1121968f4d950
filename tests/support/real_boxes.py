"""What a test with real boxes needs: a user for them, workspaces that user owns, and a request."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lodger_sandbox.contract import BoxRequest, BoxUser, Mount
from lodger_tools.box.contract import BoxKey

USER_NAME = "lodger"


def box_user_for_tests() -> BoxUser:
    """As root the dedicated user, made if it is missing; else oneself."""
    if os.getuid() != 0:
        return BoxUser(os.getuid(), os.getgid(), pwd.getpwuid(os.getuid()).pw_name)
    try:
        entry = pwd.getpwnam(USER_NAME)
    except KeyError:
        subprocess.run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", USER_NAME])
        entry = pwd.getpwnam(USER_NAME)
    return BoxUser(entry.pw_uid, entry.pw_gid, entry.pw_name)


@contextmanager
def workspace_for_tests() -> Iterator[Path]:
    """A folder of the box's user outside of what a box hides."""
    folder = Path(tempfile.mkdtemp(prefix="lodger-test-", dir="/srv" if os.access("/srv", os.W_OK) else Path.home()))
    user = box_user_for_tests()
    os.chown(folder, user.uid, user.gid)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def someone() -> BoxUser:
    """Oneself, also where no list of users has one."""
    return BoxUser(os.getuid(), os.getgid(), "someone")


class RealRequests:
    """`request_for` of a test's BoxManager."""

    def __init__(self, state: Path, home: Path, mounts: tuple[Mount, ...] = (), *, user: BoxUser | None = None) -> None:
        self.state = state
        self.home = home
        self.mounts = mounts
        self.user = user
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}

    def __call__(self, key: BoxKey) -> BoxRequest:
        return BoxRequest(
            workspace=key.workspace,
            profile=key.profile.value,
            user=self.user or box_user_for_tests(),
            home=str(self.home),
            mounts=self.mounts,
            masks=(str(self.state),),
            environment=self.environment,
        )
