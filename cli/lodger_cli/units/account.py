"""The system user that a system service runs as."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_LIMIT_S: Final = 30.0
_HIDDEN_FROM_UNITS: Final = ("/tmp/", "/var/tmp/")  # noqa: S108 - named, not used
"""Units have these folders to themselves (`PrivateTmp`): a program of the host's there does not exist for them."""


class AccountMissing(Exception):
    """The service could not run as that user; the text says what to do."""


def ensure_account(name: str) -> pwd.struct_passwd:
    """The user, made when it is not there. Needs root. Raises: AccountMissing."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        pass
    make = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
    if shutil.which(make[0]) is None:
        raise AccountMissing(f"there is no user {name}, and useradd is not on this machine: make that user yourself")
    try:
        done = subprocess.run(make, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AccountMissing(f"the user {name} could not be made: {error}") from error
    if done.returncode != 0:
        raise AccountMissing(f"the user {name} could not be made: {done.stderr.strip()}")
    return pwd.getpwnam(name)


def give_settings(folder: Path, account: pwd.struct_passwd) -> None:
    """Let the service's user have its settings. Needs root. Raises: AccountMissing.

    systemd leaves a folder that was there before as it is, such as one in which somebody wrote settings first; the
    daemon could then neither read them nor keep a key beside them.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in (folder, folder / "settings.toml"):
            if path.exists() and not path.is_symlink() and path.lstat().st_uid != account.pw_uid:
                os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    except OSError as error:
        raise AccountMissing(f"{folder} cannot be given to the user {account.pw_name}: {error}") from error


def command_reachable(command: Sequence[str], account: pwd.struct_passwd) -> None:
    """Prove by running it that the service's user can start the command. Raises: AccountMissing."""
    for word in (command[0], os.path.realpath(command[0])):
        if word.startswith(_HIDDEN_FROM_UNITS):
            raise AccountMissing(f"{word} lies in a folder that services do not see: install Lodger in /opt/lodger")
    if os.geteuid() != 0:
        return
    try:
        done = subprocess.run(
            [*command, "--version"], user=account.pw_uid, group=account.pw_gid, extra_groups=[], cwd="/",
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_LIMIT_S, check=False,
        )  # fmt: skip
        trouble = done.stderr.strip().splitlines()[-1:] if done.returncode != 0 else []
        failed = done.returncode != 0
    except (OSError, subprocess.TimeoutExpired) as error:
        failed, trouble = True, [str(error)]
    if failed:
        raise AccountMissing(
            f"the user {account.pw_name} cannot run {command[0]} ({' '.join(trouble)}): install Lodger where "
            "everybody may read it, such as /opt/lodger, or name another user with --run-as"
        )
