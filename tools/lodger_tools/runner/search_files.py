"""Grep: ripgrep for folders and expressions; a plain text in one file is looked for in process, which is 20 times
quicker than starting a program."""

# pathlib would cost the runner 8 ms of its start.
# ruff: noqa: PTH110, PTH112, PTH113
from __future__ import annotations

import os

from lodger_tools.runner.file_errors import FileRefused
from lodger_tools.runner.text_files import is_binary, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROGRAMS = ("/usr/bin/rg", "/usr/local/bin/rg", "/bin/rg")
SPECIAL = frozenset("\\^$.|?*+()[]{}")
LINE_LIMIT_CHARS = 2000
NOTHING = "[Nothing found.]"


def search_one_file(path: str, args: dict[str, Any]) -> str | None:
    """The result, or None when it takes a real search program."""
    pattern: str = args["pattern"]
    if not pattern:
        raise FileRefused("The pattern is empty.")
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise FileRefused(f"It is neither a file nor a folder but a pipe, socket or device: {path}")
    plain = not SPECIAL.intersection(pattern) and "\n" not in pattern and not args["ignore_case"]
    if not plain or args.get("glob") or args.get("file_type") or not os.path.isfile(path):
        return None
    data = read_bytes(path)
    if is_binary(data):
        return None
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    hits = [number for number, line in enumerate(lines) if pattern in line]
    return shaped(formatted(path, lines, hits, args, named=False), args)


def formatted(path: str, lines: list[str], hits: list[int], args: dict[str, Any], named: bool) -> str:
    """As ripgrep prints it: `:` after a hit's number, `-` after that of a line around it, `--` between groups."""
    if not hits:
        return ""
    match args["output_mode"]:
        case "files_with_matches":
            return path
        case "count":
            return f"{path}:{len(hits)}"
        case _:
            return "\n".join(content_rows(path if named else "", lines, hits, args))


def content_rows(path: str, lines: list[str], hits: list[int], args: dict[str, Any]) -> list[str]:
    """Each line at most once, so that many hits with much around them cost no more than the file has lines."""
    rows: list[str] = []
    unshown = 0
    for place, hit in enumerate(hits):
        start = max(unshown, hit - args["before"])
        end = min(hit + args["after"] + 1, hits[place + 1] if place + 1 < len(hits) else len(lines))
        if 0 < unshown < start and (args["before"] or args["after"]):
            rows.append("--")
        rows += [_row(path, number, lines[number], number == hit, args["line_numbers"]) for number in range(start, end)]
        unshown = end
    return rows


def _row(path: str, number: int, line: str, is_hit: bool, line_numbers: bool) -> str:
    mark = ":" if is_hit else "-"
    head = f"{path}{mark}" if path else ""
    count = f"{number + 1}{mark}" if line_numbers else ""
    return f"{head}{count}{line.removesuffix(chr(13))[:LINE_LIMIT_CHARS]}"


def ripgrep_argv(path: str, args: dict[str, Any]) -> list[str] | None:
    """None where there is no ripgrep."""
    program = next((name for name in PROGRAMS if os.access(name, os.X_OK)), None)
    if program is None:
        return None
    if not os.path.lexists(path):
        raise FileRefused(f"There is no such file or folder: {path}")
    argv = [program, "--no-config", "--color=never", "--no-heading", "--hidden", "--glob=!.git", "--sort=path"]
    argv += [f"--max-columns={LINE_LIMIT_CHARS}", "--max-columns-preview"]
    match args["output_mode"]:
        case "files_with_matches":
            argv.append("--files-with-matches")
        case "count":
            argv += ["--count", "--with-filename"]
        case _:
            argv += [f"--before-context={args['before']}", f"--after-context={args['after']}"]
            argv.append("--line-number" if args["line_numbers"] else "--no-line-number")
    if args["ignore_case"]:
        argv.append("--ignore-case")
    if args["multiline"]:
        argv += ["--multiline", "--multiline-dotall"]
    if args.get("glob"):
        argv.append(f"--glob={args['glob']}")
    if args.get("file_type"):
        argv.append(f"--type={args['file_type']}")
    return [*argv, f"--regexp={args['pattern']}", "--", path]


def search_in_process(path: str, args: dict[str, Any]) -> tuple[bool, str]:
    """The same in Python, in a forked child, for machines without ripgrep. Ignore files are not looked at."""
    import re

    from lodger_tools.runner.find_files import as_expression

    if args.get("file_type") or args["multiline"]:
        return False, "type and multiline need ripgrep, which this machine does not have."
    try:
        expression = re.compile(args["pattern"], re.IGNORECASE if args["ignore_case"] else 0)
    except re.error as error:
        return False, f"The pattern is not a regular expression: {error}"
    glob = args.get("glob")
    wanted = re.compile(as_expression(glob if "/" in glob else f"**/{glob}")) if glob else None
    results = []
    for file in files_below(path):
        if wanted is not None and not wanted.fullmatch(file[len(path.rstrip("/")) + 1 :]):
            continue
        try:
            data = read_bytes(file)
        except (OSError, FileRefused):
            continue
        if is_binary(data):
            continue
        lines = data.decode("utf-8", "replace").split("\n")
        hits = [number for number, line in enumerate(lines) if expression.search(line)]
        if hits:
            results.append(formatted(file, lines, hits, args, named=file != path))
    return True, shaped("\n".join(results), args)


def files_below(path: str) -> list[str]:
    if os.path.isfile(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name != ".git")
        found += [f"{folder.rstrip('/')}/{name}" for name in sorted(names)]
    return found


def shaped(text: str, args: dict[str, Any]) -> str:
    """Skip `offset` entries and show at most `head_limit` of them (0 = all)."""
    lines = text.removesuffix("\n").split("\n") if text else []
    offset: int = args["offset"]
    limit: int = args["head_limit"]
    end = len(lines) if limit <= 0 else offset + limit
    shown = lines[offset:end]
    if not shown:
        return NOTHING if not lines else f"[{len(lines)} entries in all; offset {offset} is behind them.]"
    if end < len(lines):
        shown.append(f"[{len(lines) - end} more entries; go on with offset {end}.]")
    return "\n".join(shown)
