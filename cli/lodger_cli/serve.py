"""The long-running commands: `daemon`, `app-server` and `hub`."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lodger_cli.places import paths
from lodger_cli.terminal import Exit, fail, say_json


@dataclass(frozen=True, slots=True)
class AppServerFlags:
    listen: str
    ws_auth: str
    ws_token_file: str
    ws_token_sha256: str


def run_daemon(*, hub: str, hub_token_file: str, listen: AppServerFlags | None, while_fd: int) -> None:
    """Run until a signal, or until whoever started us is gone."""
    from lodger_daemon.service.options import DaemonOptions, ListenOptions
    from lodger_daemon.service.program import StartRefused, run

    options = DaemonOptions(
        paths=paths(),
        environment=dict(os.environ),
        host_name=socket.gethostname(),
        hub_url=hub,
        hub_token_file=hub_token_file,
        listen=ListenOptions(listen.listen, listen.ws_auth, listen.ws_token_file, listen.ws_token_sha256)
        if listen
        else None,
    )
    try:
        asyncio.run(_until_stopped(while_fd, lambda stopping: run(options, stopping, say_json)))
    except StartRefused as error:
        fail(str(error), Exit.FAILED)


def run_hub(*, host: str, port: int, tls_cert: str, tls_key: str, while_fd: int) -> None:
    """Run the hub until a signal, or until whoever started us is gone."""
    from lodger_hub.errors import HubError
    from lodger_hub.options import HubOptions
    from lodger_hub.server import serve

    folder = paths().hub
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = HubOptions(
        state=folder,
        host=host,
        port=port,
        tls_certificate=Path(tls_cert) if tls_cert else None,
        tls_key=Path(tls_key) if tls_key else None,
    )
    try:
        asyncio.run(_until_stopped(while_fd, lambda stopping: _stopped_by(stopping, serve(options))))
    except (HubError, OSError) as error:
        fail(f"the hub cannot start: {error}", Exit.FAILED)


async def _stopped_by(stopping: asyncio.Event, serving: Coroutine[Any, Any, None]) -> None:
    """Run until it ends by itself, or until the event: then it is cancelled and unwinds in good order."""
    task = asyncio.create_task(serving)
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not task.done():
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _until_stopped(while_fd: int, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `work` with an event that is set by the first signal, or by the end of the process that started us."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    if while_fd >= 0:
        os.set_inheritable(while_fd, False)
        loop.add_reader(while_fd, stopping.set)
    try:
        await work(stopping)
    finally:
        if while_fd >= 0:
            loop.remove_reader(while_fd)
            with contextlib.suppress(OSError):
                os.close(while_fd)
