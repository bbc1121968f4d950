"""Every page for people is in the index, and every link between pages leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert sorted(re.findall(r"^\| \[([a-z-]+\.md)\]", index, re.MULTILINE)) == [
        page.name for page in PAGES if page.name != "README.md"
    ]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: str(page.name))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, part = target.partition("#")
        there = (page.parent / name) if name else page
        assert there.exists(), target
        if part:
            assert part in {anchor(line.lstrip("# ")) for line in there.read_text().splitlines() if line[:1] == "#"}
