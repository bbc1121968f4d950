"""Histories that went apart, from a seed: what two machines may have done to one memory, as `git fast-import` input."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

WORDS: Final = ("tea", "key", "stone", "Berlin", "Tuesday", "für", "红", "sister", "garden", "train", "😀")
NAMES: Final = ("Ada", "Żaneta K", "O'Brien", "李雷")
ZONES: Final = ("+0000", "+0530", "-0800", "+1345")


@dataclass(slots=True)
class Files:
    """A tree while it is made: path to mode and content."""

    entries: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def copy(self) -> "Files":
        return Files(dict(self.entries))


@dataclass(slots=True)
class History:
    """One base, an upstream and a local side; `stream` is input for `git fast-import`."""

    rng: random.Random
    name: str
    stream: bytearray = field(default_factory=bytearray)
    marks: int = 0

    def commit(self, ref: str, files: Files, parents: tuple[int, ...], message: bytes, encoding: str = "") -> int:
        self.marks += 1
        rng = self.rng
        at_s = 1_700_000_000 + rng.randrange(50_000_000)
        author = f"{rng.choice(NAMES)} <a{rng.randrange(9)}@example.org> {at_s} {rng.choice(ZONES)}"
        lines = [f"commit {ref}", f"mark :{self.marks}", f"author {author}"]
        lines += [f"committer Machine <m@example.org> {at_s + 5} +0000"]
        lines += [f"encoding {encoding}"] if encoding else []
        self.stream += "\n".join(lines).encode() + b"\n" + _data(message)
        for word, parent in zip(("from", *["merge"] * 8), parents, strict=False):
            self.stream += f"{word} :{parent}\n".encode()
        self.stream += b"deleteall\n"
        for path, (mode, content) in sorted(files.entries.items()):
            self.stream += f"M {mode} inline {path}\n".encode() + _data(content)
        self.stream += b"\n"
        return self.marks


def generate(seed: int, name: str) -> bytes:
    """A stream that makes refs/heads/NAME-up and refs/heads/NAME-local; the same for the same seed."""
    rng = random.Random(f"history {seed}")
    history = History(rng, name)
    base_files = Files()
    for number in range(rng.randint(3, 9)):
        folder = rng.choice(("", "", "people/", "places/", "people/near/"))
        base_files.entries[f"{folder}note{number}.md"] = ("100644", _text(rng))
    if rng.random() < 0.4:
        base_files.entries["picture.bin"] = ("100644", rng.randbytes(300))
    base = history.commit(f"refs/heads/{name}-up", base_files, (), b"base\n")
    shared: list[Callable[[Files], None]] = [_change(rng) for _ in range(2)]
    _side(history, f"refs/heads/{name}-up", base, base_files, shared if rng.random() < 0.25 else [])
    unrelated = rng.random() < 0.05
    start = () if unrelated else (base,)
    _side(history, f"refs/heads/{name}-local", *start, files=Files() if unrelated else base_files, shared=shared[:1])
    return bytes(history.stream) + f"reset refs/tags/{name}-base\nfrom :{base}\n\n".encode()


def _side(
    history: History,
    ref: str,
    parent: int | None = None,
    files: Files | None = None,
    shared: list[Callable[[Files], None]] | None = None,
) -> None:
    rng = history.rng
    assert files is not None
    now, head = files.copy(), parent
    for number in range(rng.randint(1, 4)):
        kind = rng.random()
        if kind < 0.12 and head is not None:
            head = _merged(history, ref, head, now)
            continue
        if kind > 0.1:
            change = shared.pop() if shared and rng.random() < 0.5 else _change(rng)
            change(now)
        message, encoding = _message(rng, number)
        head = history.commit(ref, now, () if head is None else (head,), message, encoding)


def _merged(history: History, ref: str, head: int, now: Files) -> int:
    """A branch from here and its merge; both sides' changes are in `now` afterwards."""
    rng = history.rng
    other = now.copy()
    other.entries[f"side{rng.randrange(100)}.md"] = ("100644", _text(rng))
    side = history.commit(f"{ref}-side{history.marks}", other, (head,), b"on the side\n")
    _change(rng)(now)
    main = history.commit(ref, now, (head,), b"on main\n")
    for path, entry in other.entries.items():
        if path.startswith("side"):
            now.entries[path] = entry
    return history.commit(ref, now, (main, side), b"merged\n")


def _change(rng: random.Random) -> Callable[[Files], None]:
    """One kind of change, drawn now and applied to whatever tree it meets, so that both sides can make the same."""
    kind = rng.choice(("edit", "edit", "edit", "add", "delete", "rename", "folder", "mode", "binary", "crlf"))
    seed = rng.random()

    def apply(files: Files) -> None:
        draw = random.Random(seed)
        paths = sorted(files.entries)
        if not paths or kind == "add":
            files.entries[f"new{draw.randrange(6)}.md"] = ("100644", _text(draw))
            return
        path = draw.choice(paths)
        mode, content = files.entries[path]
        match kind:
            case "edit":
                files.entries[path] = (mode, _edited(draw, content))
            case "delete":
                del files.entries[path]
            case "rename":
                del files.entries[path]
                files.entries[f"moved/{path.rpartition('/')[2]}"] = (mode, _edited(draw, content))
            case "folder":
                for old in [each for each in paths if each.startswith("people/")]:
                    files.entries[f"friends/{old.removeprefix('people/')}"] = files.entries.pop(old)
            case "mode":
                files.entries[path] = ("100755" if mode == "100644" else "100644", content)
            case "binary":
                files.entries["picture.bin"] = ("100644", draw.randbytes(200))
            case "crlf":
                files.entries[path] = (mode, content.replace(b"\n", b"\r\n"))

    return apply


def _edited(rng: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    changed = _line(rng)
    match rng.choice(("replace", "insert", "remove")):
        case "replace":
            lines[at] = changed
        case "insert":
            lines.insert(at, changed)
        case _:
            del lines[at]
    return b"\n".join(lines)


def _text(rng: random.Random) -> bytes:
    return b"\n".join(_line(rng) for _ in range(rng.randint(4, 14))) + (b"\n" if rng.random() < 0.9 else b"")


def _line(rng: random.Random) -> bytes:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 5))).encode()


def _message(rng: random.Random, number: int) -> tuple[bytes, str]:
    kind = rng.random()
    if kind < 0.1:
        return f"Grüße {number}\n".encode("latin-1"), "ISO-8859-1"
    if kind < 0.3:
        return f"note {number}\n\nbody of it\n\n# not a comment\n  indented\n".encode(), ""
    if kind < 0.4:
        return f"no newline {number}".encode(), ""
    return f"note {number} {rng.choice(WORDS)}\n".encode(), ""


def _data(content: bytes) -> bytes:
    return f"data {len(content)}\n".encode() + content + b"\n"
