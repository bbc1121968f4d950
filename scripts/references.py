"""The design pages that comments cite are not in the repository: docs/references.md says what each reference means."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PAGE: Final = "docs/references.md"
_ID: Final = r"[A-Z]?\d+(?:\.\d+)*[a-z]?"
_CITED: Final = re.compile(
    r"\b(BEHAVIOUR|ARCHITECTURE|ATTACKS|SANDBOX-NOTES|MEMORY-NOTES|ECOSYSTEM|PROTOCOL|CONTROL-PLANE-REST)(?:\.md)?"
    rf"\s+(?:sections?\s+)?({_ID}(?:(?:,? (?:and|to|or)|,)\s+(?:section\s+)?{_ID})*)"
)
_LINE_START: Final = re.compile(r"\s+(?:#\s*|//\s*|\*\s+)?")


def cited(text: str) -> set[tuple[str, str]]:
    """Page and section of each reference in a file, also where it is broken over two lines."""
    joined = _LINE_START.sub(" ", text)
    return {(match[1], section) for match in _CITED.finditer(joined) for section in re.findall(_ID, match[2])}


def explained(page: str) -> set[tuple[str, str]]:
    """What the page tells: below a heading that names a page of design, the first cell of each row."""
    found = cited(page)
    for block in page.split("\n## ")[1:]:
        owner = block.split(".md", 1)[0]
        for cell in re.findall(r"^\| ([^|]*) \|", block, re.MULTILINE):
            found |= {(owner, section) for section in re.findall(_ID, cell)}
    return found


def unexplained(root: Path, files: Iterable[Path]) -> list[str]:
    """References of any file that the page does not tell."""
    known = explained((root / PAGE).read_text())
    faults = []
    for path in files:
        name = str(path.relative_to(root))
        for page, section in sorted(cited(path.read_text()) - known):
            faults.append(f"{name}: cites {page}.md {section}, which {PAGE} does not explain")
    return faults
