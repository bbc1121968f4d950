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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO


def _make_importable() -> None:
    """Give this folder its package name, although nothing else of the package is there."""
    for name, search in (("lodger_tools", []), ("lodger_tools.validator", [str(Path(__file__).parent)])):
        if name not in sys.modules:
            module = types.ModuleType(name)
            module.__path__ = search
            sys.modules[name] = module


def _git(*argv: str) -> bytes:
    return subprocess.run(["git", *argv], stdout=subprocess.PIPE, check=True, timeout=30).stdout


class Objects:
    """The objects of the checkout, from gits that are asked over and over: to start one for each file of a large memory
    would take minutes."""

    def __init__(self) -> None:
        self._kept: dict[str, subprocess.Popen[bytes]] = {}

    def read(self, oid: str) -> tuple[str, bytes]:
        """Raises: KeyError."""
        kind, size, said = self._ask("--batch", oid)
        return kind, said.read(size + 1)[:size]

    def size(self, oid: str) -> int:
        """Raises: KeyError."""
        return self._ask("--batch-check", oid)[1]

    def close(self) -> None:
        for git in self._kept.values():
            git.communicate(timeout=30)

    def _ask(self, how: str, oid: str) -> "tuple[str, int, IO[bytes]]":
        git = self._kept.get(how)
        if git is None:
            git = subprocess.Popen(["git", "cat-file", how], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._kept[how] = git
        assert git.stdin is not None
        assert git.stdout is not None
        git.stdin.write(oid.encode() + b"\n")
        git.stdin.flush()
        words = git.stdout.readline().split()
        if len(words) != 3:
            raise KeyError(oid)
        return words[1].decode(), int(words[2]), git.stdout


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

    objects, tree = Objects(), _git("write-tree").decode().strip()
    trees = TreeValidator(objects.read, objects.size, shared=shared)
    findings = (*trees.validate(tree).findings, *locked_findings(tree, _parent_trees(), trees))
    objects.close()
    for finding in findings:
        sys.stderr.write(f"memory: {finding}\n")
    return 1 if findings else 0


if __name__ == "__main__":
    _make_importable()
    try:
        sys.exit(main(shared="--shared" in sys.argv[1:]))
    except (OSError, subprocess.SubprocessError) as fault:
        sys.stderr.write(f"memory: not looked at before the commit: {fault}\n")
