"""The long-running commands: `daemon`, `app-server` and `hub`."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from lodger_cli.hub_options import HubReach
from lodger_cli.long_running import imports_without_collection, leave_quickly, prefer_the_event_loop
from lodger_cli.places import paths, record_hub
from lodger_cli.terminal import Exit, fail, say_json

if TYPE_CHECKING:
    from lodger_hub.options import HubOptions


_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppServerFlags:
    listen: str
    ws_auth: str
    ws_token_file: str
    ws_token_sha256: str


@dataclass(frozen=True, slots=True)
class HubFlags:
    """What `lodger hub` is started with. Empty strings and -1 mean: not given."""

    host: str
    port: int
    lan: bool
    lan_port: int
    tls_cert: str
    tls_key: str
    public_url: str
    public_names: tuple[str, ...]
    trusted_proxies: tuple[str, ...] = ()

    @classmethod
    def of(cls, host: str, port: int, reach: HubReach) -> Self:
        return cls(
            host=host,
            port=port,
            lan=reach.lan,
            lan_port=reach.lan_port,
            tls_cert=reach.tls_cert,
            tls_key=reach.tls_key,
            public_url=reach.public_url,
            public_names=tuple(reach.public_name),
            trusted_proxies=tuple(reach.trusted_proxy),
        )

    def arguments(self) -> list[str]:
        """The same as words of a command."""
        words = ["hub", "--host", self.host, "--port", str(self.port), "--lan-port", str(self.lan_port)]
        words += ["--lan"] if self.lan else []
        for name, value in (
            ("--tls-cert", self.tls_cert),
            ("--tls-key", self.tls_key),
            ("--public-url", self.public_url),
            *(("--public-name", name) for name in self.public_names),
            *(("--trusted-proxy", proxy) for proxy in self.trusted_proxies),
        ):
            words += [name, value] if value else []
        return words


def run_daemon(
    *, hub: str, hub_token_file: str, listen: AppServerFlags | None, while_fd: int, log_file: str = ""
) -> None:
    """Run until a signal, or until whoever started us is gone."""
    with imports_without_collection():
        from lodger_daemon.service.notify import Notifier
        from lodger_daemon.service.options import DaemonOptions, ListenOptions
        from lodger_daemon.service.program import StartRefused, run
        from lodger_daemon.version import VERSION

    prefer_the_event_loop()
    _log_to(log_file, logging.INFO)
    notifier = Notifier.take(os.environ, os.getpid())
    options = DaemonOptions(
        paths=paths(),
        environment=dict(os.environ),
        host_name=socket.gethostname(),
        hub_url=hub,
        hub_token_file=hub_token_file,
        listen=ListenOptions(listen.listen, listen.ws_auth, listen.ws_token_file, listen.ws_token_sha256)
        if listen
        else None,
        notifier=notifier,
    )

    def ready(facts: dict[str, Any]) -> None:
        say_json(facts)
        _LOG.info("lodger %s answers on %s", VERSION, facts["machine"])

    async def serve(stopping: asyncio.Event) -> None:
        await run(options, stopping, ready)
        # Here and not after the loop: that would wait for threads, such as one that starts a box nobody will use. A
        # start that is cut short leaves nothing, as after a kill.
        leave_quickly()

    try:
        asyncio.run(_until_stopped(while_fd, serve))
    except StartRefused as error:
        fail(str(error), Exit.FAILED)


def run_hub(flags: HubFlags, *, while_fd: int, log_file: str = "") -> None:
    """Run the hub until a signal, or until whoever started us is gone."""
    from lodger_cli.supervision import watched
    from lodger_daemon.service.notify import Notifier
    from lodger_hub.errors import HubError
    from lodger_hub.reach import Reach
    from lodger_hub.server import print_ready, serve

    _log_to(log_file, logging.WARNING)
    notifier = Notifier.take(os.environ, os.getpid())
    folder = paths().hub
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = _hub_options(flags, folder)

    async def serve_watched(stopping: asyncio.Event) -> None:
        async with watched(notifier) as ready_to_serve:

            def ready(reach: Reach) -> None:
                record_hub(folder, reach.url)
                print_ready(reach)
                ready_to_serve(f"Serving at {reach.url}")
                _LOG.info("the hub serves at %s", reach.url)

            await _stopped_by(stopping, serve(options, ready))

    try:
        asyncio.run(_until_stopped(while_fd, serve_watched))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            fail(f"the hub cannot start: port {flags.port} is taken; name another with --port", Exit.FAILED)
        fail(f"the hub cannot start: {error}", Exit.FAILED)
    except HubError as error:
        fail(f"the hub cannot start: {error}", Exit.FAILED)


def _log_to(log_file: str, level: int) -> None:
    """Into a file with rotation when one is named; else it goes to standard error."""
    if not log_file:
        return
    from lodger_daemon.service.log_file import log_to

    try:
        log_to(Path(log_file), level)
        # That it is up is worth a line at every level: a log without any looks like one that is not written.
        _LOG.setLevel(logging.INFO)
    except OSError as error:
        fail(f"the log cannot be written to {log_file}: {error.strerror}", Exit.FAILED)


def _hub_options(flags: HubFlags, folder: Path) -> "HubOptions":
    from lodger_hub.options import HubOptions, LanListener

    certificate = Path(flags.tls_cert) if flags.tls_cert else None
    key = Path(flags.tls_key) if flags.tls_key else None
    lan_port = flags.lan_port if flags.lan_port >= 0 else (None if flags.port else 0)
    lan = LanListener(port=lan_port, certificate=certificate, key=key) if flags.lan else None
    return HubOptions(
        state=folder,
        host=flags.host,
        port=flags.port,
        tls_certificate=None if lan else certificate,
        tls_key=None if lan else key,
        public_names=frozenset(name.lower() for name in flags.public_names),
        public_url=flags.public_url or None,
        trusted_proxies=flags.trusted_proxies,
        lan=lan,
    )


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

    def gone() -> None:
        # A closed end stays readable: kept, the loop would spin on it while everything stops.
        loop.remove_reader(while_fd)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    if while_fd >= 0:
        os.set_inheritable(while_fd, False)
        loop.add_reader(while_fd, gone)
    try:
        await work(stopping)
    finally:
        if while_fd >= 0:
            loop.remove_reader(while_fd)
            with contextlib.suppress(OSError):
                os.close(while_fd)
