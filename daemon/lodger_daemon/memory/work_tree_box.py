"""What runs in a writer's box at its end. Whatever the writer planted in its tree runs there, where it could run it
anyway; what is said is held against the form of a commit's id, and what comes out is validated."""

import re
from dataclasses import dataclass
from typing import Final

from lodger_tools.box.contract import BoxCall, Boxes, BoxKey, RunProgram

_SAID_LIMIT_BYTES: Final = 4096
_LIMIT_S: Final = 60.0
_GATHERED: Final = re.compile(r"gathered ([0-9a-f]{40}) ([0-9a-f]{40})")

_GATHER: Final = r"""
set -u
cd "$1" 2>/dev/null || { echo no_folder; exit 0; }
committed=$(git rev-parse -q --verify 'HEAD^{commit}') || { echo failed there is no commit; exit 0; }
rm -f .git/index.lock
left=no
for name in rebase-merge rebase-apply sequencer MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD; do
    [ ! -e ".git/$name" ] || left=unfinished
done
if [ "$left" = no ]; then
    # Notes that were written and not committed are worth as much as the others; scripts that made them are not.
    git add -u >/dev/null 2>&1
    git ls-files -o -z --exclude-standard -- '*.md' 2>/dev/null | xargs -0 -r git add -- >/dev/null 2>&1
    git diff --cached --quiet 2>/dev/null \
        || git commit -q --no-verify -m "Left uncommitted by the writer" >/dev/null 2>&1
fi
echo "gathered $committed $(git rev-parse -q --verify 'HEAD^{commit}')"
"""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Commits of a writer's tree."""

    committed: str
    """What the writer committed itself."""
    whole: str
    """With the notes on top that it left uncommitted; the same commit when there are none."""


async def gather(boxes: Boxes, box: BoxKey, tree: str, call_key: str) -> Gathered | None:
    """Commit what was left, and name the commits; None when the tree holds no usable repository.

    Raises: BoxUnavailable, BoxLost.
    """
    argv = ("/bin/sh", "-c", _GATHER, "sh", tree)
    program = RunProgram(argv, b"", _LIMIT_S, _SAID_LIMIT_BYTES)
    outcome = await boxes.run(box, BoxCall(call_key, program, cwd="/"))
    said = outcome.data.decode("utf-8", "replace").strip().splitlines()
    match = _GATHERED.fullmatch(said[-1]) if said else None
    return None if match is None else Gathered(match[1], match[2])
