"""The built page: its files as they lie in a folder that the build fills, public, and nothing else of that folder.

Only names that were found when the hub started are served, so a path cannot lead anywhere else.
"""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from lodger_hub.errors import RequestRefused

PAGE_FOLDER: Final = Path(__file__).parent.parent / "page"
INDEX: Final = "index.html"
FILE_BYTES: Final = 16 * 1024 * 1024
FILES: Final = 2000

TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".webp": "image/webp",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
}

CONTENT_POLICY: Final = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "connect-src 'self'; worker-src 'self'; manifest-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Pictures that a person picked or an agent sent are shown from memory, hence `data:` and `blob:`."""
FOR_EVER: Final = "public, max-age=31536000, immutable"
HASHED: Final = re.compile(r"assets/.*[-.][A-Za-z0-9_-]{8,}\.[a-z0-9]+")
"""What the build names by content never changes."""

NOT_BUILT: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Lodger</title>'
    "<p>The page has not been built: run <code>make</code> in Lodger's folder and start the hub again.</p></html>"
)


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    media_type: str
    cache: str
    tag: str


class Site:
    """The files of one folder. Made in a thread: it reads them all once."""

    def __init__(self, folder: Path = PAGE_FOLDER) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _known(path, path.relative_to(folder).as_posix())
            for path in sorted(folder.rglob("*"))[:FILES]
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= FILE_BYTES
        }

    async def page(self, request: Request) -> Response:
        """A file; for every other path without an ending the page itself, which reads the path on its own."""
        name = request.path_params.get("path", "") or INDEX
        file = self._files.get(name)
        if file is None and "." in name.rsplit("/", 1)[-1] and name != INDEX:
            raise RequestRefused(404, "not_found", "there is nothing at this address")
        file = file or self._files.get(INDEX)
        if file is None:
            return _response(NOT_BUILT.encode(), 503, TYPES[".html"], {"Cache-Control": "no-store"})
        headers = {"Cache-Control": file.cache, "ETag": file.tag}
        if request.headers.get("if-none-match") == file.tag:
            return _response(b"", 304, file.media_type, headers)
        try:
            content = await asyncio.to_thread(file.path.read_bytes)
        except OSError as error:
            raise RequestRefused(404, "not_found", "the page is being built anew; load it again") from error
        return _response(content, 200, file.media_type, headers)


def _response(content: bytes, status: int, media_type: str, headers: Mapping[str, str]) -> Response:
    own = {"Content-Security-Policy": CONTENT_POLICY, "Cross-Origin-Opener-Policy": "same-origin"}
    response = Response(content, status, {**own, **headers})
    response.headers["Content-Type"] = media_type
    return response


def _known(path: Path, name: str) -> _File:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    cache = FOR_EVER if HASHED.fullmatch(name) else "no-cache"
    return _File(path, TYPES.get(path.suffix.lower(), "application/octet-stream"), cache, f'"{digest}"')
