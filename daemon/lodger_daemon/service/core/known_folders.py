"""Which folders of a machine clients may look into: those that agents work in, and what lies in them."""

import posixpath
from collections.abc import Iterable

from lodger_daemon.turns.contract import Folders


class NotOpen(Exception):
    """A path that is not to be looked at; the text is for the person."""


def known_folders(folders: Folders) -> tuple[str, ...]:
    return tuple(dict.fromkeys((folders.workspace, folders.boot, *folders.own.values())))


def root_of(path: str, known: Iterable[str]) -> tuple[str, str]:
    """The known folder that `path` lies in, the innermost if there are several, and the path in its plain form.

    Links are not looked at here: they are followed inside the box of that folder, which shows no more than agents see.
    Raises: NotOpen.
    """
    if not path.startswith("/") or any(char == "\0" or "\ud800" <= char <= "\udfff" for char in path):
        raise NotOpen(f"{path[:200]!r} is no absolute path")
    plain = posixpath.normpath(path)
    # POSIX lets two leading slashes stand.
    plain = "/" + plain.lstrip("/")
    holding = [folder for folder in known if within(plain, folder)]
    if not holding:
        raise NotOpen(
            f"{plain} lies in no folder that an agent of this machine works in; "
            "choose it as the folder of a conversation first"
        )
    return max(holding, key=len), plain


def within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
