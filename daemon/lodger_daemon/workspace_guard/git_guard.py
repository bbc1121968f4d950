"""Watching the repositories of workspaces: what git outside a box would run is put back and asked about.

The file is compared as bytes after each call; only when they differ does a box of its own find out what they mean. A
change between two calls, while nothing of an agent ran, is the person's and is approved as it is.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from lodger_daemon.randomness import Rng
from lodger_daemon.workspace_guard.approved import Approved, ApprovedFiles
from lodger_daemon.workspace_guard.contract import Audit, GitAsker
from lodger_daemon.workspace_guard.guard_box import CannotGuard, GuardBox
from lodger_sandbox.core.git_config import EMPTY_CONFIG, Settings, as_made, refused_changes, tracked
from lodger_sandbox.core.policy import PathKind
from lodger_sandbox.git_entries import ConfigSeen, NestedRepositories, look_at_config
from lodger_sandbox.sources import kind_of
from lodger_tools.box.contract import Boxes, BoxKey, BoxUnavailable

WRITE_TRIES: Final = 3
TOLD_KEYS: Final = 20
TOLD_REPOSITORIES: Final = 10
VALUE_CHARS: Final = 200
S = TypeVar("S")
T = TypeVar("T")
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Watch:
    """One workspace. Changed only under its lock, but for `calls` and `doubtful`."""

    nested: NestedRepositories
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    calls: int = 0
    doubtful: bool = False
    """A call ended without a comparison, so that what differs may be an agent's."""
    approved: Approved | None = None
    repositories: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)


class GitGuard:
    """Event loop only."""

    def __init__(
        self,
        boxes: Boxes,
        folder: Path,
        rng: Rng,
        audit: Audit,
    ) -> None:
        """
        Args:
            folder: where what was approved is kept; no box may see it.
            audit: is told of each change that was put back or allowed.
        """
        self._boxes = boxes
        self._files = ApprovedFiles(folder)
        self._rng = rng
        self._audit = audit
        self._asker: GitAsker | None = None
        self._watches: dict[str, _Watch] = {}

    def let_ask(self, asker: GitAsker) -> None:
        """From now on the person is asked; until then what is refused is only put back."""
        self._asker = asker

    async def begin(self, key: BoxKey, beside: Callable[[], T]) -> T:
        """Before a call that can change files: what `beside` saw. `end` or `lose` must follow.

        Args:
            beside: another look at the box, of some 0.1 ms, taken on the loop while a thread looks at the repository.
                It is taken again where there was more to do, such as to ask a person.

        Raises: BoxUnavailable when what was approved cannot be kept; then nothing may run.
        """
        watch = self._watch(key.workspace)
        async with watch.lock:
            try:
                seen = await self._open(key, watch, beside)
            except OSError as error:
                raise BoxUnavailable(f"What was approved of .git/config cannot be kept: {error}.") from error
            watch.calls += 1
            return seen

    async def end(self, key: BoxKey, beside: Callable[[], T], *, begun: bool = True) -> tuple[str, T]:
        """After such a call: what the model has to know of it, empty when there is nothing; and what `beside` saw.

        Args:
            begun: false for a call that an earlier daemon began, or one that was left to run.
        """
        watch = self._watch(key.workspace)
        watch.calls -= begun
        seen = await self._settle(key, watch, beside)
        notes, watch.notes = watch.notes, []
        return "".join(f"\n[{note}]" for note in notes), seen

    async def look(self, key: BoxKey) -> None:
        """While a command goes on that is typed into: what there is to say is said with the next result."""
        await self._settle(key, self._watch(key.workspace), lambda: None)

    async def _settle(self, key: BoxKey, watch: _Watch, beside: Callable[[], T]) -> T:
        watch.doubtful = True  # until it has been compared, also when this is cancelled
        async with watch.lock:
            rests = not watch.calls and not self._goes_on(key.workspace)
            seen, seen_beside = await _both(partial(self._look, watch, key.workspace, rests), beside)
            if seen is None:
                watch.doubtful = False
                return seen_beside
            await self._compare(key, watch, seen)
            if rests and not watch.doubtful:
                await asyncio.to_thread(self._files.mark_closed, key.workspace)
            return seen_beside

    def lose(self, key: BoxKey) -> None:
        """Such a call ended in a way that leaves no time to look: the next call is not begun before it is judged."""
        watch = self._watch(key.workspace)
        watch.calls -= 1
        watch.doubtful = True

    def _watch(self, workspace: str) -> _Watch:
        if workspace not in self._watches:
            self._watches[workspace] = _Watch(NestedRepositories(workspace))
        return self._watches[workspace]

    def _goes_on(self, workspace: str) -> bool:
        return any(
            box.key.workspace == workspace and (box.leftovers or box.background) for box in self._boxes.statuses()
        )

    async def _open(self, key: BoxKey, watch: _Watch, beside: Callable[[], T]) -> T:
        """Raises: OSError."""
        if watch.calls:
            return beside()
        opened, seen_beside = await _both(partial(self._look_and_open, watch, key.workspace), beside)
        seen, known, left_open = opened
        if watch.doubtful or left_open or self._goes_on(key.workspace):
            await self._compare(key, watch, seen)
        elif known is None or known.content != seen.content:
            await self._approve(key, watch, Approved(seen.content, known.once_tracked if known else {}))
        else:
            return seen_beside
        # A person may have been asked meanwhile, for a minute.
        return beside()

    def _look_and_open(self, watch: _Watch, workspace: str) -> tuple[ConfigSeen, Approved | None, bool]:
        """In a thread. What is there, what was approved, and whether an earlier daemon was killed in between."""
        left_open = False
        if watch.approved is None:
            left_open = self._files.is_open(workspace)
            watch.approved = self._files.load(workspace)
            watch.repositories = watch.nested.look()
        self._files.mark_open(workspace)
        return look_at_config(workspace), watch.approved, left_open

    def _look(self, watch: _Watch, workspace: str, rests: bool) -> ConfigSeen | None:
        """In a thread, and in one turn: after most calls nothing has changed. None then."""
        watch.notes += _new_repositories(watch)
        seen = look_at_config(workspace)
        if watch.approved is None or seen.strange or seen.content != watch.approved.content:
            return seen
        if rests:
            self._files.mark_closed(workspace)
        return None

    async def _approve(self, key: BoxKey, watch: _Watch, approved: Approved) -> None:
        """Raises: OSError."""
        watch.approved = approved
        await asyncio.to_thread(self._files.save, key.workspace, approved)

    async def _compare(self, key: BoxKey, watch: _Watch, seen: ConfigSeen) -> None:
        if watch.approved is None:
            watch.approved = await asyncio.to_thread(self._files.load, key.workspace) or Approved(seen.content)
        if not seen.strange and seen.content == watch.approved.content:
            watch.doubtful = False
            return
        watch.doubtful = True
        box = GuardBox(self._boxes, key.workspace, self._rng)
        try:
            await self._judge(key, watch, watch.approved, seen, box)
            watch.doubtful = False
        except (CannotGuard, OSError) as error:
            _LOG.warning("the configuration of %s could not be judged: %s", key.workspace, error)
            watch.notes.append(
                f".git/config changed and could not be checked ({error}); use no git outside a box here."
            )
        finally:
            await box.aclose()

    async def _judge(self, key: BoxKey, watch: _Watch, approved: Approved, seen: ConfigSeen, box: GuardBox) -> None:
        """Raises: CannotGuard."""
        if await asyncio.to_thread(kind_of, f"{key.workspace}/.git") is PathKind.MISSING:
            await self._approve(key, watch, Approved(None, approved.once_tracked))
            return
        if approved.content is None and await self._is_new(key, watch, box):
            return
        old = await box.settings(approved.content or b"") or {}
        new = None if seen.content is None else await box.settings(seen.content)
        if new is not None and approved.content is None:
            old = as_made(new)
        once = {**approved.once_tracked, **tracked(old)}
        refused = ("the file itself",) if new is None else refused_changes(old, new, once)
        if refused:
            await self._put_back(key, approved.content or EMPTY_CONFIG, box)
            if new is None or seen.content is None or not await self._allowed(key, refused, new):
                kept = approved.content or EMPTY_CONFIG
                await self._approve(key, watch, Approved(kept, once))
                watch.notes.append(_put_back_words(refused))
                self._audit.note(key, "put_back", ", ".join(refused))
                return
            await box.write(seen.content)
            self._audit.note(key, "allowed", ", ".join(refused))
        assert new is not None and seen.content is not None
        await self._approve(key, watch, Approved(seen.content, {**once, **tracked(new)}))

    async def _is_new(self, key: BoxKey, watch: _Watch, box: GuardBox) -> bool:
        """Look at a repository that was not there before. True when there is nothing that can be guarded."""
        kind = await asyncio.to_thread(kind_of, f"{key.workspace}/.git")
        if kind is not PathKind.FOLDER:
            watch.notes.append(f".git was made here as a {kind.value}; it cannot be guarded, so remove it.")
            return True
        disarmed = await box.disarm()
        if disarmed:
            watch.notes.append(
                f"In the new .git these were renamed, so that nothing outside runs them: {', '.join(disarmed)}."
            )
            self._audit.note(key, "put_back", ", ".join(disarmed))
        if not watch.calls and not self._goes_on(key.workspace):
            # The next one binds what it protects.
            await self._boxes.end(key)
        return False

    async def _put_back(self, key: BoxKey, content: bytes, box: GuardBox) -> None:
        """Raises: CannotGuard when it is changed again each time."""
        for _ in range(WRITE_TRIES):
            await box.write(content)
            if (await asyncio.to_thread(look_at_config, key.workspace)).content == content:
                return
        raise CannotGuard("a program goes on changing it")

    async def _allowed(self, key: BoxKey, refused: Sequence[str], new: Settings) -> bool:
        if self._asker is None:
            return False
        changes: Mapping[str, str] = {name: _shown(new.get(name, ())) for name in refused}
        return await self._asker.ask_about_git(key, changes) is True


async def _both(in_thread: Callable[[], S], beside: Callable[[], T]) -> tuple[S, T]:
    """Two looks at once: the thread's start and end take as long as either."""
    looking = asyncio.get_running_loop().run_in_executor(None, in_thread)
    seen = beside()
    return await looking, seen


def _new_repositories(watch: _Watch) -> list[str]:
    found = watch.nested.look()
    fresh = sorted(found - watch.repositories)
    watch.repositories = found
    if not fresh:
        return []
    named = ", ".join(fresh[:TOLD_REPOSITORIES]) + (" and more" if len(fresh) > TOLD_REPOSITORIES else "")
    return [f"New git repositories below the workspace, which nothing guards: {named}."]


def _put_back_words(refused: Sequence[str]) -> str:
    named = ", ".join(refused[:TOLD_KEYS])
    return (
        f".git/config was put back as it was before: {named} may run programs or lead git elsewhere, and nobody "
        "allowed that. Harmless settings of the same command are gone too; set them again by themselves."
    )


def _shown(values: Sequence[str]) -> str:
    return ", ".join(values)[:VALUE_CHARS]
