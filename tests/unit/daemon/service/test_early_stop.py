"""Told to stop before clients were let in, the daemon leaves at once, in good order, and nothing is announced."""

import asyncio
import os
from pathlib import Path
from typing import Any

from lodger_daemon.paths import find_paths
from lodger_daemon.service.options import DaemonOptions
from lodger_daemon.service.program import run


def options(folder: Path) -> DaemonOptions:
    environment = {"LODGER_HOME": str(folder), "HOME": str(folder), "PATH": os.environ["PATH"]}
    return DaemonOptions(paths=find_paths(environment), environment=environment, host_name="here")


async def test_a_stop_during_the_start_ends_it(tmp_path: Path) -> None:
    stopping, announced = asyncio.Event(), list[dict[str, Any]]()
    stopping.set()
    async with asyncio.timeout(20):
        await run(options(tmp_path), stopping, announced.append)
    assert announced == []
    # The lock is free again: another daemon can start and let clients in.
    stopping = asyncio.Event()

    def announce(line: dict[str, Any]) -> None:
        announced.append(line)
        stopping.set()

    async with asyncio.timeout(20):
        await run(options(tmp_path), stopping, announce)
    assert [line["type"] for line in announced] == ["ready"]
