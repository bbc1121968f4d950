"""One commit and its parents' trees to findings: the decision whether it may be published."""

from collections.abc import Iterator, Sequence
from typing import Final

from lodger_tools.validator.findings import Finding, Rule
from lodger_tools.validator.limits import DEFAULT_LIMITS, Limits
from lodger_tools.validator.objects import BadObject, Commit, Signature, parse_commit
from lodger_tools.validator.tree import TreeValidator

_EARLIEST_S: Final = 0
_LATEST_S: Final = 4_102_444_800
"""The year 2100. Beyond it some tools overflow; a clock that is merely wrong stays inside."""
_ENCODINGS: Final = frozenset({"utf-8", "utf8", "latin-1", "iso-8859-1", "iso8859-1", "iso-8859-15", "windows-1252"})


def commit_findings(commit: Commit, limits: Limits = DEFAULT_LIMITS) -> tuple[Finding, ...]:
    """What is wrong with the commit's own header and message."""
    return tuple(_commit_faults(commit, limits))


def validate_commit(
    data: bytes, parent_trees: Sequence[str], trees: TreeValidator, limits: Limits = DEFAULT_LIMITS
) -> tuple[Finding, ...]:
    """All findings for a commit, empty when it may be published.

    Args:
        data: the commit object's content.
        parent_trees: the trees against which locked paths are held; give none to leave `read_only` unchecked (for
            commits that another machine has already published).
        trees: reads this commit's objects and the published ones.
    """
    try:
        commit = parse_commit(data)
    except BadObject as error:
        return (Finding("", Rule.COMMIT, str(error)),)
    report = trees.validate(commit.tree)
    locked = locked_findings(commit.tree, parent_trees, trees)
    return (*commit_findings(commit, limits), *report.findings, *locked)[: limits.findings]


def locked_findings(tree: str, parent_trees: Sequence[str], trees: TreeValidator) -> tuple[Finding, ...]:
    """What a tree does to paths that its parents' trees lock; nothing without parents."""
    return tuple(_read_only_faults(tree, trees.validate(tree).read_only, parent_trees, trees))


def _commit_faults(commit: Commit, limits: Limits) -> Iterator[Finding]:
    for who, signature in (("author", commit.author), ("committer", commit.committer)):
        if not _sane(signature):
            yield Finding("", Rule.COMMIT, f"the {who} has control characters, an empty name or an impossible date")
    if commit.encoding is not None and commit.encoding.lower() not in _ENCODINGS:
        yield Finding("", Rule.COMMIT, "the message has an encoding that is not known here")
    if len(commit.message) > limits.message_bytes:
        yield Finding("", Rule.COMMIT, f"the message is longer than {limits.message_bytes} bytes")
    if b"\0" in commit.message or b"\x1b" in commit.message:
        yield Finding("", Rule.COMMIT, "the message has control characters")


def _sane(signature: Signature) -> bool:
    text = signature.name + signature.email
    zone = signature.zone
    return (
        bool(signature.name.strip())
        and all(char.isprintable() for char in text)
        and len(text) <= 500
        and _EARLIEST_S <= signature.at_s < _LATEST_S
        and len(zone) == 5
        and zone[0] in "+-"
        and zone[1:].isdigit()
        and int(zone[1:]) <= 1400
    )


def _read_only_faults(
    tree: str, read_only: tuple[str, ...], parent_trees: Sequence[str], trees: TreeValidator
) -> Iterator[Finding]:
    """A locked path is the same as in one of the parents, and what is locked does not change."""
    if not parent_trees:
        return
    locked_by_parents = [frozenset(trees.validate(parent).read_only) for parent in parent_trees]
    if frozenset(read_only) not in locked_by_parents:
        yield Finding("", Rule.READ_ONLY, "which paths are read_only is the person's to say: leave that list as it is")
    for path in sorted(frozenset().union(*locked_by_parents)):
        now = trees.lookup(tree, path)
        if all(trees.lookup(parent, path) != now for parent in parent_trees):
            yield Finding(path, Rule.READ_ONLY, "is read_only: it may not be changed, renamed or deleted")
