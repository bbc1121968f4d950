"""Why a file tool did nothing, in words for the model."""

from __future__ import annotations

import errno
import os


class FileRefused(Exception):
    """Nothing was changed; the text says why and what to do."""


WORDS = {
    errno.ENOENT: "There is no such file or folder: {}",
    errno.EACCES: "This box may not use it: {}",
    errno.EPERM: "This box may not use it: {}",
    errno.EROFS: "It is read-only in this box: {}",
    errno.ENOSPC: "The disk is full; nothing was written: {}",
    errno.EDQUOT: "The disk quota is used up; nothing was written: {}",
    errno.ENOTDIR: "A part of the path is not a folder: {}",
    errno.EISDIR: "It is a folder, not a file: {}",
    errno.ELOOP: "Its links lead in a circle: {}",
    errno.ENAMETOOLONG: "The name is too long: {}",
    errno.E2BIG: "The command is longer than the system takes (128 KiB); write it to a file and run that.",
    errno.ENOMEM: "The machine is out of memory; try again when some is free.",
    errno.EMFILE: "Too many files are open in the runner; wait for running calls to end.",
}


def words_for(error: OSError, path: object) -> str:
    named = error.filename if error.filename is not None else path
    words = WORDS.get(error.errno or 0)
    return words.format(named) if words else f"{os.strerror(error.errno or 0)}: {named}"
