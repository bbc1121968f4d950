"""One request handed to `git http-backend`: environment in, CGI answer out.

The request body is fed to the end before the answer is passed on: listening for a disconnect at the same time would
eat parts of the body.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_hub.git_host.repositories import find_git, git_environment

MEMORY_LIMIT_BYTES: Final = 768 * 1024 * 1024
"""Of each git of the hub: 16 KB of deltas can make objects of many gigabytes, which git holds whole."""
_LEAN: Final = ("-c", "pack.threads=1", "-c", "core.packedGitLimit=256m", "-c", "core.packedGitWindowSize=32m")
"""So that the limit on memory is met by a bomb only."""
_ONLY_MAIN: Final = ("-c", "receive.hideRefs=refs/", "-c", "receive.hideRefs=!refs/heads/main")
"""A memory is its main: other names would be kept for ever, and no limit of git's counts them."""
_HEADER_LIMIT_BYTES: Final = 16 * 1024
_PIECE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class BackendRequest:
    """What git needs to know of a request."""

    root: Path
    repository: str
    """Its folder below the root."""
    service_path: str
    """`info/refs`, `git-upload-pack` or `git-receive-pack`."""
    method: str
    query: str
    headers: Mapping[str, str]
    user: str

    def environment(self) -> dict[str, str]:
        extra = {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{self.repository}/{self.service_path}",
            "REQUEST_METHOD": self.method,
            "QUERY_STRING": self.query,
            "CONTENT_TYPE": self.headers.get("content-type", ""),
            "REMOTE_USER": self.user,
            "REMOTE_ADDR": "hub",
        }
        if self.headers.get("content-encoding") == "gzip":
            extra["HTTP_CONTENT_ENCODING"] = "gzip"
        if "git-protocol" in self.headers:
            extra["GIT_PROTOCOL"] = self.headers["git-protocol"]
        # No CONTENT_LENGTH: told one, git 2.39 spins for ever, waiting for the rest of a body whose sender was killed.
        # Without it the end of its input is the end of the body.
        return git_environment() | extra


@dataclass(frozen=True, slots=True)
class CgiHead:
    status: int
    headers: list[tuple[bytes, bytes]]
    rest: bytes
    """The first bytes of the body."""


class BackendFailed(Exception):
    """Git answered nothing that can be passed on."""


@asynccontextmanager
async def running_backend(request: BackendRequest) -> AsyncIterator[asyncio.subprocess.Process]:
    """A `git http-backend` in a process group of its own; whatever is left of it is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        # Where the system has no such limit, the shell says so and goes on.
        f'ulimit -v {MEMORY_LIMIT_BYTES // 1024}; exec "$@"',
        "sh",
        find_git(),
        *_LEAN,
        *_ONLY_MAIN,
        "http-backend",
        env=request.environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        await process.wait()


async def read_head(output: asyncio.StreamReader) -> CgiHead:
    """Raises: BackendFailed."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = await output.read(_PIECE_BYTES)
        data += piece
        if not piece or len(data) > _HEADER_LIMIT_BYTES + _PIECE_BYTES:
            raise BackendFailed("git http-backend ended without an answer")
    head, _, rest = data.partition(b"\r\n\r\n")
    status = 200
    headers: list[tuple[bytes, bytes]] = []
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"status":
            status = int(value.split()[0])
        else:
            headers.append((name.lower(), value.strip()))
    return CgiHead(status, headers, rest)


async def read_pieces(output: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await output.read(_PIECE_BYTES):
        yield piece
