"""Hands ssh a connection through the box's proxy: `python -I -S ssh_connect.py PROXY_PORT HOST PORT`.

Started by ssh as its ProxyCommand with ProxyUseFdpass: the connected socket goes over standard output and this program
ends, so that nothing is copied. Standard library only, and little of it, since each connection waits for it.
"""

import socket
import sys

ANSWER_LIMIT_S = 120.0
"""A person may be asked meanwhile, and a name has several addresses."""
HEAD_LIMIT_BYTES = 16 * 1024
WORDS_LIMIT_BYTES = 4 * 1024


def main(argv: list[str]) -> int:
    proxy_port, host, port = argv[1:4]
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        with socket.create_connection(("127.0.0.1", int(proxy_port)), ANSWER_LIMIT_S) as connection:
            connection.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            status = read_head(connection).split(b" ", 2)[1:2]
            if status != [b"200"]:
                sys.stderr.write(read_words(connection) or f"There is no way to {target}.\n")
                return 1
            # Not with the time limit's O_NONBLOCK on it, which goes along.
            connection.settimeout(None)
            with socket.socket(fileno=1) as ssh:
                socket.send_fds(ssh, [b"!"], [connection.fileno()])
    except (OSError, ValueError) as error:
        sys.stderr.write(f"The way out of this box does not answer: {error}\n")
        return 1
    return 0


def read_head(connection: socket.socket) -> bytes:
    """The answer up to its empty line and not a byte more, since what follows is for ssh. Raises: OSError for none."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        if not piece or len(head) >= HEAD_LIMIT_BYTES:
            raise OSError("its answer breaks off")
        head += piece
    return head


def read_words(connection: socket.socket) -> str:
    words = b""
    while len(words) < WORDS_LIMIT_BYTES:
        piece = connection.recv(WORDS_LIMIT_BYTES)
        if not piece:
            break
        words += piece
    return words.decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
