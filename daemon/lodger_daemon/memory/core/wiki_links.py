"""References between memory files: `[[wiki links]]`, resolved to files that are there."""

import posixpath
import re
from collections.abc import Collection, Mapping
from typing import Final

_LINK: Final = re.compile(r"\[\[([^\[\]|#\n]{1,512})(?:[|#][^\[\]\n]{0,512})?\]\]")
REFERENCES_LIMIT: Final = 200
"""Of one file; the rest are left out."""


def by_name(paths: Collection[str]) -> dict[str, str]:
    """Markdown files by their name without `.md`, where one name means one file."""
    found: dict[str, str] = {}
    twice: set[str] = set()
    for path in paths:
        name = posixpath.basename(path).removesuffix(".md")
        if name in found:
            twice.add(name)
        found[name] = path
    return {name: path for name, path in found.items() if name not in twice}


def references(text: str, source: str, paths: Collection[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Paths that `source` refers to, each once, in order.

    Args:
        paths: every Markdown file there is.
        names: as `by_name` gives it.
    """
    found: dict[str, None] = {}
    folder = posixpath.dirname(source)
    for link in _LINK.finditer(text):
        target = link[1].strip().removesuffix(".md")
        candidates = (f"{target}.md", posixpath.normpath(posixpath.join(folder, f"{target}.md")))
        path = next((one for one in candidates if one in paths), names.get(target))
        if path is not None:
            found[path] = None
        if len(found) >= REFERENCES_LIMIT:
            break
    return tuple(found)
