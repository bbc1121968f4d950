"""Runs inside a probe's box and tries to get out. Standard library only; prints one line for each way that worked.

main.py HOST_PID HOST_PID_START PORT ABSTRACT_NAME OUTSIDE_FOLDER CANARY_FILE MASKED_FOLDER
"""

import _socket
import os
import sys
from collections.abc import Callable

DONE = "done"


def succeeds(attempt: Callable[..., object], *arguments: object) -> bool:
    try:
        return attempt(*arguments) is not False
    except (OSError, ValueError):
        return False


def write(folder: str) -> None:
    path = f"{folder}/lodger-probe-{os.getpid()}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    os.unlink(path)  # noqa: PTH108


def leave_mark(folder: str) -> None:
    with open(f"{folder}/mark", "w") as file:
        file.write("left by a probe")


def read(path: str) -> bool:
    with open(path, "rb") as file:
        return bool(file.read(1))


def lists_something(folder: str) -> bool:
    return bool(os.listdir(folder))  # noqa: PTH208


def sees_process(pid: str, start: str) -> bool:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19] == start.encode()


def connects(family: int, address: object) -> None:
    connection = _socket.socket(family, _socket.SOCK_STREAM)
    connection.settimeout(1.0)
    connection.connect(address)  # type: ignore[arg-type]


def mounts(folder: str) -> bool:
    import ctypes

    libc = ctypes.CDLL(None)
    return bool(libc.mount(b"tmpfs", folder.encode(), b"tmpfs", ctypes.c_ulong(0), None) == 0)


def makes_namespace() -> bool:
    import ctypes

    return bool(ctypes.CDLL(None).unshare(0x10000000) == 0)


def main() -> None:
    pid, start, port, abstract, outside, canary, masked = sys.argv[1:]
    attempts = (
        ("writes outside the workspace", write, ("/etc",)),
        ("reads a file of the home", read, (canary,)),
        ("reads a masked folder", lists_something, (masked,)),
        ("sees the machine's processes", sees_process, (pid, start)),
        ("reaches the machine's loopback", connects, (_socket.AF_INET, ("127.0.0.1", int(port)))),
        ("reaches the machine's abstract sockets", connects, (_socket.AF_UNIX, "\0" + abstract)),
        ("mounts something", mounts, (os.getcwd(),)),  # noqa: PTH109
        ("makes a namespace of its own", makes_namespace, ()),
    )
    # Inside, this may be a private folder; the daemon looks whether anything arrived in its own.
    succeeds(leave_mark, outside)
    for words, attempt, arguments in attempts:
        if succeeds(attempt, *arguments):
            print(words)  # noqa: T201
    print(DONE if succeeds(write, os.getcwd()) else "the workspace is not writable")  # noqa: PTH109, T201


main()
