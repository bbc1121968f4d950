"""A git host, a Python index and an npm registry on a loopback address of their own, for real clients.

The address is none that programs keep from their proxy, so what reaches it went through the broker.
"""

import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ADDRESS = "127.0.0.2"
WHEEL = "greeting-1.0-py3-none-any.whl"
TARBALL = "greeting-1.0.0.tgz"


@dataclass(slots=True)
class PackageHosts:
    port: int
    repositories: Path
    asked_for: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        """As an allow-list names it."""
        return f"{ADDRESS}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def lock_file(self) -> str:
        """What `npm ci` reads."""
        resolved = {"version": "1.0.0", "resolved": f"{self.url}/npm/{TARBALL}", "integrity": integrity(tarball())}
        packages = {"": {"dependencies": {"greeting": "1.0.0"}}, "node_modules/greeting": resolved}
        return json.dumps({"name": "app", "lockfileVersion": 3, "requires": True, "packages": packages})


def wheel() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("greeting.py", "WORDS = 'hello from the index'\n")
        archive.writestr("greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        archive.writestr(
            "greeting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("greeting-1.0.dist-info/RECORD", "")
    return made.getvalue()


def tarball() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, text in (
            ("package/package.json", json.dumps({"name": "greeting", "version": "1.0.0", "main": "index.js"})),
            ("package/index.js", "module.exports = 'hello from the registry';\n"),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    # gzip writes the time into its head; the lock file and the download must agree.
    content = bytearray(made.getvalue())
    content[4:8] = bytes(4)
    return bytes(content)


def integrity(content: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def _git_answer(repositories: Path, handler: BaseHTTPRequestHandler, body: bytes) -> bytes:
    path, _, query = handler.path.removeprefix("/git").partition("?")
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_PROJECT_ROOT": str(repositories),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "http.receivepack",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_CONFIG_KEY_1": "safe.directory",
        "GIT_CONFIG_VALUE_1": "*",
        "REQUEST_METHOD": handler.command,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
        "HTTP_CONTENT_ENCODING": handler.headers.get("Content-Encoding", ""),
        "HTTP_GIT_PROTOCOL": handler.headers.get("Git-Protocol", ""),
        "REMOTE_ADDR": "127.0.0.1",
    }
    done = subprocess.run(("git", "http-backend"), input=body, env=environment, capture_output=True, check=False)
    return done.stdout


def _handler(hosts: list[PackageHosts]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                pieces = []
                while size := int(self.rfile.readline(), 16):
                    pieces.append(self.rfile.read(size))
                    self.rfile.readline()
                self._answer(b"".join(pieces))
            else:
                self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

        def _answer(self, body: bytes) -> None:
            here = hosts[0]
            here.asked_for.append(self.path)
            if self.path.startswith("/git/"):
                head, _, content = _git_answer(here.repositories, self, body).partition(b"\r\n\r\n")
                lines = [line.partition(": ") for line in head.decode().splitlines()]
                fields = {name: value for name, _, value in lines}
                status = int(fields.pop("Status", "200").split()[0])
                self._send(status, fields, content)
                return
            known = {
                "/simple/greeting/": (b'<a href="/files/' + WHEEL.encode() + b'">wheel</a>', "text/html"),
                f"/files/{WHEEL}": (wheel(), "application/octet-stream"),
                f"/npm/{TARBALL}": (tarball(), "application/octet-stream"),
            }
            content, kind = known.get(self.path, (b"", "text/plain"))
            self._send(200 if self.path in known else 404, {"Content-Type": kind}, content)

        def _send(self, status: int, fields: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@contextmanager
def package_hosts(repositories: Path) -> Iterator[PackageHosts]:
    """Serves bare repositories below `repositories` at `/git/NAME.git`, read and write."""
    known: list[PackageHosts] = []
    server = ThreadingHTTPServer((ADDRESS, 0), _handler(known))
    known.append(PackageHosts(server.server_address[1], repositories))
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield known[0]
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
