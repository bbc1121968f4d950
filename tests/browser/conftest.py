"""What these tests need is brought by `make test`; where it is missing they fail and say so, they do not skip."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.browser import Browser, chromium, chromium_path
from support.page_rig import PageRig
from support.programs import new_world

ROOT = Path(__file__).resolve().parents[2]
NEEDED = {
    ROOT / "hub" / "lodger_hub" / "page" / "index.html": "the page is not built: make page",
    ROOT / "hub" / "web" / "node_modules" / "axe-core" / "axe.min.js": "axe-core is not installed: make page",
}


@pytest.fixture(scope="session", autouse=True)
def tools() -> None:
    missing = [words for file, words in NEEDED.items() if not file.exists()]
    if chromium_path() is None:
        missing.append("Chromium is not installed: make test-tools, or name one in LODGER_CHROMIUM")
    assert not missing, "; ".join(missing)


@pytest.fixture
async def rig() -> AsyncIterator[PageRig]:
    async with new_world("page") as world:
        made = PageRig(world, world.home("desk"), await world.endpoint())
        await made.start_hub()
        await made.start_daemon()
        yield made


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started
