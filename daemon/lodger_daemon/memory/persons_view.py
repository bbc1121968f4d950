"""What people see of published memory: its files, each file at any commit, and what a commit changed. Blocking; call
under the agent's lock."""

import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal

from lodger_daemon.memory.core.wanted_paths import BadRequest, wanted_path, wanted_revision
from lodger_daemon.memory.errors import GitFailed
from lodger_daemon.memory.published import Published
from lodger_tools.validator.front_matter import read_front_matter
from lodger_tools.validator.objects import MODE_FILE, MODE_FOLDER, MODE_PROGRAM, Entry, parse_tree
from lodger_tools.validator.tree import Layout, is_core, layout_of

IMAGES: Final = {
    ".gif": "image/gif",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}
DIFF_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""More of one commit nobody reads; a commit may change 256 MiB."""
_DIFF_LIMIT_S: Final = 30.0
_FILES: Final = frozenset({MODE_FILE, MODE_PROGRAM})


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file that a list of memory shows."""

    path: str
    oid: str
    is_core: bool
    """In every prompt."""
    kind: Literal["markdown", "image"]
    mime_type: str


@dataclass(frozen=True, slots=True)
class ShownFile:
    file: ListedFile
    description: str | None
    content: str
    """Markdown without its front matter; nothing for an image."""
    size: int


def list_files(published: Published, head: str) -> tuple[ListedFile, ...]:
    """Markdown and images, in path order."""
    tree = published.commit(head).tree
    layout = layout_of(parse_tree(published.reader.read(tree)[1]))
    return tuple(sorted(_listed(published, tree, "", layout), key=lambda file: file.path))


def _listed(published: Published, tree: str, prefix: str, layout: Layout) -> Iterator[ListedFile]:
    for entry in parse_tree(published.reader.read(tree)[1]):
        path = prefix + entry.name.decode("utf-8", "replace")
        if entry.mode == MODE_FOLDER:
            yield from _listed(published, entry.oid, f"{path}/", layout)
        elif entry.mode in _FILES:
            ending = PurePosixPath(path).suffix.casefold()
            if ending == ".md":
                yield ListedFile(path, entry.oid, is_core(path, layout), "markdown", "text/markdown")
            elif ending in IMAGES:
                yield ListedFile(path, entry.oid, False, "image", IMAGES[ending])


def show_files(published: Published, files: tuple[ListedFile, ...]) -> tuple[ShownFile, ...]:
    """Their contents; the caller asks for few at a time."""
    return tuple(_shown(published, file) for file in files)


def _shown(published: Published, file: ListedFile) -> ShownFile:
    if file.kind == "image":
        return ShownFile(file, None, "", published.reader.size(file.oid))
    front = read_front_matter(published.reader.read(file.oid)[1].decode("utf-8", "replace"))
    body = front.body.strip()
    return ShownFile(file, (front.fields or {}).get("description"), body, len(body.encode()))


def file_at(published: Published, head: str, path: str, revision: str = "main") -> bytes:
    """Raises: BadRequest for a path or commit that is not there."""
    commit = commit_named(published, head, revision)
    entry = entry_at(published, published.commit(commit).tree, wanted_path(path))
    if entry is None or entry.mode not in _FILES:
        raise BadRequest(f"There is no file {path[:200]} in this memory at {revision[:80]}")
    return published.reader.read(entry.oid)[1]


def entry_at(published: Published, tree: str, names: tuple[str, ...]) -> Entry | None:
    found = Entry(MODE_FOLDER, b"", tree)
    for name in names:
        if found.mode != MODE_FOLDER:
            return None
        entries = parse_tree(published.reader.read(found.oid)[1])
        below = next((entry for entry in entries if entry.name == name.encode()), None)
        if below is None:
            return None
        found = below
    return found


def commit_named(published: Published, head: str, revision: str) -> str:
    """A full commit id. Raises: BadRequest."""
    wanted = wanted_revision(revision)
    if wanted is None:
        return head
    done = published.git.attempt("rev-parse", "--verify", "--quiet", "--end-of-options", f"{wanted}^{{commit}}")
    commit = done.stdout.decode("ascii", "replace").strip()
    if done.exit_code != 0 or len(commit) != 40:
        raise BadRequest(f"There is no commit {wanted} in this memory")
    return commit


def commit_diff(published: Published, head: str, revision: str) -> str:
    """What a commit changed, as a patch without the commit's header. Raises: BadRequest, GitFailed."""
    commit = commit_named(published, head, revision)
    argv = ("show", "--format=", "--no-color", "--no-ext-diff", "--no-textconv", "--end-of-options", commit)
    return _limited(published, argv).decode("utf-8", "replace")


def _limited(published: Published, argv: tuple[str, ...]) -> bytes:
    """What git says, cut with a word where it says too much."""
    process = published.git.start(*argv)
    deadline = time.monotonic() + _DIFF_LIMIT_S
    pieces: list[bytes] = []
    size = 0
    try:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        while size <= DIFF_LIMIT_BYTES:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
                raise GitFailed(argv[0], None, "no answer")
            piece = os.read(fd, 1 << 16)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
    finally:
        published.git.forget(process)
    return b"".join(pieces)[:DIFF_LIMIT_BYTES].rpartition(b"\n")[0] + b"\n[The rest of this commit is not shown.]\n"
