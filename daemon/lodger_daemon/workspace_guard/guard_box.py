"""The work of the guard inside a box that sees nothing but one repository.

git runs there on bytes it is handed, outside of any repository, so nothing that an agent wrote is run.
"""

from collections.abc import Mapping
from typing import Final

from lodger_daemon.randomness import Rng
from lodger_daemon.service.folder_boxes import PERSON
from lodger_sandbox.core.git_config import UnreadableListing, parse_listing
from lodger_tools.box.contract import (
    BoxCall,
    Boxes,
    BoxKey,
    BoxLost,
    BoxOutcome,
    BoxProfile,
    BoxUnavailable,
    RunProgram,
)

LIMIT_S: Final = 20.0
LISTING_LIMIT_BYTES: Final = 4 * 1024 * 1024

_LIST: Final = ("git", "config", "--file", "-", "--list", "-z", "--no-includes")
_WRITE: Final = """
cd -- "$1/.git" || exit 3
umask 022
set -C
fresh=lodger-config.$$
rm -rf "$fresh"
cat > "$fresh" || exit 4
[ -d config ] && [ ! -L config ] && rm -rf config
mv -fT "$fresh" config
"""
_DISARM: Final = """
cd -- "$1/.git" || exit 3
[ -L hooks ] && rm hooks
for name in hooks/* commondir config.worktree; do
  case $name in *.sample | *.refused) continue ;; esac
  [ -e "$name" ] || [ -L "$name" ] || continue
  mv -fT "$name" "$name.refused" && printf '%s\\0' "$name"
done
exit 0
"""


class CannotGuard(Exception):
    """The box did not do what was asked; the text says why."""


class GuardBox:
    """For one workspace; `aclose` ends the box. Every method raises CannotGuard."""

    def __init__(self, boxes: Boxes, workspace: str, rng: Rng) -> None:
        self._boxes = boxes
        self._key = BoxKey(PERSON, workspace, BoxProfile.GUARD)
        self._rng = rng

    async def settings(self, content: bytes) -> dict[str, tuple[str, ...]] | None:
        """What git reads in these bytes; None when it cannot read them."""
        outcome = await self._run(_LIST, content)
        if outcome.exit_code is None:
            raise CannotGuard(outcome.text or "git could not be started")
        try:
            return parse_listing(outcome.data) if outcome.exit_code == 0 else None
        except UnreadableListing:
            return None

    async def write(self, content: bytes) -> None:
        outcome = await self._run(("/bin/sh", "-c", _WRITE, "sh", self._key.workspace), content)
        if outcome.exit_code != 0:
            raise CannotGuard(outcome.text or "the configuration could not be written")

    async def disarm(self) -> tuple[str, ...]:
        """Rename what git outside a box would run in a repository that nobody guarded yet; the old names."""
        outcome = await self._run(("/bin/sh", "-c", _DISARM, "sh", self._key.workspace), b"")
        if outcome.exit_code != 0:
            raise CannotGuard(outcome.text or "the hooks could not be looked at")
        return tuple(name for name in outcome.data.decode("utf-8", "replace").split("\0") if name)

    async def aclose(self) -> None:
        await self._boxes.end(self._key)

    async def _run(self, argv: tuple[str, ...], stdin: bytes) -> BoxOutcome:
        program = RunProgram(argv, stdin, LIMIT_S, LISTING_LIMIT_BYTES)
        try:
            return await self._boxes.run(self._key, BoxCall(f"guard/{self._rng.uuid()}", program, "/", _PLAIN))
        except (BoxUnavailable, BoxLost) as error:
            raise CannotGuard(str(error)) from error


_PLAIN: Final[Mapping[str, str]] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CEILING_DIRECTORIES": "/",
}
