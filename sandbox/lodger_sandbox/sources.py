"""Opening what a box will see, so that no planted link can put something else in its place."""

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from lodger_sandbox.core.policy import PathKind, PolicyRefused, ToCreate

_WALK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def kind_of(path: str) -> PathKind:
    """What stands at `path` itself, without following a link there."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return PathKind.MISSING
    except OSError:
        return PathKind.OTHER
    return _kind_of_mode(mode)


def _kind_of_mode(mode: int) -> PathKind:
    if stat.S_ISDIR(mode):
        return PathKind.FOLDER
    if stat.S_ISREG(mode):
        return PathKind.FILE
    if stat.S_ISLNK(mode):
        return PathKind.LINK
    return PathKind.OTHER


def open_without_links(path: str) -> int:
    """An O_PATH descriptor of a folder or file, every component of whose path is no link.

    Component by component rather than by openat2, which older kernels lack; folders already opened cannot be swapped.

    Raises: PolicyRefused.
    """
    current = os.open("/", _WALK | os.O_DIRECTORY)
    try:
        walked = ""
        for part in path.strip("/").split("/"):
            walked += f"/{part}"
            following = _open_part(part, current, walked, path)
            os.close(current)
            current = following
    except BaseException:
        os.close(current)
        raise
    return current


def _open_part(part: str, folder_fd: int, walked: str, path: str) -> int:
    try:
        descriptor = os.open(part, _WALK, dir_fd=folder_fd)
    except FileNotFoundError as error:
        raise PolicyRefused(f"{walked} does not exist.") from error
    except OSError as error:
        reason = os.strerror(error.errno or errno.EIO)
        raise PolicyRefused(f"{walked} cannot be opened: {reason}.") from error
    kind = _kind_of_mode(os.fstat(descriptor).st_mode)
    if kind in (PathKind.FOLDER, PathKind.FILE) and (kind is PathKind.FOLDER or walked == path):
        return descriptor
    os.close(descriptor)
    if kind is PathKind.LINK:
        raise PolicyRefused(f"{walked} is a link, which a box does not follow; use {os.path.realpath(path)} instead.")
    raise PolicyRefused(f"{walked} is no folder or file.")


def create_missing(entries: Iterable[ToCreate]) -> None:
    """Make what has to exist before it can be protected, owned like the folder it stands in.

    Raises: PolicyRefused.
    """
    for entry in entries:
        folder, _, name = entry.path.rpartition("/")
        with ExitStack() as open_files:
            folder_fd = open_without_links(folder)
            open_files.callback(os.close, folder_fd)
            owner = os.fstat(folder_fd)
            try:
                made_fd = _create_one(entry, name, folder_fd)
            except FileExistsError:
                continue
            except OSError as error:
                reason = os.strerror(error.errno or errno.EIO)
                raise PolicyRefused(f"{entry.path} cannot be made, so it cannot be protected: {reason}.") from error
            open_files.callback(os.close, made_fd)
            if os.geteuid() == 0:
                os.fchown(made_fd, owner.st_uid, owner.st_gid)


def _create_one(entry: ToCreate, name: str, folder_fd: int) -> int:
    if entry.is_folder:
        os.mkdir(name, 0o755, dir_fd=folder_fd)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder_fd)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    made_fd = os.open(name, flags, 0o644, dir_fd=folder_fd)
    os.write(made_fd, entry.content)
    return made_fd
