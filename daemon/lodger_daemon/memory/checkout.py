"""The checkout of one agent, reached through its box only. Nothing here opens a path of it."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import Final

from lodger_daemon.memory.checkout_scripts import INSTALL, PRE_PUSH, RECEIVE, UPDATE, pre_commit
from lodger_daemon.memory.core.commits import Identity
from lodger_daemon.memory.core.pack import IN_PARTS, objects_in
from lodger_daemon.memory.errors import TooLargeForABox
from lodger_daemon.randomness import Rng
from lodger_tools.box.contract import BoxCall, Boxes, BoxKey, BoxOutcome, ReadHead, RunProgram
from lodger_tools.validator.findings import Finding, Rule

_PACK_LIMIT_BYTES: Final = 64 * 1024 * 1024
_STATUS_LIMIT_BYTES: Final = 64 * 1024
_SCRIPT_LIMIT_S: Final = 60.0
_STAYS_PACKED: Final = 100
"""As git's own limit for what it unpacks into single files."""
_PACK_ARGV: Final = ("pack-objects", "--revs", "--stdout", "-q", "--window=0", "--no-reuse-delta", "--threads=1")


class CheckoutWord(StrEnum):
    """What a script inside answered; anything it should not say counts as failed."""

    INSTALLED = "installed"
    PRESENT = "present"
    RECEIVED = "received"
    UPDATED = "updated"
    MOVED = "moved"
    BUSY = "busy"
    IN_THE_WAY = "in_the_way"
    NO_FOLDER = "no_folder"
    FAILED = "failed"
    TOO_LARGE = "too_large"
    """Never said by a script: it was not started."""


class NoPack(Enum):
    """Why there is none."""

    UNREADABLE = auto()
    """The box could not say."""
    TOO_LARGE = auto()
    """More was committed than is taken at once."""


TOO_LARGE_AT_ONCE: Final = Finding(
    "", Rule.SIZE, f"more than {_PACK_LIMIT_BYTES:,} bytes, compressed, at once: {IN_PARTS}"
)


@dataclass(frozen=True, slots=True)
class CheckoutAnswer:
    word: CheckoutWord
    detail: str = ""


def make_checkout_folder(place: Path, owner: tuple[int, int] | None) -> None:
    """An empty one for the boxes' user, unless there is one already. Blocking. Raises: OSError."""
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        return
    if owner is not None:
        os.chown(place, *owner)


class Checkout:
    """Raises, from every method: BoxUnavailable, BoxLost.

    Args:
        shared: whether it is of a memory that agents share.
    """

    def __init__(self, boxes: Boxes, inside: str, agent_id: str, rng: Rng, *, shared: bool = False) -> None:
        self._shared = shared
        self.inside = inside
        self._boxes = boxes
        self.agent_id = agent_id
        self._rng = rng

    async def head(self, box: BoxKey) -> str | None:
        """The commit of the checkout's main; empty before the first one, None when there is no usable repository."""
        outcome = await self._run(box, ReadHead(self.inside))
        if outcome.status != "success":
            return None
        text = outcome.text.strip()
        return text if (len(text) == 40 and text.isalnum()) or not text else None

    async def pack(self, box: BoxKey, new: str, known: tuple[str, ...]) -> bytes | NoPack:
        """What `new` brings beyond `known`."""
        revisions = "".join(f"{oid}\n" for oid in (new, *(f"^{oid}" for oid in known)))
        program = RunProgram(
            ("git", "-C", self.inside, *_PACK_ARGV), revisions.encode(), stdout_limit_bytes=_PACK_LIMIT_BYTES
        )
        outcome = await self._run(box, program)
        if outcome.details.get("too_large"):
            return NoPack.TOO_LARGE
        return outcome.data if outcome.exit_code == 0 else NoPack.UNREADABLE

    async def dirty(self, box: BoxKey) -> tuple[str, ...]:
        """Paths with uncommitted changes; empty also when git could not say."""
        argv = ("git", "-C", self.inside, "status", "--porcelain", "-z", "--untracked-files=normal", "--no-renames")
        outcome = await self._run(box, RunProgram(argv, timeout_s=20.0, stdout_limit_bytes=_STATUS_LIMIT_BYTES))
        if outcome.exit_code != 0:
            return ()
        records = outcome.data.decode("utf-8", "replace").split("\0")
        return tuple(_plain(record[3:]) for record in records if len(record) > 3)

    async def install(
        self, box: BoxKey, commit: str, packs: AsyncIterator[bytes], identity: Identity
    ) -> CheckoutAnswer:
        """Make the repository with `commit`; a half-made one from a crash is finished."""
        following = (identity.name, identity.email, pre_commit(self._shared), PRE_PUSH)

        async def send(pack: bytes, last: bool) -> CheckoutAnswer:
            return await self._script(box, INSTALL, (commit if last else "", *following), pack)

        return await _send_each(packs, send)

    async def receive(self, box: BoxKey, packs: AsyncIterator[bytes], theirs: str = "") -> CheckoutAnswer:
        """Bring objects in; with `theirs`, name that commit as the other side of a conflict."""

        async def send(pack: bytes, last: bool) -> CheckoutAnswer:
            stays = "packed" if objects_in(pack) >= _STAYS_PACKED else ""
            return await self._script(box, RECEIVE, (theirs if last else "", stays), pack)

        return await _send_each(packs, send)

    async def update(self, box: BoxKey, old: str, new: str, added: tuple[str, ...]) -> CheckoutAnswer:
        """From `old` to `new`, whose objects are there, if nothing of the agent's stands in the way.

        Args:
            added: paths that `new` has and `old` has not; ignored files there would be overwritten unseen.
        """
        stdin = "".join(f"{path}\0" for path in added).encode()
        return await self._script(box, UPDATE, (old, new), stdin)

    async def _script(self, box: BoxKey, script: str, arguments: tuple[str, ...], stdin: bytes) -> CheckoutAnswer:
        argv = ("/bin/sh", "-c", script, "sh", self.inside, *arguments)
        outcome = await self._run(box, RunProgram(argv, stdin, _SCRIPT_LIMIT_S, _STATUS_LIMIT_BYTES))
        said = outcome.data.decode("utf-8", "replace").strip().splitlines()
        word, _, detail = (said[-1] if said else "").partition(" ")
        try:
            known = CheckoutWord(word)
            return CheckoutAnswer(
                CheckoutWord.FAILED if known is CheckoutWord.TOO_LARGE else known, _plain(detail[:500])
            )
        except ValueError:
            return CheckoutAnswer(CheckoutWord.FAILED, _plain(outcome.text[-300:]))

    async def _run(self, box: BoxKey, operation: ReadHead | RunProgram) -> BoxOutcome:
        key = f"memory/{self.agent_id}/{self._rng.uuid()}"
        return await self._boxes.run(box, BoxCall(key, operation, cwd="/"))


async def _send_each(
    packs: AsyncIterator[bytes], send: Callable[[bytes, bool], Awaitable[CheckoutAnswer]]
) -> CheckoutAnswer:
    """The answer to the last one, or to the first that was not received.

    Args:
        send: called with a pack, and whether it is the last.
    """
    answer = CheckoutAnswer(CheckoutWord.FAILED, "there is nothing to send")
    try:
        async for pack, last in _marking_the_last(packs):
            answer = await send(pack, last)
            if answer.word is not CheckoutWord.RECEIVED:
                return answer
    except TooLargeForABox as fault:
        return CheckoutAnswer(CheckoutWord.TOO_LARGE, str(fault))
    return answer


async def _marking_the_last(packs: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, bool]]:
    before: bytes | None = None
    async for pack in packs:
        if before is not None:
            yield before, False
        before = pack
    if before is not None:
        yield before, True


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
