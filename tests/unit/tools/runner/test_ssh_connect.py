"""The program that ssh in a box starts: what it asks the proxy, what it hands over, and what it says of a refusal."""

import fcntl
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lodger_tools.runner

PROGRAM = str(Path(lodger_tools.runner.__path__[0]) / "ssh_connect.py")
LIMIT_S = 30.0


@contextmanager
def proxy(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Its port, and what it was asked: one connection, answered in one piece."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT_S)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(4096))
                connection.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        yield listener.getsockname()[1], asked
        serving.join(LIMIT_S)


def started(port: int, host: str, stdout: int) -> subprocess.CompletedProcess[bytes]:
    words = (sys.executable, "-I", "-S", "-B", PROGRAM, str(port), host, "22")
    return subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False)


def test_ssh_gets_a_connection_of_which_nothing_was_taken() -> None:
    here, there = socket.socketpair()
    with here, there, proxy(b"HTTP/1.1 200 Connection established\r\n\r\nSSH-2.0-first\r\n") as (port, asked):
        assert started(port, "git.example", there.fileno()).returncode == 0
        _, (handed,), _, _ = socket.recv_fds(here, 16, 4)
        assert not fcntl.fcntl(handed, fcntl.F_GETFL) & os.O_NONBLOCK
        with socket.socket(fileno=handed) as connection:
            connection.settimeout(LIMIT_S)
            assert connection.recv(100) == b"SSH-2.0-first\r\n"
    assert asked == [b"CONNECT git.example:22 HTTP/1.1\r\nHost: git.example:22\r\n\r\n"]


def test_a_refusal_is_told_in_the_brokers_words_and_nothing_is_handed_over() -> None:
    here, there = socket.socketpair()
    with here, there, proxy(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\nnot that one\n") as (port, asked):
        done = started(port, "2001:db8::1", there.fileno())
        assert (done.returncode, done.stderr) == (1, b"not that one\n")
        there.close()
        assert socket.recv_fds(here, 16, 4)[:2] == (b"", [])
    assert asked[0].startswith(b"CONNECT [2001:db8::1]:22 ")


def test_a_proxy_that_breaks_off_or_is_not_there_is_no_way() -> None:
    here, there = socket.socketpair()
    with here, there:
        with proxy(b"HTTP/1.1 200 Conn") as (port, _):
            assert started(port, "git.example", there.fileno()).returncode == 1
        done = started(port, "git.example", there.fileno())
        assert done.returncode == 1 and b"does not answer" in done.stderr
        there.close()
        assert socket.recv_fds(here, 16, 4)[:2] == (b"", [])
