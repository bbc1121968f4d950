"""From a pack that came out of a box to a moved `main`: scan, validate, store, replay if needed, compare and swap."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from lodger_daemon.memory.core.commits import author_of, new_commit
from lodger_daemon.memory.core.pack import BadPack, PackLimits, object_id, scan_pack
from lodger_daemon.memory.errors import GitFailed
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.published import CHECKOUT, FETCHED, MAIN, Published
from lodger_daemon.memory.replay import ReplayConflict, replay
from lodger_tools.validator.commit import validate_commit
from lodger_tools.validator.findings import Finding, Rule
from lodger_tools.validator.objects import BadObject, parse_commit
from lodger_tools.validator.tree import TreeValidator

PACK_LIMITS: Final = PackLimits()
_OBJECTS_REFUSED: Final = re.compile(
    r"fsck error|reachable objects|cannot find object|object type mismatch|unresolved|not a valid object|bad object|"
    r"did not receive expected object|child objects|unexpected type|invalid commit|invalid tree",
    re.IGNORECASE,
)
"""What git says when the objects themselves are at fault."""


@dataclass(frozen=True, slots=True)
class Imported:
    """Main moved."""

    head: str
    commits: int
    replayed: bool
    """They went on top of commits from elsewhere, so the checkout is to be brought along."""
    joined: bool = False
    """Some of them were not valid but the last one was: they became one commit."""


@dataclass(frozen=True, slots=True)
class NotValid:
    """Nothing was published."""

    tip: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Diverged:
    """The agent's commits do not fit on what came from elsewhere. They are kept on a ref of their own."""

    tip: str
    onto: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NothingNew:
    """The branch went back to something published, or stayed."""


ImportResult: TypeAlias = Imported | NotValid | Diverged | NothingNew


def import_pack(published: Published, pack: bytes, tip: str, now_s: int) -> ImportResult:
    """Publish what a checkout's main gained. Call under the lock.

    After a crash at any moment main is where it was or where it should be, and calling again does the rest.
    """
    try:
        objects = scan_pack(pack, PACK_LIMITS)
    except BadPack as error:
        return NotValid(tip, (Finding("", Rule.OBJECT, str(error)),))
    incoming = Incoming(published, objects)
    new: list[str] | Finding | NothingNew = incoming.new_commits(tip) if tip in objects else []
    if not new:
        new = _known_tip(published, tip)
    match new:
        case NothingNew():
            return new
        case Finding() as finding:
            return NotValid(tip, (finding,))
        case commits:
            return _publish(published, incoming, pack, tip, commits, now_s)


def _known_tip(published: Published, tip: str) -> list[str] | Finding | NothingNew:
    """A branch that points at something the box had no need to send."""
    if not published.has_commit(tip):
        return Finding("", Rule.OBJECT, "the commit itself is missing from what the box sent")
    main = published.head()
    if main is not None and published.is_ancestor(tip, main):
        published.set_ref(CHECKOUT, tip)
        return NothingNew()
    return [tip]


def _publish(
    published: Published, incoming: "Incoming", pack: bytes, tip: str, new: Sequence[str], now_s: int
) -> ImportResult:
    by_commit = [incoming.findings(commit) for commit in new]
    findings = by_commit[-1] or incoming.locked_findings(tip)
    if findings:
        return NotValid(tip, findings)
    if tip in incoming.objects and (refused := store_from_outside(published, pack)):
        return NotValid(tip, (refused,))
    joined = any(by_commit)
    base = published.ref(CHECKOUT) or published.head()
    publish = join_commits(published, incoming, new, base, now_s) if joined else tip
    continues = not joined and incoming.continues_main(tip)
    return _move(published, publish, tip, len(new), joined, continues, now_s)


def store_from_outside(published: Published, pack: bytes) -> Finding | None:
    """Store the objects, or say what git has against them.

    Raises: GitFailed for what says nothing about them, as a full disk: storing them may be tried again.
    """
    try:
        published.add_objects(pack)
    except GitFailed as error:
        if not _OBJECTS_REFUSED.search(error.stderr):
            raise
        return Finding("", Rule.OBJECT, f"git refuses it: {error.stderr.strip()[-200:]}")
    return None


class Incoming:
    """The objects of one pack that came out of a box, with the published ones behind them."""

    def __init__(self, published: Published, objects: dict[str, tuple[str, bytes]]) -> None:
        self._published = published
        self.objects = objects
        self.trees = TreeValidator(self.read, self.size, known=published.trees)

    def read(self, oid: str) -> tuple[str, bytes]:
        return self.objects.get(oid) or self._published.reader.read(oid)

    def size(self, oid: str) -> int:
        known = self.objects.get(oid)
        return len(known[1]) if known is not None else self._published.reader.size(oid)

    def new_commits(self, tip: str) -> list[str] | Finding:
        """Commits of the pack that are not published yet, parents first, or why there is no such list."""
        order: list[str] = []
        state: dict[str, bool] = {}
        stack = [tip]
        published = self._already_published()
        while stack:
            oid = stack[-1]
            if state.get(oid):
                stack.pop()
                continue
            known = self.objects.get(oid)
            if oid in published or (known is None and self._published.has_commit(oid)):
                state[oid] = True
                continue
            if known is None or known[0] != "commit":
                return Finding("", Rule.OBJECT, f"the commit {oid[:12]} is missing from what the box sent")
            try:
                parents = parse_commit(known[1]).parents
            except BadObject as error:
                return Finding("", Rule.COMMIT, str(error))
            if oid in state:
                state[oid] = True
                order.append(oid)
                continue
            state[oid] = False
            stack += [parent for parent in parents if parent not in state]
        return order

    def stands_on(self, new: Sequence[str]) -> frozenset[str]:
        """The published commits that these name as parents."""
        parents = {parent for commit in new for parent in parse_commit(self.read(commit)[1]).parents}
        return frozenset(parents.difference(new))

    def findings(self, commit: str) -> tuple[Finding, ...]:
        """Of one commit by itself: locked paths are held against what is published, not against its parents."""
        return validate_commit(self.read(commit)[1], (), self.trees)

    def locked_findings(self, tip: str) -> tuple[Finding, ...]:
        """What the tip does to locked paths. A merge may take over what another machine published."""
        main, fetched = self._published.head(), self._published.ref(FETCHED)
        if main is None:
            return ()
        data = self.read(tip)[1]
        findings = validate_commit(data, (self._published.commit(main).tree,), self.trees)
        if not findings or fetched is None or fetched not in self._ancestors(tip):
            return findings
        bases = (self._published.commit(main).tree, self._published.commit(fetched).tree)
        return validate_commit(data, bases, self.trees)

    def continues_main(self, tip: str) -> bool:
        """True when the pack alone shows it, which is the usual case and saves a git."""
        return self._published.head() in self._ancestors(tip)

    def _ancestors(self, tip: str) -> frozenset[str]:
        """The tip's new commits and the published ones they stand on directly."""
        found: set[str] = set()
        stack = [tip]
        while stack:
            oid = stack.pop()
            if oid not in found:
                found.add(oid)
                known = self.objects.get(oid)
                stack += parse_commit(known[1]).parents if known is not None else ()
        return frozenset(found)

    def message(self, commit: str) -> str:
        return parse_commit(self.read(commit)[1]).message.decode("utf-8", "replace").strip()

    def _already_published(self) -> frozenset[str]:
        """Asked only when the pack holds more than the box was asked for."""
        starts = [oid for oid in (self._published.head(), self._published.ref(FETCHED)) if oid is not None]
        if not any(oid in self.objects for oid in starts):
            return frozenset()
        return frozenset(self._published.git.line("rev-list", *starts).split())


def join_commits(published: Published, incoming: Incoming, new: Sequence[str], base: str | None, now_s: int) -> str:
    """One commit on `base` with the last one's content and everybody's message."""
    raw = incoming.read(new[-1])[1]
    message = "\n\n".join(incoming.message(commit) for commit in new) + "\n"
    parents = (base,) if base is not None else ()
    joined = new_commit(
        parse_commit(raw).tree, parents, author_of(raw), published.identity.line(now_s), message[-60_000:]
    )
    published.write([("commit", joined)])
    return object_id("commit", joined)


def _move(
    published: Published, publish: str, tip: str, count: int, joined: bool, continues: bool, now_s: int
) -> ImportResult:
    main, seen = published.head(), published.ref(CHECKOUT)
    head = publish
    if main is not None and not continues and not published.is_ancestor(main, publish):
        result = replay(published, main, publish, seen, now_s)
        if isinstance(result, ReplayConflict):
            published.set_ref(f"refs/lodger/pending/{tip[:16]}", tip)
            return Diverged(tip, main, result.paths)
        head = result.head
        # Two valid states can make an invalid one, such as names that differ in letter case only.
        findings = validate_commit(published.reader.read(head)[1], (published.commit(main).tree,), published.trees)
        if findings:
            return NotValid(tip, findings)
    published.change_refs(RefChange(MAIN, head, main), RefChange(CHECKOUT, tip, seen))
    return Imported(head, count, head != tip, joined)


def _listed(findings: tuple[Finding, ...]) -> str:
    return "\n".join(f"- {finding}" for finding in findings[:12])


def words_for(result: ImportResult, place: str, subject: str) -> str:
    """What joins the result of the tool call."""
    match result:
        case NothingNew():
            return ""
        case Imported(joined=True) as done:
            return (
                f"{subject}: published as one commit ({done.head[:12]}), because an earlier one of your {done.commits}"
                " new commits was not valid; the last one is."
            )
        case Imported() as done:
            return (
                f"{subject}: {done.commits} new commit{'s' if done.commits > 1 else ''} published ({done.head[:12]})."
            )
        case NotValid(findings=findings):
            return (
                f"{subject}: your commit is NOT published, because:\n{_listed(findings)}\nMend this in {place} and"
                " commit again; the mended state counts."
            )
        case Diverged(paths=paths):
            return (
                f"{subject}: your commit is kept but not published: newer commits from elsewhere change the same"
                f" places ({', '.join(paths[:12])}). Run `git merge refs/lodger/theirs` in {place}, keep what is true"
                " of both, and commit."
            )
