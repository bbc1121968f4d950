"""What no linter knows: lock files without addresses, a README in each folder, files and functions not too long."""

import ast
import subprocess
import sys
from pathlib import Path

from references import unexplained

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 500
FUNCTION_LINES = 80
LONG_FILES: frozenset[str] = frozenset()
"""Exceptions; may only shrink."""
FOLDERS = ("protocol", "sandbox", "tools", "daemon", "hub", "cli", "systemd", "launchd", "docs", "tests", "scripts")


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


def faults() -> list[str]:
    found = [f"{lock.name}: holds an address" for lock in tracked("*.lock") if "://" in lock.read_text()]
    found += [f"{folder}/README.md is missing" for folder in FOLDERS if not (ROOT / folder / "README.md").exists()]
    for path in tracked("*.py"):
        name = str(path.relative_to(ROOT))
        source = path.read_text()
        if not name.startswith("tests/") and source.count("\n") > FILE_LINES and name not in LONG_FILES:
            found.append(f"{name}: {source.count(chr(10))} lines (at most {FILE_LINES})")
        if not name.startswith("tests/"):
            found += long_functions(name, source)
    return found + unexplained(ROOT, [path for kind in ("*.py", "*.md", "*.ts", "*.tsx") for path in tracked(kind)])


def long_functions(name: str, source: str) -> list[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        f"{name}:{node.lineno}: {node.name} has {node.end_lineno - node.lineno + 1} lines (at most {FUNCTION_LINES})"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, functions)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= FUNCTION_LINES
    ]


def main() -> int:
    found = faults()
    print("\n".join(found) or "tree: in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
