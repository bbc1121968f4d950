"""Trees as one table of paths, to be read, changed and written. Blocking; only objects are written."""

from collections.abc import Mapping
from typing import TypeAlias

from lodger_daemon.memory.core.pack import object_id
from lodger_daemon.memory.core.trees import tree_data
from lodger_daemon.memory.published import Published
from lodger_tools.validator.objects import MODE_FOLDER, Entry, parse_tree

Leaf: TypeAlias = tuple[bytes, str]
"""Mode and object id of a file."""
FlatTree: TypeAlias = dict[str, Leaf]


def read_flat(published: Published, tree: str) -> FlatTree:
    """Every file of the tree by its path. Raises: KeyError, BadObject."""
    found: FlatTree = {}
    folders = [("", tree)]
    while folders:
        prefix, oid = folders.pop()
        # The empty tree need not be stored.
        for entry in parse_tree(_tree_bytes(published, oid)):
            path = prefix + entry.name.decode("utf-8", "surrogateescape")
            if entry.mode == MODE_FOLDER:
                folders.append((path + "/", entry.oid))
            else:
                found[path] = (entry.mode, entry.oid)
    return found


def files_of(published: Published, commit: str) -> FlatTree:
    """Every file of a commit. Raises: KeyError, BadObject."""
    return read_flat(published, published.commit(commit).tree)


def write_flat(published: Published, files: Mapping[str, Leaf]) -> str:
    """Store the trees these files make; the id of the topmost. No path may lie below another."""
    objects: dict[str, bytes] = {}
    oid = _made({tuple(path.split("/")): leaf for path, leaf in files.items()}, objects)
    published.write([("tree", data) for data in objects.values()])
    return oid


def _made(files: Mapping[tuple[str, ...], Leaf], objects: dict[str, bytes]) -> str:
    below: dict[str, dict[tuple[str, ...], Leaf]] = {}
    entries: list[Entry] = []
    for names, (mode, oid) in files.items():
        if len(names) == 1:
            entries.append(Entry(mode, names[0].encode("utf-8", "surrogateescape"), oid))
        else:
            below.setdefault(names[0], {})[names[1:]] = (mode, oid)
    for name, inner in below.items():
        entries.append(Entry(MODE_FOLDER, name.encode("utf-8", "surrogateescape"), _made(inner, objects)))
    data = tree_data(entries)
    made = object_id("tree", data)
    objects[made] = data
    return made


def _tree_bytes(published: Published, oid: str) -> bytes:
    return b"" if oid == object_id("tree", b"") else published.reader.read(oid)[1]
