"""As whom boxes run, and whether that user can work in a folder."""

import os
import pwd
import shlex
import shutil
from typing import Final

from lodger_sandbox.contract import BoxUser, SandboxUnavailable

DEFAULT_USER: Final = "lodger"


def box_user(settings_name: str | None = None) -> BoxUser:
    """The daemon's own user or, when the daemon is root, the system user for boxes.

    Raises: SandboxUnavailable, with the command that makes the user.
    """
    uid = os.geteuid()
    if uid != 0:
        return _by_uid(uid)
    name = settings_name or DEFAULT_USER
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise SandboxUnavailable(
            f"The daemon runs as root, so boxes need a user of their own, and there is no user {name!r}. Make it: "
            f"useradd --system --user-group --no-create-home --shell /usr/sbin/nologin {name}"
        ) from error
    if entry.pw_uid == 0:
        raise SandboxUnavailable(f"Boxes cannot run as {name!r}, which is root. Name another user in the settings.")
    return BoxUser(entry.pw_uid, entry.pw_gid, entry.pw_name)


def _by_uid(uid: int) -> BoxUser:
    try:
        return BoxUser(uid, os.getegid(), pwd.getpwuid(uid).pw_name)
    except KeyError:
        return BoxUser(uid, os.getegid(), str(uid))


def grant_command(user: BoxUser, path: str) -> str:
    """What the person types to let this user work in `path`; keeps the owner."""
    # A folder's name may come from an agent, and the person runs this line as they read it.
    return f"setfacl -R -m u:{user.name}:rwX -m d:u:{user.name}:rwX {shlex.quote(path)}"


class WorkspaceRefused(SandboxUnavailable):
    """The box's user cannot work in the folder. Carries the command that would grant it."""

    def __init__(self, path: str, command: str, user: BoxUser) -> None:
        words = f"Boxes run as the user {user.name} here, who cannot work in {path}. Grant it: {command}"
        if shutil.which("setfacl") is None:
            words += " (setfacl comes with the package acl, which is not installed)"
        super().__init__(words)
        self.path = path
        self.command = command


def refuse_workspace(user: BoxUser, path: str) -> WorkspaceRefused:
    return WorkspaceRefused(path, grant_command(user, path), user)
