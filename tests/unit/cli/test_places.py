"""A command that starts a daemon of its own and finds that somebody else has just done so."""

import asyncio
import fcntl
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, unix_serve

from lodger_cli import places
from lodger_daemon.paths import find_paths
from support.patience import LIMIT_S


async def accept(connection: ServerConnection) -> None:
    await connection.wait_closed()


async def test_the_daemon_that_is_just_coming_up_is_waited_for(tmp_path: Path) -> None:
    where = find_paths({"LODGER_HOME": str(tmp_path), "HOME": str(tmp_path)})
    where.state.mkdir()
    with where.daemon_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = asyncio.create_task(places._answering_soon(where))
        await asyncio.sleep(0)
        async with unix_serve(accept, str(where.socket)):
            client = await asyncio.wait_for(waiting, LIMIT_S)
            assert client is not None
            await client.close()


@pytest.mark.parametrize("lock_there", [True, False])
async def test_nobody_is_waited_for_where_nobody_runs(tmp_path: Path, lock_there: bool) -> None:
    """A daemon that cannot start, for its settings for example: its words must come at once."""
    where = find_paths({"LODGER_HOME": str(tmp_path), "HOME": str(tmp_path)})
    where.state.mkdir()
    if lock_there:
        where.daemon_lock.touch()
    began = asyncio.get_running_loop().time()
    assert await places._answering_soon(where) is None
    assert asyncio.get_running_loop().time() - began < places.MEANWHILE_S / 2
