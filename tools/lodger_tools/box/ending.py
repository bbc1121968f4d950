"""The end of a box, with a connection to its runner or without one."""

import asyncio
import contextlib
import time
from typing import Final

from lodger_sandbox.cgroups import end_group
from lodger_tools.box import record as records
from lodger_tools.box.connected import Box

END_WITHIN_S: Final = 3.0


async def end_connected(box: Box) -> None:
    """Let its runner end it, within a limit; else kill it."""
    box.link.ask_to_end()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_WITHIN_S):
            await box.link.closed.wait()
    box.link.close()
    await asyncio.to_thread(end_unconnected, box.found)


def end_unconnected(found: records.FoundBox) -> None:
    """Kill the box if it still runs, wait for its end and remove its folder. Blocking."""
    if records.is_alive(found.folder):
        records.kill_box(found.record)
        deadline = time.monotonic() + END_WITHIN_S
        while records.is_alive(found.folder) and time.monotonic() < deadline:
            time.sleep(0.005)
    if not records.is_alive(found.folder):
        end_group(found.record.group)
        records.remove_folder(found.folder)
