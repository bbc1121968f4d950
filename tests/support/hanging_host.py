"""A git host that hangs: it takes every request and says nothing."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NO_SUCH_MEMORY = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@contextmanager
def hanging_host() -> Iterator[str]:
    """Its address. The very first request it answers, with the word that it knows no such agent: so a machine founds
    the memory, and only then is left waiting."""
    closed, answered = threading.Event(), threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            if answered.is_set():
                closed.wait()
            else:
                answered.set()
                self.rfile.readline()
                self.wfile.write(NO_SUCH_MEMORY)

    class Threads(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Threads(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            closed.set()
            server.shutdown()
