"""Glob: paths below a folder that match a pattern, newest first. Runs in a forked child."""

# pathlib would cost the runner 8 ms of its start.
# ruff: noqa: PTH112
from __future__ import annotations

import os

RESULT_LIMIT = 2000
VISIT_LIMIT = 1_000_000
SKIPPED_FOLDERS = frozenset((".git",))


def find_files(pattern: str, root: str) -> tuple[bool, str]:
    """Hidden files and links count; links to folders are not entered."""
    import re

    if pattern.startswith("/"):
        root, pattern = split_absolute(pattern)
    if not os.path.isdir(root):
        return False, f"It is not a folder: {root}"
    matcher = re.compile(as_expression(pattern))
    found: list[tuple[float, str]] = []
    visited = 0
    folders = [root.rstrip("/") or "/"]
    prefix_length = len(folders[0].rstrip("/")) + 1
    while folders and visited < VISIT_LIMIT:
        folder = folders.pop()
        try:
            entries = os.scandir(folder)
        except OSError:
            continue
        with entries:
            for entry in entries:
                visited += 1
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED_FOLDERS:
                        folders.append(entry.path)
                elif matcher.fullmatch(entry.path[prefix_length:]):
                    found.append((modified(entry), entry.path))
    return True, listing(found, pattern, root, visited >= VISIT_LIMIT)


def modified(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def listing(found: list[tuple[float, str]], pattern: str, root: str, cut: bool) -> str:
    if not found:
        return f"[No file below {root} matches {pattern}.]"
    found.sort(key=lambda item: (-item[0], item[1]))
    lines = [path for _, path in found[:RESULT_LIMIT]]
    if len(found) > RESULT_LIMIT:
        lines.append(f"[{len(found) - RESULT_LIMIT} more; use a narrower pattern.]")
    if cut:
        lines.append(f"[Stopped after {VISIT_LIMIT} entries; use a folder further down.]")
    return "\n".join(lines)


def split_absolute(pattern: str) -> tuple[str, str]:
    """The folder before the first name with a wildcard, and the rest."""
    names = pattern.split("/")
    fixed = 0
    while fixed < len(names) - 1 and not any(mark in names[fixed] for mark in "*?[{"):
        fixed += 1
    return "/".join(names[:fixed]) or "/", "/".join(names[fixed:])


def as_expression(pattern: str) -> str:
    """A glob as a regular expression: `**/` any folders, `*` and `?` within a name, `[…]`, `{a,b}`. A pattern without
    a slash matches in the folder itself only, as shells do; a lone `**` matches all."""
    import re

    result = []
    position = 0
    depth = 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest.startswith("**/"):
            result.append("(?:[^/]*/)*")
            position += 3
        elif rest.startswith("**"):
            result.append(".*")
            position += 2
        elif rest[0] == "*":
            result.append("[^/]*")
            position += 1
        elif rest[0] == "?":
            result.append("[^/]")
            position += 1
        elif rest[0] == "[" and "]" in rest[2:]:
            end = rest.index("]", 2)
            inner = rest[1:end].replace("\\", "\\\\").replace("[", "\\[")
            result.append("[" + ("^" + inner[1:] if inner[0] == "!" else inner) + "]")
            position += end + 1
        elif rest[0] == "{" and "}" in rest:
            result.append("(?:")
            depth += 1
            position += 1
        elif rest[0] == "}" and depth:
            result.append(")")
            depth -= 1
            position += 1
        elif rest[0] == "," and depth:
            result.append("|")
            position += 1
        else:
            result.append(re.escape(rest[0]))
            position += 1
    return "(?s:" + "".join(result) + ")" * (1 + depth)
