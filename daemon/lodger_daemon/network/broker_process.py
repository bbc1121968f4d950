"""The egress broker as a process: started when a box first wants out, found again by a later daemon. All of it blocks.

It has a private folder of its own, as boxes have: whoever can lock `lock` knows that it has ended.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_tools.box import record as records

_TOKEN_LIMIT_BYTES: Final = 4096
_START_LIMIT_S: Final = 10.0
_PROGRAM: Final = (sys.executable, "-P", "-m", "lodger_sandbox.egress")


@dataclass(frozen=True, slots=True)
class FoundBroker:
    folder: Path
    token: str


def find_broker(place: Path) -> FoundBroker | None:
    """The one that an earlier daemon left running. Folders of ended ones are removed."""
    found = None
    for folder in sorted(place.iterdir()) if place.is_dir() else ():
        if not records.is_alive(folder):
            records.remove_folder(folder)
            continue
        try:
            with (folder / "token").open() as file:
                found = FoundBroker(folder, file.read(_TOKEN_LIMIT_BYTES))
        except OSError:
            continue
    return found


def start_broker(place: Path, user: tuple[int, int] | None) -> FoundBroker:
    """It outlives this process.

    Args:
        user: uid and gid to become once it has started, when this process is root.

    Raises: OSError, subprocess.SubprocessError.
    """
    folder = records.make_folder(place)
    token = records.make_token(folder)
    opened = [records.make_lock(folder)]
    try:
        with records.make_listener(folder) as listener:
            token_read, token_write = os.pipe2(os.O_CLOEXEC)
            opened.append(token_read)
            os.write(token_write, token.encode())
            os.close(token_write)
            descriptors = (listener.fileno(), opened[0], token_read)
            become = () if user is None else tuple(map(str, user))
            # The shell ends at once, so that the broker is nobody's child here and nothing has to wait for it.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" &', "sh", *_PROGRAM, *map(str, descriptors), *become],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
                check=True,
                timeout=_START_LIMIT_S,
            )
    except (OSError, subprocess.SubprocessError):
        records.remove_folder(folder)
        raise
    finally:
        for fd in opened:
            os.close(fd)
    return FoundBroker(folder, token)
