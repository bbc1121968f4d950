"""Which changes of a repository's `.git/config` an agent may make: those that everyday work makes and that cannot run
a program or send what is pushed elsewhere. Everything that is not listed here is refused.

Keys are spelled as `git config --list -z` spells them: git has parsed the file, so no second parser can disagree.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

Settings: TypeAlias = Mapping[str, tuple[str, ...]]
"""Key to values, in the order of the file."""

HARMLESS: Final = frozenset(
    """
    user.name user.email author.name author.email committer.name committer.email
    init.defaultbranch pull.rebase pull.ff push.default push.autosetupremote push.followtags
    fetch.prune fetch.prunetags rebase.autostash rebase.autosquash rebase.updaterefs rebase.stat
    merge.conflictstyle merge.ff merge.log merge.renames rerere.enabled rerere.autoupdate
    diff.algorithm diff.renames diff.colormoved diff.mnemonicprefix diff.noprefix diff.context
    log.date log.follow log.decorate log.abbrevcommit status.short status.branch status.showuntrackedfiles
    branch.sort branch.autosetupmerge branch.autosetuprebase tag.sort commit.verbose commit.cleanup
    column.ui color.ui color.diff color.status color.branch
    core.autocrlf core.eol core.safecrlf core.filemode core.ignorecase core.quotepath core.logallrefupdates
    core.precomposeunicode core.abbrev core.whitespace core.compression core.preloadindex core.untrackedcache
    gc.auto gc.autodetach index.version
    """.split()  # noqa: SIM905 - a page of words, read as one
)
"""Any value. `color.pager` and `core.excludesfile` are close by and not here: they start programs or name files."""

_REMOTE_FLAGS: Final = frozenset(("prune", "prunetags", "skipdefaultupdate"))
_TAG_OPTIONS: Final = frozenset(("--tags", "--no-tags"))
_REBASE_VALUES: Final = frozenset(("true", "false", "merges", "interactive"))
_BOOLEANS: Final = frozenset(("true", "false", ""))
_ADDRESS: Final = re.compile(
    r"(?:https|ssh|git)://[A-Za-z0-9_\[][^\s\\]*|(?:[A-Za-z0-9_.-]+@)?[A-Za-z0-9_][A-Za-z0-9_.-]*:(?!:|//)[^\s\\]+"
)
"""A host's. Not `http`, a path or `file:` (git runs the hooks of what it pushes to on this machine), nor `NAME::…`,
which starts the program git-remote-NAME."""
_FETCH: Final = re.compile(r"\+?refs/heads/[^\s:]+:refs/remotes/[^\s:]+")
_BRANCH_REF: Final = re.compile(r"refs/(?:heads|tags)/\S+")
_AS_MADE: Final = (("core.repositoryformatversion", "0"), ("core.bare", "false"), ("core.symlinks", "false"))
EMPTY_CONFIG: Final = b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n"


class UnreadableListing(ValueError):
    """Not what `git config --list -z` writes."""


def parse_listing(listing: bytes) -> dict[str, tuple[str, ...]]:
    """Raises: UnreadableListing."""
    if listing and not listing.endswith(b"\0"):
        raise UnreadableListing("the listing of git's settings ends in the middle")
    settings: dict[str, list[str]] = {}
    for entry in listing.split(b"\0")[:-1]:
        key, _, value = entry.decode("utf-8", "surrogateescape").partition("\n")
        if "." not in key:
            raise UnreadableListing("the listing of git's settings has an entry without a name")
        settings.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in settings.items()}


def refused_changes(before: Settings, after: Settings, once_tracked: Settings) -> tuple[str, ...]:
    """The keys whose change has to be asked about, in order; empty when everything is harmless.

    Args:
        once_tracked: `tracked` of every earlier state, so that a branch cannot be led elsewhere in two steps.
    """
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    known = {**once_tracked, **before}
    return tuple(key for key in changed if not _is_harmless(key, known, after))


def tracked(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Which remote each branch is pushed to."""
    return {key: values for key, values in settings.items() if key.startswith("branch.") and key.endswith(".remote")}


def as_made(after: Settings) -> dict[str, tuple[str, ...]]:
    """What of the settings of a new repository git itself wrote: with these nothing was there before."""
    return {key: (value,) for key, value in _AS_MADE if after.get(key) == (value,)}


def _is_harmless(key: str, before: Settings, after: Settings) -> bool:
    section, _, rest = key.partition(".")
    name, _, variable = rest.rpartition(".")
    if not name:
        return key in HARMLESS
    values = after.get(key, ())
    match section:
        case "branch":
            return _branch_is_harmless(variable, before.get(key, ()), values, before, after)
        case "remote":
            return _remote_is_harmless(name, variable, values, before)
        case "submodule":
            return _submodule_is_harmless(name, variable, values, before)
        case _:
            return False


def _branch_is_harmless(
    variable: str, old: tuple[str, ...], values: tuple[str, ...], before: Settings, after: Settings
) -> bool:
    match variable:
        case "remote":
            # An address or a path can stand here as well as a remote's name. A branch that was tracked goes on being
            # pushed where it was, or to another remote that was there before.
            known = remotes(before) if old else remotes(after)
            return all(value == "." or value in known for value in values)
        case "merge":
            return all(_BRANCH_REF.fullmatch(value) for value in values)
        case "rebase":
            return all(value.lower() in _REBASE_VALUES for value in values)
        case "description":
            return True
        case _:
            return False


def _remote_is_harmless(name: str, variable: str, values: tuple[str, ...], before: Settings) -> bool:
    """A remote that was there before stays as it is; nor may a new one take a name that branches already push to."""
    if name in remotes(before) or not values:
        return False
    if any(name in before[key] for key in before if key.startswith("branch.") or key == "remote.pushdefault"):
        return False
    match variable:
        case "url":
            return len(values) == 1 and _ADDRESS.fullmatch(values[0]) is not None
        case "fetch":
            return all(_FETCH.fullmatch(value) for value in values)
        case "tagopt":
            return all(value in _TAG_OPTIONS for value in values)
        case _:
            return variable in _REMOTE_FLAGS and all(value.lower() in _BOOLEANS for value in values)


def _submodule_is_harmless(name: str, variable: str, values: tuple[str, ...], before: Settings) -> bool:
    match variable:
        case "active":
            return all(value.lower() in _BOOLEANS for value in values)
        case "url":
            fresh = f"submodule.{name}.url" not in before
            return fresh and len(values) == 1 and _ADDRESS.fullmatch(values[0]) is not None
        case _:
            return False


def remotes(settings: Settings) -> frozenset[str]:
    """The names of all remotes that have any setting."""
    return frozenset(
        key[len("remote.") :].rpartition(".")[0] for key in settings if key.count(".") > 1 and key.startswith("remote.")
    )
