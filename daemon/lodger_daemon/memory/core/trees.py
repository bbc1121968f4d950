"""Writing trees as data."""

from collections.abc import Iterable

from lodger_tools.validator.objects import MODE_FOLDER, Entry


def tree_data(entries: Iterable[Entry]) -> bytes:
    """A tree of these entries, in whatever order they come."""
    # Git orders a folder as if its name ended with a slash.
    ordered = sorted(entries, key=lambda entry: entry.name + (b"/" if entry.mode == MODE_FOLDER else b""))
    return b"".join(entry.mode + b" " + entry.name + b"\0" + bytes.fromhex(entry.oid) for entry in ordered)
