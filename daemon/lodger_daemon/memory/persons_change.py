"""A person's change of one file: one validated commit on published main. Blocking; call under the agent's lock."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from lodger_daemon.memory.core.commits import Identity, new_commit
from lodger_daemon.memory.core.pack import object_id
from lodger_daemon.memory.core.trees import tree_data
from lodger_daemon.memory.core.wanted_paths import BadRequest, wanted_path
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.published import MAIN, Published
from lodger_tools.validator.commit import validate_commit
from lodger_tools.validator.findings import Finding
from lodger_tools.validator.objects import MODE_FILE, MODE_FOLDER, Entry, parse_tree
from lodger_tools.validator.tree import TreeValidator

PERSON: Final = Identity("person", "person@lodger.invalid")


@dataclass(frozen=True, slots=True)
class Committed:
    sha: str


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The file is like that already, or is not there to be deleted."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """Nothing was published."""

    findings: tuple[Finding, ...]


ChangeResult: TypeAlias = Committed | Unchanged | Invalid


def change_file(
    published: Published, head: str, path: str, content: bytes | None, message: str, now_s: int
) -> ChangeResult:
    """Write (or with None delete) one file. Main moves by compare-and-swap once everything is stored.

    What agents may not change, a person may: `read_only` binds agents.
    Raises: BadRequest; RefMoved, GitFailed.
    """
    names = wanted_path(path)
    base = published.commit(head).tree
    objects: dict[str, tuple[str, bytes]] = {}
    tree = _changed_tree(published, base, names, content, objects)
    if tree is None:
        raise BadRequest("the last file of a memory cannot be deleted")
    if tree == base:
        return Unchanged()
    commit = new_commit(tree, (head,), PERSON.line(now_s), published.identity.line(now_s), f"{message.strip()}\n")

    def read(oid: str) -> tuple[str, bytes]:
        return objects.get(oid) or published.reader.read(oid)

    def size(oid: str) -> int:
        return len(objects[oid][1]) if oid in objects else published.reader.size(oid)

    findings = validate_commit(commit, (), TreeValidator(read, size, known=published.trees))
    if findings:
        return Invalid(findings)
    published.write([*objects.values(), ("commit", commit)])
    sha = object_id("commit", commit)
    published.change_refs(RefChange(MAIN, sha, head))
    return Committed(sha)


def _changed_tree(
    published: Published,
    tree: str | None,
    names: tuple[str, ...],
    content: bytes | None,
    objects: dict[str, tuple[str, bytes]],
) -> str | None:
    """The id of the tree with the change in it; its new objects are added. None when nothing is left of it.

    Args:
        tree: None for a folder that is not there yet.
    """
    entries = () if tree is None else parse_tree(published.reader.read(tree)[1])
    raw = names[0].encode()
    known = next((entry for entry in entries if entry.name == raw), None)
    made = _changed_entry(published, known, raw, names, content, objects)
    if made == known:
        return tree
    others = [entry for entry in entries if entry.name != raw]
    kept = [*others, *(() if made is None else (made,))]
    if not kept:
        return None
    return _keep(objects, "tree", tree_data(kept))


def _changed_entry(
    published: Published,
    known: Entry | None,
    raw: bytes,
    names: tuple[str, ...],
    content: bytes | None,
    objects: dict[str, tuple[str, bytes]],
) -> Entry | None:
    if len(names) > 1:
        if known is not None and known.mode != MODE_FOLDER:
            raise BadRequest(f"{names[0]} is a file, so nothing can stand in it")
        below = None if known is None else known.oid
        oid = _changed_tree(published, below, names[1:], content, objects)
        return None if oid is None else Entry(MODE_FOLDER, raw, oid)
    if known is not None and known.mode == MODE_FOLDER:
        raise BadRequest(f"{names[0]} is a folder")
    if content is None:
        return None
    return Entry(MODE_FILE if known is None else known.mode, raw, _keep(objects, "blob", content))


def _keep(objects: dict[str, tuple[str, bytes]], kind: str, data: bytes) -> str:
    oid = object_id(kind, data)
    objects[oid] = (kind, data)
    return oid
