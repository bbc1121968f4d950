"""A git host that is not ours: stock `git http-backend` with git's own defaults, and nothing that announces heads."""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from support.git_host_server import TOKEN, basic
from support.patience import LIMIT_S


def make_repository(root: Path, agent_id: str) -> Path:
    """An empty one, in the address form our remotes use."""
    repository = root / "v1" / "git" / agent_id / "state.git"
    repository.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(repository)], check=True)
    subprocess.run(["git", f"--git-dir={repository}", "config", "http.receivepack", "true"], check=True)
    return repository


@contextmanager
def running_foreign_host(root: Path, agent_id: str) -> Iterator[str]:
    """Its address; it has one empty repository."""
    make_repository(root, agent_id)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            self._serve(b"")

        def do_POST(self) -> None:
            self._serve(self._body())

        def log_message(self, format: str, *args: Any) -> None:
            return

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", "0")))
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            return b"".join(pieces)

        def _serve(self, body: bytes) -> None:
            if self.headers.get("authorization") != basic(TOKEN):
                self.send_error(401)
                return
            path, _, query = self.path.partition("?")
            environment = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("content-type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
                "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
                "REMOTE_USER": "letta",
                "REMOTE_ADDR": "127.0.0.1",
            }
            done = subprocess.run(
                ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n") if b": " in line)
            status = fields.pop(b"Status", b"200").split()[0]
            self.send_response(int(status))
            for name, value in fields.items():
                self.send_header(name.decode(), value.decode())
            self.end_headers()
            try:
                self.wfile.write(content)
            except (BrokenPipeError, ConnectionResetError):
                return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(LIMIT_S)


@contextmanager
def telling_everything() -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """A host that answers, once told to go on, with what it was sent: its address, `asked`, `go_on`."""
    asked, go_on = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.set()
            go_on.wait(30)
            sent = self.headers.get("authorization", "")
            token = base64.b64decode(sent.removeprefix("Basic ")).decode()
            self.send_response(403, f"{sent} {token}")
            self.send_header("content-type", "text/plain")
            self.end_headers()
            self.wfile.write(f"remote: {sent} {token} {token.partition(':')[2]}\n".encode())

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked, go_on
    finally:
        go_on.set()
        server.shutdown()
        server.server_close()
        thread.join(LIMIT_S)
