"""Memory with a real box around the checkout: founded, committed, imported, pushed and brought along."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.published import CHECKOUT
from support.git_host_server import RunningHost, running_git_host
from support.memory_machines import AGENT, CARD, note
from support.real_memory_machine import RealMachine
from support.sandbox_users import own, user_of_boxes, visible_folder

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs folders outside every private folder"),
]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHost]:
    with running_git_host(tmp_path / "hub") as running:
        yield running


async def test_a_fact_travels_between_real_boxes(tmp_path: Path, hub: RunningHost) -> None:
    with visible_folder() as workspace, tempfile.TemporaryDirectory(prefix="lodger-real-") as folder:
        own(workspace, user_of_boxes())
        one = RealMachine(Path(folder) / "a", workspace, hub)
        two = RealMachine(Path(folder) / "b", workspace, hub)
        try:
            assert await one.memory.prepare(AGENT, CARD) == CARD
            fact = note("The key is under the stone.", "fact").replace("\n", "\\n")
            await one.shell(f"printf -- '{fact}' > fact.md && git add -A && git commit -q -m fact")
            report = await one.memory.import_commits(AGENT, one.box)
            assert report.moved, report.text
            one.memory.turn_ended(AGENT, one.box)
            assert (await one.memory.settled(AGENT, 30)).outcome is SyncOutcome.PUSHED
            await two.memory.prepare(AGENT, None)
            assert "under the stone" in (await two.memory.compiled(AGENT)).text
            assert "under the stone" in await two.shell("cat fact.md")
            assert await two.shell("git status --porcelain") == ""
            await two.shell("printf 'more\\n' >> fact.md && git commit -q -a -m more")
            two.memory.turn_ended(AGENT, two.box)
            assert (await two.memory.settled(AGENT, 30)).outcome is SyncOutcome.PUSHED
            one.memory.head_announced(AGENT, report.head[::-1] if report.head else "")
            await one.memory.settled(AGENT, 30)
            published = one.memory.repository(AGENT, None).room.published
            assert published.head() == published.ref(CHECKOUT) == hub.host.head(AGENT)
            assert "more" in await one.shell("cat fact.md")
        finally:
            await one.aclose()
            await two.aclose()
