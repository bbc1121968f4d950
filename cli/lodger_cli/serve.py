"""The long-running commands: `daemon`, `app-server` and `hub`."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

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
    options = HubOptions(state=folder, host=host, port=port, tls_cert=tls_cert or None, tls_key=tls_key or None)
    try:
        asyncio.run(_until_stopped(while_fd, lambda stopping: serve(options, stopping)))
    except HubError as error:
        fail(str(error), Exit.FAILED)


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
