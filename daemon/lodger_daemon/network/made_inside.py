"""Sockets that a program of the sandbox makes in a box's own network and hands out. Blocks; runs in a thread."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

LIMIT_S: Final = 10.0
_WORD_BYTES: Final = 16
_TOLD_CHARS: Final = 500


class NoSockets(Exception):
    """They were not made: another program in the box has a port, an earlier broker still has them, or the system does
    not let this user."""


def made_inside(program: Path, door: int, most: int, *arguments: str) -> tuple[bytes, tuple[socket.socket, ...]]:
    """The bytes that come with the sockets, and these; that none is missing is for the caller to see.

    Args:
        program: is run as `python -I -S PROGRAM DOOR_FD ANSWER_FD ARGUMENT…`.
        door: the descriptor of any socket of the box.
        most: sockets to be taken; the kernel closes what else comes.

    Raises: NoSockets.
    """
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(LIMIT_S)
        try:
            ended = subprocess.run(
                [sys.executable, "-I", "-S", str(program), str(door), str(there.fileno()), *arguments],
                pass_fds=(door, there.fileno()),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={},
                cwd="/",
                timeout=LIMIT_S,
                check=False,
            )
            if ended.returncode != 0:
                raise NoSockets(ended.stderr.decode("utf-8", "replace").strip()[-_TOLD_CHARS:])
            word, descriptors, _, _ = socket.recv_fds(here, _WORD_BYTES, most)
        except (OSError, subprocess.SubprocessError) as error:
            raise NoSockets(str(error)) from error
    return word, tuple(socket.socket(fileno=descriptor) for descriptor in descriptors)


def close_all(sockets: tuple[socket.socket, ...]) -> None:
    for one in sockets:
        one.close()
