"""The broker's process: `python -m lodger_sandbox.egress LISTEN_FD LOCK_FD TOKEN_FD [UID GID]`.

With a uid and gid it gives up being root once everything it needs has been imported: the installation may lie where
the boxes' user may not look.
"""

import asyncio
import concurrent.futures.thread
import encodings.idna
import os
import resource
import signal
import socket
import sys
from typing import Final

import lodger_sandbox.egress.http_door
import lodger_sandbox.egress.socks_door
from lodger_sandbox.egress.control import Broker

LOADED_EARLY: Final = (
    lodger_sandbox.egress.http_door,
    lodger_sandbox.egress.socks_door,
    # The standard library loads these two by itself when it resolves its first name.
    concurrent.futures.thread,
    encodings.idna,
)
"""At the start, not at the first connection: later these files may be out of reach, or newer than the rest."""
TOKEN_LIMIT_BYTES: Final = 4096
DESCRIPTORS: Final = 65_536
"""One box alone may hold four doors' connections, each with one to a server: 2,048, twice the usual soft limit."""


def main(argv: list[str]) -> int:
    listen_fd, lock_fd, token_fd = (int(text) for text in argv[1:4])
    os.set_inheritable(lock_fd, False)
    raise_descriptor_limit()
    with open(token_fd, "rb") as pipe:
        token = pipe.read(TOKEN_LIMIT_BYTES).decode("ascii")
    if len(argv) > 5:
        become(int(argv[4]), int(argv[5]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=listen_fd) as listener:
        asyncio.run(Broker(listener, token).run())
    return 0


def raise_descriptor_limit() -> None:
    """Else a box that opens what it may takes the way out from all others. This process starts no program."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
