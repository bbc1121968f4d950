"""A large memory, made with `git fast-import`: thousands of files and commits in some seconds."""

import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.plain_boxes import agent_environment

FIRST_S = 1_700_000_000
LINES = 4000
"""Different ones: text of them takes some two fifths when it is compressed, as notes do."""


@dataclass(frozen=True, slots=True)
class Size:
    """
    Args:
        pictures_bytes: of `total_bytes`, what no compression makes smaller; in files of `picture_bytes`.
    """

    files: int
    total_bytes: int
    commits: int
    pictures_bytes: int = 0
    picture_bytes: int = 1_000_000


LARGE = Size(5_000, 200_000_000, 10_000, 80_000_000)


def write_large_memory(repository: Path, size: Size, seed: int = 1) -> str:
    """Fill a bare repository's `main`; the commit it is at."""
    commits = _commits(size, random.Random(seed))
    with subprocess.Popen(
        ["git", f"--git-dir={repository}", "-c", "pack.compression=1", "fast-import", "--quiet", "--done", "--depth=0"],
        env=agent_environment(),
        stdin=subprocess.PIPE,
    ) as importing:
        assert importing.stdin is not None
        for piece in commits:
            importing.stdin.write(piece)
        importing.stdin.write(b"done\n")
        importing.stdin.close()
        assert importing.wait(600) == 0
    head = repository / "refs" / "heads" / "main"
    return head.read_text().strip()


def _commits(size: Size, draw: random.Random) -> Iterator[bytes]:
    """As many as wanted: at first each adds some files, then each changes one note."""
    words = ["".join(draw.choices("abcdefghijklmnoprstuvwyz", k=draw.randint(2, 11))) for _ in range(LINES)]
    lines = [" ".join(draw.choices(words, k=12)) for _ in range(LINES)]
    files = [*_files(size, lines, draw)]
    notes = [path for path, _ in files if path.endswith(".md") and "/" in path]
    adding = max(1, size.commits // 2)
    at_once = -(-len(files) // adding)
    made = 0
    for first in range(0, len(files), at_once):
        yield _commit(made, "Add", files[first : first + at_once])
        made += 1
    while made < size.commits:
        path = draw.choice(notes)
        yield _commit(made, f"Change {path}", [(path, _note(path, lines, draw, _note_bytes(size)))])
        made += 1


def _files(size: Size, lines: list[str], draw: random.Random) -> Iterator[tuple[str, bytes]]:
    yield "MEMORY.md", b"# Index\n\nSee the folders.\n"
    yield "agent.toml", b'name = "Ada"\ndescription = "A careful helper."\n'
    pictures = size.pictures_bytes // size.picture_bytes
    for number in range(size.files - 2 - pictures):
        path = f"notes/{number % 80:02}/n{number:05}.md"
        yield path, _note(path, lines, draw, _note_bytes(size))
    for number in range(pictures):
        yield f"pictures/p{number:04}.png", draw.randbytes(size.picture_bytes)


def _note_bytes(size: Size) -> int:
    pictures = size.pictures_bytes // size.picture_bytes
    return (size.total_bytes - size.pictures_bytes) // max(1, size.files - 2 - pictures)


def _note(path: str, lines: list[str], draw: random.Random, size_bytes: int) -> bytes:
    head = f"---\nname: {path}\ndescription: About {draw.choice(lines)}\n---\n\n"
    text = "\n".join(draw.choices(lines, k=size_bytes // 60))
    return (head + text)[: size_bytes - 1].encode() + b"\n"


def _commit(number: int, message: str, files: list[tuple[str, bytes]]) -> bytes:
    who = f"Ada <ada@lodger.invalid> {FIRST_S + number * 60} +0000"
    lines = [f"commit refs/heads/main\nauthor {who}\ncommitter {who}\ndata {len(message)}\n{message}\n".encode()]
    for path, content in files:
        lines.append(f"M 100644 inline {path}\ndata {len(content)}\n".encode() + content + b"\n")
    return b"".join(lines)
