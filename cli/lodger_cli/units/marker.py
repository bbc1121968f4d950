"""Telling files that `lodger service` wrote from those that somebody wrote or changed: by their last line."""

import hashlib
import re
from enum import StrEnum
from pathlib import Path
from typing import Final

_MARK: Final = re.compile(r"^(?:# |<!-- )Written by lodger service install; ([0-9a-f]{64})(?: -->)?\n?\Z", re.MULTILINE)
_LIMIT_BYTES: Final = 256 * 1024


class Holder(StrEnum):
    """Whose a file is."""

    NOBODY = "absent"
    OURS = "ours"
    STRANGER = "not written by lodger service install"
    CHANGED = "changed since lodger service install wrote it"


def marked(text: str, *, xml: bool = False) -> str:
    """The text with a last line that names its hash."""
    mark = f"Written by lodger service install; {hashlib.sha256(text.encode()).hexdigest()}"
    return f"{text}<!-- {mark} -->\n" if xml else f"{text}# {mark}\n"


def holder(path: Path) -> Holder:
    """Blocking. Raises: OSError when the file is there and cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(_LIMIT_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return Holder.NOBODY
    found = _MARK.search(text)
    if found is None:
        return Holder.STRANGER
    same = hashlib.sha256(text[: found.start()].encode()).hexdigest() == found[1]
    return Holder.OURS if same else Holder.CHANGED
