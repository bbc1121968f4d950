"""The broker's process: `python -m lodger_sandbox.egress LISTEN_FD LOCK_FD TOKEN_FD`."""

import asyncio
import os
import signal
import socket
import sys

from lodger_sandbox.egress.control import Broker

TOKEN_LIMIT_BYTES = 4096


def main(argv: list[str]) -> int:
    listen_fd, lock_fd, token_fd = (int(text) for text in argv[1:4])
    os.set_inheritable(lock_fd, False)
    with open(token_fd, "rb") as pipe:
        token = pipe.read(TOKEN_LIMIT_BYTES).decode("ascii")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=listen_fd) as listener:
        asyncio.run(Broker(listener, token).run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
