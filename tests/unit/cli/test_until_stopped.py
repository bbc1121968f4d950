"""The end of whoever started us: seen once, however long stopping takes."""

import asyncio
import os

from lodger_cli.serve import _until_stopped
from support.patience import LIMIT_S


def test_the_end_of_whoever_started_us_is_seen_once() -> None:
    """A closed end of a pipe stays readable; watched on, it would keep the loop spinning while everything stops."""
    ours, theirs = os.pipe()

    async def work(stopping: asyncio.Event) -> None:
        os.close(theirs)
        await asyncio.wait_for(stopping.wait(), LIMIT_S)
        assert not asyncio.get_running_loop().remove_reader(ours), "nobody watches it any more"

    asyncio.run(_until_stopped(ours, work))
