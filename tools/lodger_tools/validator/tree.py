"""A memory's tree: its files, its layout, and what is wrong with it.

Clean folders are remembered by (tree id, role), so that a commit that changed one file costs three objects.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from lodger_tools.validator.agent_toml import AGENT_TOML, BadAgentFile, read_agent_toml
from lodger_tools.validator.findings import Finding, Rule, printable
from lodger_tools.validator.front_matter import read_front_matter
from lodger_tools.validator.limits import DEFAULT_LIMITS, Limits
from lodger_tools.validator.names import fold, name_fault
from lodger_tools.validator.objects import (
    MODE_FILE,
    MODE_FOLDER,
    MODE_PROGRAM,
    BadObject,
    Entry,
    ReadObject,
    ReadSize,
    parse_tree,
)

INDEX: Final = "MEMORY.md"
_V1_KEYS: Final = frozenset({"description", "read_only", "limit"})
_V2_KEYS: Final = frozenset({"name", "description"})
_MAX_REMEMBERED: Final = 20_000
"""Clean folders; some 200 bytes each."""


class Layout(StrEnum):
    """BEHAVIOUR.md F1. A repository keeps the layout it has; new ones are v2."""

    V1 = "v1"
    V2 = "v2"


class _Role(StrEnum):
    """Which rules hold in a folder."""

    V1_ROOT = "v1_root"
    V1_CORE = "v1_core"
    V1_REFERENCE = "v1_reference"
    V1_FREE = "v1_free"
    V2_ROOT = "v2_root"
    V2_NOTES = "v2_notes"
    SKILLS = "skills"
    SKILL = "skill"
    SKILL_FREE = "skill_free"


_V1_PROMPT: Final = frozenset({_Role.V1_CORE, _Role.V1_REFERENCE})


@dataclass(slots=True)
class _Sum:
    """What a folder adds up to."""

    files: int = 0
    size_bytes: int = 0
    core_bytes: int = 0
    longest_bytes: int = 0
    """Of the paths in it, as they read from here."""
    depth: int = 0
    """Folders between it and its deepest file."""
    read_only: list[str] = field(default_factory=list)
    """Paths below this folder that v1 front matter locks."""
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TreeReport:
    """A tree as a whole."""

    layout: Layout
    findings: tuple[Finding, ...]
    files: int
    size_bytes: int
    core_bytes: int
    read_only: tuple[str, ...]


class TreeValidator:
    """Validates trees of one repository. Not for two threads at once.

    Args:
        read: gives objects, of this commit or already published.
        size: tells a blob's size, so that large files that need no look inside are not read.
        known: shares its clean verdicts and is of the same role; must have the same limits.
        shared: whether several agents share this memory: then it is about none of them, and nobody locks a path of it.
    """

    def __init__(
        self,
        read: ReadObject,
        size: ReadSize,
        limits: Limits = DEFAULT_LIMITS,
        known: "TreeValidator | None" = None,
        *,
        shared: bool = False,
    ) -> None:
        self._shared: bool = shared or (known is not None and known._shared)
        self._read = read
        self._size = size
        self._limits = limits
        # A verdict on a tree id holds wherever the objects come from.
        self._clean: dict[tuple[str, _Role], _Sum] = known._clean if known is not None else {}

    def validate(self, tree: str) -> TreeReport:
        """Everything that is wrong with a tree. Never raises for what the tree holds."""
        entries = self._entries(tree)
        if isinstance(entries, Finding):
            return TreeReport(Layout.V2, (entries,), 0, 0, 0, ())
        layout = layout_of(entries)
        total = self._folder(tree, _Role.V1_ROOT if layout is Layout.V1 else _Role.V2_ROOT, "")
        findings = [*total.findings]
        names = {entry.name for entry in entries}
        read_only = list(total.read_only)
        if layout is Layout.V2 and INDEX.encode() not in names:
            findings.append(Finding(INDEX, Rule.STRUCTURE, "the index MEMORY.md is missing"))
        if self._shared and total.read_only:
            findings.append(Finding(total.read_only[0], Rule.STRUCTURE, "no file of a shared memory may be read_only"))
        if self._shared and AGENT_TOML.encode() in names:
            findings.append(Finding(AGENT_TOML, Rule.STRUCTURE, "a shared memory describes no agent"))
        read_only += self._agent_toml(entries)
        findings += self._whole(total)
        return TreeReport(
            layout,
            tuple(sorted(set(findings))[: self._limits.findings]),
            total.files,
            total.size_bytes,
            total.core_bytes,
            tuple(sorted(read_only)),
        )

    def lookup(self, tree: str, path: str) -> tuple[bytes, str] | None:
        """Mode and id of what stands at `path`, or None."""
        mode, oid = MODE_FOLDER, tree
        for part in path.rstrip("/").split("/"):
            entries = self._entries(oid) if mode == MODE_FOLDER else ()
            found = None if isinstance(entries, Finding) else _named(entries, part)
            if found is None:
                return None
            mode, oid = found.mode, found.oid
        return mode, oid

    def _whole(self, total: _Sum) -> Iterator[Finding]:
        limits = self._limits
        if total.files > limits.files:
            yield Finding("", Rule.SIZE, f"{total.files} files; at most {limits.files} are allowed")
        if total.size_bytes > limits.tree_bytes:
            yield Finding("", Rule.SIZE, f"{total.size_bytes} bytes in all; at most {limits.tree_bytes} are allowed")
        if total.core_bytes > limits.core_bytes:
            text = (
                f"the core memory has {total.core_bytes} bytes; at most {limits.core_bytes} are allowed. Move what"
                " is not needed in every conversation into a folder"
            )
            yield Finding("", Rule.SIZE, text)

    def _agent_toml(self, entries: tuple[Entry, ...]) -> tuple[str, ...]:
        """The locked paths. What is wrong with the file is found with the other files."""
        entry = _named(entries, AGENT_TOML)
        if entry is None or entry.mode not in {MODE_FILE, MODE_PROGRAM}:
            return ()
        try:
            parsed = read_agent_toml(self._read(entry.oid)[1])
        except KeyError:
            return ()
        return () if isinstance(parsed, BadAgentFile) else parsed.read_only

    def _entries(self, tree: str) -> tuple[Entry, ...] | Finding:
        try:
            kind, data = self._read(tree)
            if kind != "tree":
                return Finding("", Rule.OBJECT, f"{tree} is a {kind}, not a tree")
            return parse_tree(data)
        except KeyError:
            return Finding("", Rule.OBJECT, f"the tree {tree} is missing")
        except BadObject as error:
            return Finding("", Rule.OBJECT, str(error))

    def _folder(self, tree: str, role: _Role, prefix: str) -> _Sum:
        known = self._clean.get((tree, role))
        if known is not None and self._fits_below(known, prefix):
            return known
        total = _Sum()
        entries = self._entries(tree)
        if isinstance(entries, Finding):
            total.findings.append(Finding(prefix, entries.rule, entries.text))
            return total
        seen: dict[str, str] = {}
        for entry in entries:
            if len(total.findings) > self._limits.findings or total.files > self._limits.files:
                break
            self._entry(entry, role, prefix, seen, total)
        if not total.findings:
            if len(self._clean) >= _MAX_REMEMBERED:
                self._clean.clear()
            self._clean[tree, role] = total
        return total

    def _entry(self, entry: Entry, role: _Role, prefix: str, seen: dict[str, str], total: _Sum) -> None:
        path = prefix + printable(entry.name)
        fault = name_fault(entry.name, self._limits)
        if fault is not None:
            total.findings.append(Finding(path, Rule.NAME, fault))
            return
        name = entry.name.decode()
        other = seen.setdefault(fold(name), name)
        if other != name:
            text = f"the same name as {other} where letter case or spelling forms do not count"
            total.findings.append(Finding(path, Rule.NAME, text))
        if too_far := _path_fault(path, self._limits):
            total.findings.append(Finding(path, Rule.NAME, too_far))
        elif entry.mode == MODE_FOLDER:
            self._subfolder(entry, _role_below(role, name), path, name, total)
        elif entry.mode in {MODE_FILE, MODE_PROGRAM}:
            self._file(entry, role, path, name, total)
        else:
            total.findings.append(Finding(path, Rule.MODE, _mode_text(entry.mode)))

    def _fits_below(self, known: _Sum, prefix: str) -> bool:
        """A folder that is clean where it was first seen may lie too deep here."""
        limits = self._limits
        return (
            len(prefix.encode()) + known.longest_bytes <= limits.path_bytes
            and prefix.count("/") + known.depth <= limits.depth
        )

    def _subfolder(self, entry: Entry, role: _Role, path: str, name: str, total: _Sum) -> None:
        below = self._folder(entry.oid, role, path + "/")
        total.files += below.files
        total.size_bytes += below.size_bytes
        total.core_bytes += below.core_bytes
        total.longest_bytes = max(total.longest_bytes, len(name.encode()) + 1 + below.longest_bytes)
        total.depth = max(total.depth, 1 + below.depth)
        total.read_only += [f"{name}/{locked}" for locked in below.read_only]
        total.findings += below.findings

    def _file(self, entry: Entry, role: _Role, path: str, name: str, total: _Sum) -> None:
        total.files += 1
        total.longest_bytes = max(total.longest_bytes, len(name.encode()))
        markdown = name.casefold().endswith(".md")
        limit = self._limits.markdown_bytes if markdown else self._limits.file_bytes
        try:
            size = self._size(entry.oid)
            total.size_bytes += size
            if size > limit:
                total.findings.append(Finding(path, Rule.SIZE, f"{size} bytes; at most {limit} are allowed"))
                return
            kind, data = self._read(entry.oid) if markdown or name == AGENT_TOML else ("blob", b"")
        except KeyError:
            total.findings.append(Finding(path, Rule.OBJECT, "its content is missing"))
            return
        if kind != "blob":
            total.findings.append(Finding(path, Rule.OBJECT, f"a {kind} stands where a file should"))
        elif markdown:
            self._markdown(data, role, path, name, total)
        elif name == AGENT_TOML and role in {_Role.V1_ROOT, _Role.V2_ROOT}:
            parsed = read_agent_toml(data)
            if isinstance(parsed, BadAgentFile):
                total.findings += [Finding(path, Rule.AGENT_TOML, fault) for fault in parsed.faults]

    def _markdown(self, data: bytes, role: _Role, path: str, name: str, total: _Sum) -> None:
        if role is _Role.SKILL_FREE or role is _Role.V1_FREE:
            return
        try:
            front = read_front_matter(data.decode("utf-8"))
        except UnicodeDecodeError:
            total.findings.append(Finding(path, Rule.FRONT_MATTER, "the file is not UTF-8"))
            return
        faults = [*front.faults, *_front_faults(front.fields, role, name)] if not front.faults else [*front.faults]
        total.findings += [Finding(path, Rule.FRONT_MATTER, fault) for fault in faults]
        if role is _Role.SKILLS:
            text = "a skill is a folder: skills/NAME/SKILL.md"
            total.findings.append(Finding(path, Rule.STRUCTURE, text))
        if role in {_Role.V2_ROOT, _Role.V1_CORE}:
            total.core_bytes += len(data)
        if role in _V1_PROMPT and (front.fields or {}).get("read_only") == "true":
            total.read_only.append(name)


def layout_of(entries: tuple[Entry, ...]) -> Layout:
    """v1 has a folder `system` and no index in the root."""
    if _named(entries, INDEX) is None:
        system = _named(entries, "system")
        if system is not None and system.mode == MODE_FOLDER:
            return Layout.V1
    return Layout.V2


def is_core(path: str, layout: Layout) -> bool:
    """Whether a Markdown file stands in every prompt."""
    return path.startswith("system/") if layout is Layout.V1 else "/" not in path


def _named(entries: tuple[Entry, ...], name: str) -> Entry | None:
    raw = name.encode()
    return next((entry for entry in entries if entry.name == raw), None)


def _path_fault(path: str, limits: Limits) -> str:
    """Empty when it may be this long and lie this deep."""
    if len(path.encode()) > limits.path_bytes:
        return f"the path is longer than {limits.path_bytes} bytes"
    if path.count("/") > limits.depth:
        return f"it lies in more than {limits.depth} folders in each other"
    return ""


def _role_below(role: _Role, name: str) -> _Role:
    match role:
        case _Role.V1_ROOT:
            return {"skills": _Role.SKILLS, "system": _Role.V1_CORE, "reference": _Role.V1_REFERENCE}.get(
                name, _Role.V1_FREE
            )
        case _Role.V2_ROOT:
            return _Role.SKILLS if name == "skills" else _Role.V2_NOTES
        case _Role.SKILLS:
            return _Role.SKILL
        case _Role.SKILL | _Role.SKILL_FREE:
            return _Role.SKILL_FREE
        case _Role.V1_CORE | _Role.V1_REFERENCE | _Role.V1_FREE | _Role.V2_NOTES:
            return role


def _front_faults(fields: dict[str, str] | None, role: _Role, name: str) -> Iterator[str]:
    v2 = role in {_Role.V2_ROOT, _Role.V2_NOTES}
    if name == INDEX and role in {_Role.V2_ROOT, _Role.V2_NOTES, _Role.SKILLS}:
        if fields is not None:
            yield "an index MEMORY.md has no front matter"
        return
    if role is _Role.SKILLS or role is _Role.V1_ROOT or (role is _Role.SKILL and name != "SKILL.md"):
        return
    needed = ("name", "description") if v2 or role is _Role.SKILL else ("description",)
    if fields is None:
        yield f"the file must begin with front matter: ---, {', '.join(f'{key}: …' for key in needed)}, ---"
        return
    for key in needed:
        if not fields.get(key):
            yield f"front matter: {key} is missing or empty"
    known = _V2_KEYS if v2 else _V1_KEYS if role in _V1_PROMPT else None
    for key in fields:
        if known is not None and key not in known:
            yield f"front matter: unknown key {printable(key)}; only {', '.join(sorted(known))} may stand here"


def _mode_text(mode: bytes) -> str:
    match mode:
        case b"120000":
            return "a symbolic link; only plain files and folders are allowed"
        case b"160000":
            return "a submodule; only plain files and folders are allowed"
        case _:
            return f"mode {printable(mode)} is not allowed; plain files are 100644 or 100755"
