"""The validator on trees made of plain bytes."""

import pytest

from lodger_tools.validator.agent_toml import AgentFile, BadAgentFile, read_agent_toml, write_agent_toml
from lodger_tools.validator.commit import validate_commit
from lodger_tools.validator.findings import Rule
from lodger_tools.validator.front_matter import FrontMatter, read_front_matter
from lodger_tools.validator.limits import Limits
from lodger_tools.validator.objects import BadObject, parse_commit, parse_tree
from lodger_tools.validator.tree import Layout, TreeReport, TreeValidator

NOTE = b"---\nname: n\ndescription: d\n---\ntext\n"
BASE: dict[str, object] = {"MEMORY.md": b"# Memory\n", "about.md": NOTE}


class Objects:
    """Trees from nested dicts; a value may be (mode, content)."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[str, bytes]] = {}
        self.reads = 0

    def add(self, kind: str, content: bytes) -> str:
        oid = f"{len(self.stored):040x}"
        for known, held in self.stored.items():
            if held == (kind, content):
                return known
        self.stored[oid] = (kind, content)
        return oid

    def tree(self, files: dict[str, object]) -> str:
        data = b""
        for name, value in files.items():
            mode, oid = b"100644", ""
            if isinstance(value, dict):
                mode, oid = b"40000", self.tree(value)
            elif isinstance(value, tuple):
                mode, oid = value[0], self.add("blob", value[1])
            else:
                assert isinstance(value, bytes)
                oid = self.add("blob", value)
            data += mode + b" " + name.encode("utf-8", "surrogateescape") + b"\0" + bytes.fromhex(oid)
        return self.add("tree", data)

    def read(self, oid: str) -> tuple[str, bytes]:
        self.reads += 1
        return self.stored[oid]

    def size(self, oid: str) -> int:
        return len(self.stored[oid][1])


def report(files: dict[str, object], limits: Limits | None = None) -> TreeReport:
    objects = Objects()
    tree = objects.tree(files)
    return TreeValidator(objects.read, objects.size, limits or Limits()).validate(tree)


def found(files: dict[str, object], limits: Limits | None = None) -> list[tuple[str, Rule]]:
    return [(finding.path, finding.rule) for finding in report(files, limits).findings]


@pytest.mark.parametrize(
    "extra",
    [
        {"people": {"MEMORY.md": b"index", "ada.md": NOTE}},
        {"skills": {"dig": {"SKILL.md": NOTE, "run.sh": (b"100755", b"#!/bin/sh"), "ref": {"x.md": b"free"}}}},
        {"agent.toml": b'name = "Ada"\n'},
        {"größe.md": NOTE},
        {"crlf.md": NOTE.replace(b"\n", b"\r\n")},
    ],
)
def test_good_trees(extra: dict[str, object]) -> None:
    assert found(BASE | extra) == []


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"plain.md": b"no front"}, ("plain.md", Rule.FRONT_MATTER)),
        ({"MEMORY.md": NOTE}, ("MEMORY.md", Rule.FRONT_MATTER)),
        ({"x.md": b"---\nname: n\ndescription: d\nlimit: 3\n---\n"}, ("x.md", Rule.FRONT_MATTER)),
        ({"x.md": b"---\nname: n\ndescription: d\n"}, ("x.md", Rule.FRONT_MATTER)),
        ({"x.md": b"---\nname: n\n---\n"}, ("x.md", Rule.FRONT_MATTER)),
        ({"x.md": b"\xff\xfe"}, ("x.md", Rule.FRONT_MATTER)),
        ({"a": {"b": {"x.md": b"no"}}}, ("a/b/x.md", Rule.FRONT_MATTER)),
        ({"skills": {"flat.md": NOTE}}, ("skills/flat.md", Rule.STRUCTURE)),
        ({"link": (b"120000", b"/etc/passwd")}, ("link", Rule.MODE)),
        ({"sub": (b"160000", b"x")}, ("sub", Rule.MODE)),
        ({"x": (b"100664", b"x")}, ("x", Rule.MODE)),
        ({".gitattributes": b"* filter=x"}, (".gitattributes", Rule.NAME)),
        ({".gitmodules": b""}, (".gitmodules", Rule.NAME)),
        ({"a": {".GITattributes": b""}}, ("a/.GITattributes", Rule.NAME)),
        ({"GIT~1": b""}, ("GIT~1", Rule.NAME)),
        ({"nul.txt": b""}, ("nul.txt", Rule.NAME)),
        ({"COM¹": b""}, ("COM¹", Rule.NAME)),
        ({"a:b": b""}, ("a:b", Rule.NAME)),
        ({"a\\b": b""}, ("a\\b", Rule.NAME)),
        ({"dot.": b""}, ("dot.", Rule.NAME)),
        ({"sp ": b""}, ("sp ", Rule.NAME)),
        ({"a\nb": b""}, ("a\\nb", Rule.NAME)),
        ({"a\u202eb": b""}, ("a\\u202eb", Rule.NAME)),
        ({"u\u0308.txt": b""}, ("u\u0308.txt", Rule.NAME)),
        ({"\udcff.txt": b""}, ("\\xff.txt", Rule.NAME)),
        ({"ABOUT.md": NOTE}, ("about.md", Rule.NAME)),
        ({"stra\u00dfe": b"", "strasse": b""}, ("strasse", Rule.NAME)),
        ({"agent.toml": b'name = "A"\nrules = []\n'}, ("agent.toml", Rule.AGENT_TOML)),
    ],
)
def test_bad_trees(extra: dict[str, object], expected: tuple[str, Rule]) -> None:
    files = {**extra, **{name: value for name, value in BASE.items() if name not in extra}}
    assert expected in found(files)


def test_limits_hold() -> None:
    small = Limits(files=3, file_bytes=10, markdown_bytes=60, core_bytes=50, depth=1, path_bytes=20, tree_bytes=100)
    assert found(BASE, small) == []
    assert ("", Rule.SIZE) in found(BASE | {"more.md": NOTE}, small)
    assert ("big", Rule.SIZE) in found(BASE | {"big": b"x" * 11}, small)
    assert ("a/b/c", Rule.NAME) in found(BASE | {"a": {"b": {"c": b""}}}, small)
    assert ("", Rule.SIZE) in found(BASE | {str(number): b"" for number in range(9)}, small)


def test_missing_index_and_missing_objects() -> None:
    assert found({"about.md": NOTE}) == [("MEMORY.md", Rule.STRUCTURE)]
    objects = Objects()
    tree = objects.add("tree", b"100644 MEMORY.md\0" + b"\x77" * 20)
    validator = TreeValidator(objects.read, objects.size)
    assert [finding.rule for finding in validator.validate(tree).findings] == [Rule.OBJECT]
    assert [finding.rule for finding in validator.validate("f" * 40).findings] == [Rule.OBJECT]


def test_v1_is_read() -> None:
    v1 = {"system": {"me.md": b"---\ndescription: d\nread_only: true\n---\nx"}, "note.md": b"free"}
    seen = report(v1)
    assert (seen.layout, seen.findings, seen.read_only) == (Layout.V1, (), ("system/me.md",))
    assert found({"system": {"me.md": b"---\ndescription: d\ncolour: red\n---\n"}}) == [
        ("system/me.md", Rule.FRONT_MATTER)
    ]


def test_one_changed_file_reads_few_objects() -> None:
    objects = Objects()
    folders = {f"f{number}": {f"{note}.md": NOTE for note in range(20)} for number in range(20)}
    validator = TreeValidator(objects.read, objects.size)
    assert validator.validate(objects.tree(BASE | folders)).findings == ()
    changed = folders | {"f3": folders["f3"] | {"5.md": NOTE + b"more\n"}}
    tree = objects.tree(BASE | changed)
    objects.reads = 0
    assert validator.validate(tree).files == 402
    assert objects.reads < 30


def commit(objects: Objects, tree: str, **changes: str) -> bytes:
    parts = {"author": "A <a@b> 1700000000 +0000", "extra": "", "message": "m\n"} | changes
    head = f"tree {tree}\nauthor {parts['author']}\ncommitter C <c@d> 1700000000 +0100{parts['extra']}"
    return f"{head}\n\n{parts['message']}".encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"author": "\x1b[31mA <a@b> 1700000000 +0000"},
        {"author": "A <a@b> 10000000000000 +0000"},
        {"author": "A <a@b> 1700000000 +9900"},
        {"author": "A <a@b> soon +0000"},
        {"extra": "\nencoding utf-7"},
        {"message": "a\0b"},
        {"message": "x" * 70_000},
    ],
)
def test_bad_commits(changes: dict[str, str]) -> None:
    objects = Objects()
    tree = objects.tree(BASE)
    trees = TreeValidator(objects.read, objects.size)
    assert validate_commit(commit(objects, tree), (), trees) == ()
    assert [finding.rule for finding in validate_commit(commit(objects, tree, **changes), (), trees)] == [Rule.COMMIT]


@pytest.mark.parametrize(
    ("after", "paths"),
    [
        ({"about.md": NOTE}, []),
        ({"about.md": NOTE + b"x"}, ["about.md"]),
        ({}, ["about.md"]),
        ({"moved.md": NOTE}, ["about.md"]),
        ({"about.md": NOTE, "agent.toml": b'name = "A"\n'}, [""]),
        ({"about.md": NOTE + b"x", "agent.toml": b'name = "A"\nread_only = ["dir"]\n'}, ["", "about.md"]),
    ],
)
def test_read_only_holds_through_edits_deletes_and_renames(after: dict[str, object], paths: list[str]) -> None:
    objects = Objects()
    toml = b'name = "A"\nread_only = ["about.md"]\n'
    parent = objects.tree({"MEMORY.md": b"i", "about.md": NOTE, "agent.toml": toml})
    tree = objects.tree({"MEMORY.md": b"i", "agent.toml": toml} | after)
    trees = TreeValidator(objects.read, objects.size)
    findings = validate_commit(commit(objects, tree), (parent,), trees)
    assert [(finding.path, finding.rule) for finding in findings] == [(path, Rule.READ_ONLY) for path in paths]


def test_a_merge_may_take_a_locked_path_from_either_parent() -> None:
    objects = Objects()
    toml = b'name = "A"\nread_only = ["about.md"]\n'
    one = objects.tree({"MEMORY.md": b"i", "about.md": NOTE, "agent.toml": toml})
    other = objects.tree({"MEMORY.md": b"i", "about.md": NOTE + b"person", "agent.toml": toml})
    trees = TreeValidator(objects.read, objects.size)
    assert validate_commit(commit(objects, other), (one, other), trees) == ()
    assert validate_commit(commit(objects, other), (one,), trees) != ()


def test_front_matter() -> None:
    assert read_front_matter("text") == FrontMatter(None, "text")
    assert read_front_matter('---\nname: "a"\ndescription: b: c\n---\n\nbody') == FrontMatter(
        {"name": "a", "description": "b: c"}, "body"
    )
    assert read_front_matter("---\na: b\n  c\n---").fields == {"a": "b c"}
    assert read_front_matter("---\nx").faults != ()
    assert read_front_matter("---\nno colon\n---\n").faults != ()


def test_agent_file_round_trip() -> None:
    agent = AgentFile('A "q"\\', "line\nline \x7f".replace("\x7f", ""), "p/m", "set", ("a/b.md",))
    assert read_agent_toml(write_agent_toml(agent)) == agent
    for bad in (
        b"",
        b"name = 3",
        b'name="a"\nread_only=["../x"]',
        b'name="a"\nendpoint="http://x"',
        b"\xff",
        b"x" * 20_000,
    ):
        assert isinstance(read_agent_toml(bad), BadAgentFile)


def test_parsers_refuse_cut_bytes() -> None:
    objects = Objects()
    tree = objects.stored[objects.tree(BASE)][1]
    whole = commit(objects, "0" * 40)
    for cut in range(1, len(tree)):
        try:
            parse_tree(tree[:cut])
        except BadObject:
            pass
    for cut in range(len(whole)):
        try:
            parse_commit(whole[:cut])
        except BadObject:
            pass
