"""Makes TCP sockets in a box's own network, which somebody outside then connects to what listens in there.

A program of its own, run by path as `python -I -S dialable_sockets.py DOOR_FD ANSWER_FD`, for the reasons of
`egress/inside_sockets.py`. DOOR_FD is any socket of the box. What is sent over ANSWER_FD: a byte that counts the IPv4
sockets, a byte that counts the IPv6 ones, and the sockets in that order. Nothing of the box takes part, so nobody
inside shares these sockets or sees where they are connected to.
"""

from __future__ import annotations

import os
import socket
import sys

EACH = 16
"""Of each family at once: what a browser opens for one page, and a few more."""
_NO_NETWORK = 2


def main(argv: list[str]) -> int:
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", ".."))  # noqa: PTH118, PTH120 - as there
    from lodger_sandbox.egress.inside_sockets import enter

    door, answer = int(argv[1]), int(argv[2])
    try:
        enter(door)
        four = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(EACH)]
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return _NO_NETWORK
    six = _six()
    with socket.socket(fileno=answer) as there:
        socket.send_fds(there, [bytes((len(four), len(six)))], [one.fileno() for one in (*four, *six)])
    return 0


def _six() -> list[socket.socket]:
    """None where the kernel was built without."""
    try:
        return [socket.socket(socket.AF_INET6, socket.SOCK_STREAM) for _ in range(EACH)]
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv))
