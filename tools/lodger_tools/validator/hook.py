"""The commit hook inside a box: the validator on what is about to be committed. Advice only: the daemon checks again.

Run as a program with `-I -S -B` from any folder it is bound to, with the checkout as working folder; with `--shared`
for a memory that agents share. What it cannot look at it lets pass.
"""

import subprocess
import sys
import types
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - the python3 of the box may be older than the one that Lodger runs on
    sys.exit(0)


def _make_importable() -> None:
    """Give this folder its package name, although nothing else of the package is there."""
    for name, search in (("lodger_tools", []), ("lodger_tools.validator", [str(Path(__file__).parent)])):
        if name not in sys.modules:
            module = types.ModuleType(name)
            module.__path__ = search
            sys.modules[name] = module


def _git(*argv: str) -> bytes:
    return subprocess.run(["git", *argv], stdout=subprocess.PIPE, check=True, timeout=30).stdout


def read_object(oid: str) -> tuple[str, bytes]:
    try:
        kind = _git("cat-file", "-t", oid).decode().strip()
        return kind, _git("cat-file", kind, oid)
    except subprocess.CalledProcessError:
        raise KeyError(oid) from None


def read_size(oid: str) -> int:
    try:
        return int(_git("cat-file", "-s", oid))
    except subprocess.CalledProcessError:
        raise KeyError(oid) from None


def _parent_trees() -> tuple[str, ...]:
    """Of the commit before, and of the one that is being merged in."""
    found = []
    for name in ("HEAD^{tree}", "MERGE_HEAD^{tree}"):
        argv = ["git", "rev-parse", "-q", "--verify", name]
        asked = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, timeout=30)
        if asked.returncode == 0:
            found.append(asked.stdout.decode().strip())
    return tuple(found)


def main(*, shared: bool) -> int:
    """0 when the index may become a commit, 1 with the reasons on stderr when not."""
    from lodger_tools.validator.commit import locked_findings
    from lodger_tools.validator.tree import TreeValidator

    trees, tree = TreeValidator(read_object, read_size, shared=shared), _git("write-tree").decode().strip()
    findings = (*trees.validate(tree).findings, *locked_findings(tree, _parent_trees(), trees))
    for finding in findings:
        sys.stderr.write(f"memory: {finding}\n")
    return 1 if findings else 0


if __name__ == "__main__":
    _make_importable()
    try:
        sys.exit(main(shared="--shared" in sys.argv[1:]))
    except (OSError, subprocess.SubprocessError) as fault:
        sys.stderr.write(f"memory: not looked at before the commit: {fault}\n")
