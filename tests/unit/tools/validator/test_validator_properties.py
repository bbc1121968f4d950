"""Trees and bytes made at random: what is clean is safe everywhere, and what was remembered changes no verdict."""

import hashlib
import subprocess
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_tools.validator.agent_toml import AgentFile, BadAgentFile, read_agent_toml, write_agent_toml
from lodger_tools.validator.commit import validate_commit
from lodger_tools.validator.findings import Rule
from lodger_tools.validator.front_matter import read_front_matter
from lodger_tools.validator.limits import Limits
from lodger_tools.validator.tree import Layout, TreeValidator

NOTE = b"---\nname: n\ndescription: d\n---\ntext\n"
V1_NOTE = b"---\ndescription: d\n---\ntext\n"
LOCKED = b"---\ndescription: d\nread_only: true\n---\ntext\n"
TOML = b'name = "Ada"\n'
FILE, PROGRAM, LINK, MODULE = b"100644", b"100755", b"120000", b"160000"
SMALL = Limits(files=12, tree_bytes=2000, file_bytes=120, markdown_bytes=120, core_bytes=150, depth=3, path_bytes=24)

Folder: TypeAlias = "Mapping[str, Folder | tuple[bytes, bytes]]"
"""Names to folders, or to mode and content."""

PLAIN = ["MEMORY.md", "a.md", "A.md", "b.md", "notes", "Notes", "system", "reference", "skills", "SKILL.md", "dig"]
ODD = ["straße", "STRASSE", "é.md", "e\u0301.md", "ﬁ", "fi", "con", "aux.md", ".git", ".GIT", ".g\u200cit", "git~1"]
ODD += [".gitmodules", ".gitattributes", "a:b", "x.", " x", "a\\b", "\x1b.md", "\ud800.md", "..", "a\nb"]
NAMES = st.sampled_from([*PLAIN, *ODD, "agent.toml", "run.sh", "long-name-of-a-note.md"])
GOOD_NAMES = st.sampled_from(["a.md", "b.md", "notes", "system", "reference", "skills", "dig", "SKILL.md", "MEMORY.md"])
CONTENTS = st.sampled_from([NOTE, V1_NOTE, LOCKED, TOML, b"", b"index\n", b"\xff\xfe", b"x" * 130, NOTE + b"y" * 60])
FILES = st.tuples(st.sampled_from([FILE, FILE, FILE, FILE, PROGRAM, LINK, MODULE, b"100664"]), CONTENTS)
GOOD_FILES = st.tuples(st.just(FILE), st.sampled_from([NOTE, V1_NOTE, LOCKED, b"index\n"]))


def folders(names: st.SearchStrategy[str], files: st.SearchStrategy[tuple[bytes, bytes]]) -> st.SearchStrategy[Folder]:
    return st.recursive(
        st.dictionaries(names, files, min_size=1, max_size=5),
        lambda inner: st.dictionaries(names, inner | files, min_size=1, max_size=5),
        max_leaves=12,
    )


ANY = folders(NAMES, FILES)
LIKELY = st.builds(lambda tree: {"MEMORY.md": (FILE, b"index\n"), **tree}, folders(GOOD_NAMES, GOOD_FILES)) | folders(
    GOOD_NAMES, GOOD_FILES
)


NOTES = st.dictionaries(
    st.sampled_from(["a.md", "b.md", "c.md", "d.md"]), st.sampled_from([NOTE, NOTE + b"more\n"]), max_size=4
)


class Objects:
    """Git objects by their real ids."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[str, bytes]] = {}

    def add(self, kind: str, content: bytes) -> str:
        oid = hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()
        self.stored[oid] = (kind, content)
        return oid

    def tree(self, folder: Folder) -> str:
        entries = []
        for name, value in folder.items():
            raw = name.encode("utf-8", "surrogatepass")
            if isinstance(value, tuple):
                entries.append((raw, value[0], self.add("blob", value[1])))
            else:
                entries.append((raw + b"/", b"40000", self.tree(value)))
        data = b"".join(
            mode + b" " + raw.rstrip(b"/") + b"\0" + bytes.fromhex(oid) for raw, mode, oid in sorted(entries)
        )
        return self.add("tree", data)

    def validator(self, limits: Limits = SMALL) -> TreeValidator:
        return TreeValidator(self.stored.__getitem__, lambda oid: len(self.stored[oid][1]), limits)


def leaves(folder: Folder, prefix: str = "") -> Iterator[tuple[str, bytes, bytes]]:
    for name, value in folder.items():
        if isinstance(value, tuple):
            yield prefix + name, *value
        else:
            yield from leaves(value, f"{prefix}{name}/")


def every_folder(folder: Folder) -> Iterator[Folder]:
    yield folder
    for value in folder.values():
        if not isinstance(value, tuple):
            yield from every_folder(value)


def is_core(path: str, layout: Layout) -> bool:
    return path.startswith("system/") if layout is Layout.V1 else "/" not in path


@given(st.lists(ANY | LIKELY, min_size=2, max_size=4), st.data())
@settings(max_examples=400, deadline=None)
def test_what_is_remembered_changes_no_verdict(trees: list[Folder], data: st.DataObject) -> None:
    objects = Objects()
    warm = objects.validator()
    parts = [part for tree in trees for part in every_folder(tree)]
    for tree in trees:
        # Folders that were seen elsewhere come again at other places.
        again = data.draw(st.dictionaries(GOOD_NAMES, st.sampled_from(parts), max_size=2))
        for one in (tree, {**tree, **again}, {"notes": {"dig": {**tree, **again}}}):
            oid = objects.tree(one)
            assert warm.validate(oid) == objects.validator().validate(oid)


@given(ANY | LIKELY)
@settings(max_examples=400, deadline=None)
def test_what_is_clean_fits_every_file_system_and_every_limit(tree: Folder) -> None:
    objects = Objects()
    report = objects.validator().validate(objects.tree(tree))
    if report.findings:
        return
    found = list(leaves(tree))
    assert {mode for _, mode, _ in found} <= {FILE, PROGRAM}
    assert len(found) == report.files <= SMALL.files
    assert sum(len(content) for _, _, content in found) == report.size_bytes <= SMALL.tree_bytes
    core = [content for path, _, content in found if path.endswith(".md") and is_core(path, report.layout)]
    assert sum(map(len, core)) == report.core_bytes <= SMALL.core_bytes
    assert all(len(path.encode()) <= SMALL.path_bytes and path.count("/") <= SMALL.depth for path, _, _ in found)
    for folder in every_folder(tree):
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            alike = {unicodedata.normalize(form, unicodedata.normalize(form, name).casefold()) for name in folder}
            assert len(alike) == len(folder)
        for name in folder:
            assert name.isprintable()
            assert not name.casefold().startswith((".git", "git~"))
            assert not set(name) & set('\\/:*?"<>|')


def test_the_same_notes_count_where_they_are_core() -> None:
    """What was read in a folder that is not core is not taken for read in one that is."""
    notes: Folder = {f"{number}.md": (FILE, V1_NOTE) for number in range(3)}
    objects = Objects()
    for tree in ({"system": notes, "reference": notes}, {"system": notes}):
        report = objects.validator().validate(objects.tree(tree))
        assert (report.findings, report.core_bytes) == ((), 3 * len(V1_NOTE))
    warm = objects.validator()
    warm.validate(objects.tree({"system": {"a.md": (FILE, V1_NOTE)}, "reference": notes}))
    assert warm.validate(objects.tree({"system": notes})).core_bytes == 3 * len(V1_NOTE)


@given(LIKELY)
@settings(max_examples=25, deadline=None)
def test_git_agrees_that_what_is_clean_is_whole(tree: Folder) -> None:
    objects = Objects()
    oid = objects.tree(tree)
    if objects.validator(Limits()).validate(oid).findings:
        return
    with tempfile.TemporaryDirectory() as place:
        for kind, content in objects.stored.values():
            run(place, "hash-object", "-t", kind, "-w", "--stdin", stdin=content)
        run(place, "fsck", "--strict", "--full")
        run(place, "read-tree", "-u", "--reset", oid)
        written = {path.relative_to(place).as_posix() for path in Path(place).rglob("*") if path.is_file()}
        assert {path for path in written if not path.startswith(".git/")} == {path for path, _, _ in leaves(tree)}


def run(place: str, *argv: str, stdin: bytes = b"") -> None:
    environment = {"PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}
    if not Path(place, ".git").exists():
        subprocess.run(["git", "init", "-q", place], env=environment, check=True)
    subprocess.run(["git", "-C", place, *argv], input=stdin, env=environment, check=True, capture_output=True)


@given(st.binary(max_size=200), st.binary(max_size=200), st.sampled_from(["tree", "blob", "commit"]))
@settings(max_examples=400, deadline=None)
def test_no_bytes_raise(first: bytes, second: bytes, kind: str) -> None:
    objects = Objects()
    inner = objects.add(kind, first)
    outer = objects.add(
        "tree", b"40000 notes\0" + bytes.fromhex(inner) + b"100644 x.md\0" + bytes.fromhex(inner) + second
    )
    validator = objects.validator()
    for oid in (inner, outer, "0" * 40):
        report = validator.validate(oid)
        assert len(report.findings) <= SMALL.findings
    header = b"tree " + outer.encode() + b"\nauthor " + first + b"\ncommitter " + second + b"\n\n" + first
    for data in (first, header, b"tree " + first):
        assert validate_commit(data, (outer,), validator)
    read_front_matter(first.decode("utf-8", "replace"))
    assert isinstance(read_agent_toml(first), AgentFile | BadAgentFile)


@given(NOTES, NOTES, st.sets(st.sampled_from(["a.md", "b.md", "c.md", "d.md", "notes/a.md", "notes"])))
@settings(max_examples=200, deadline=None)
def test_locked_paths_stay_as_they_are(before: dict[str, bytes], after: dict[str, bytes], locked: set[str]) -> None:
    objects = Objects()
    toml = write_agent_toml(AgentFile("Ada", read_only=tuple(sorted(locked))))

    def memory(files: dict[str, bytes]) -> Folder:
        notes: Folder = {name: (FILE, content) for name, content in files.items()}
        return {"MEMORY.md": (FILE, b"i\n"), "agent.toml": (FILE, toml), **notes, **({"notes": notes} if notes else {})}

    parent, tree = objects.tree(memory(before)), objects.tree(memory(after))
    line = b"A <a@b> 1700000000 +0000"
    data = b"tree " + tree.encode() + b"\nauthor " + line + b"\ncommitter " + line + b"\n\nm\n"
    found = validate_commit(data, (parent,), objects.validator(Limits()))

    def changed(path: str) -> bool:
        if path == "notes":
            return before != after
        name = path.removeprefix("notes/")
        return before.get(name) != after.get(name)

    assert [(one.path, one.rule) for one in found] == [
        (path, Rule.READ_ONLY) for path in sorted(locked) if changed(path)
    ]
