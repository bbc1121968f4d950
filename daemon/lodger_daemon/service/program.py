"""The daemon put together: its rooms started in order, clients let in, and all stopped in the reverse order."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from lodger_daemon.backends.local.porting import Porter
from lodger_daemon.clients.app_server import AppServer, AppServerOptions
from lodger_daemon.clients.errors import ClientError
from lodger_daemon.clients.history_search import SearchCommand
from lodger_daemon.clients.porting import PortingCommands
from lodger_daemon.clients.router import Router
from lodger_daemon.clients.services import ClientServices
from lodger_daemon.clients.tokens import CapabilityToken, ensure_token
from lodger_daemon.memory.writers import Writers
from lodger_daemon.network.network import Network
from lodger_daemon.network.ssh_agent import AgentLook
from lodger_daemon.notifications.stop_command import StopCommand
from lodger_daemon.ports.commands import PortCommands
from lodger_daemon.randomness import SystemRng
from lodger_daemon.service.adoption import adopt_known
from lodger_daemon.service.clock_watch import ClockWatch
from lodger_daemon.service.foundation import Foundation, lay_foundation
from lodger_daemon.service.housekeeping import keep_house
from lodger_daemon.service.hub_words import HubWords
from lodger_daemon.service.link import find_hub
from lodger_daemon.service.machine import Machine
from lodger_daemon.service.memory_care import MemoryCare
from lodger_daemon.service.memory_commands import MemoryCommands
from lodger_daemon.service.memory_kept import KeptCommands
from lodger_daemon.service.memory_writers import WriterCommands, make_writers, take_up
from lodger_daemon.service.options import DaemonOptions, ListenOptions
from lodger_daemon.service.ownership_watch import watch_ownership
from lodger_daemon.service.place_commands import PlaceCommands
from lodger_daemon.service.rooms import Rooms, make_rooms
from lodger_daemon.service.sandbox_check import SandboxCheck
from lodger_daemon.service.settings import Settings, SettingsError
from lodger_daemon.service.status import StatusReport
from lodger_daemon.service.watchdog import keep_informed
from lodger_daemon.store.audit_log import AuditLog
from lodger_daemon.store.errors import StoreError
from lodger_daemon.uplink.core.status import UplinkStatus
from lodger_daemon.uplink.errors import UplinkError
from lodger_daemon.uplink.link import Uplink

Announce = Callable[[dict[str, Any]], None]
_LOG: Final = logging.getLogger(__name__)


class StartRefused(Exception):
    """The daemon cannot start; the text says why and what to do."""


async def run(options: DaemonOptions, stopping: asyncio.Event, announce: Announce) -> None:
    """Run the daemon until `stopping` is set. `announce` gets one JSON object once clients are let in.

    Raises: StartRefused.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("websockets").setLevel(logging.WARNING)  # it has two lines for every command of every client
    try:
        foundation = await asyncio.to_thread(lay_foundation, options)
    except (SettingsError, StoreError, OSError) as error:
        raise StartRefused(str(error)) from error
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(foundation.database.aclose)
        try:
            await _until_told(stopping, lambda started: _run(options, foundation, stack, stopping, started, announce))
        except (ClientError, UplinkError, StoreError, OSError, ValueError) as error:
            raise StartRefused(str(error)) from error
        except ExceptionGroup as group:
            raise StartRefused(f"the daemon had to stop: {'; '.join(map(repr, group.exceptions))}") from group


async def _until_told(stopping: asyncio.Event, work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run `work`. Told to stop before it has set its event (a start may wait for a first clone), cancel it; after
    that it ends by itself."""
    started = asyncio.Event()
    running = asyncio.create_task(work(started))
    told = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({running, told}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and not started.is_set():
            running.cancel()
            await asyncio.wait({running})
        if not running.cancelled():
            await running
    finally:
        told.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait({running})


async def _run(
    options: DaemonOptions,
    foundation: Foundation,
    stack: contextlib.AsyncExitStack,
    stopping: asyncio.Event,
    started: asyncio.Event,
    announce: Announce,
) -> None:
    """Set `started` once clients are let in; end when `stopping` is set after that."""
    hub = find_hub(options, foundation.settings)
    sandbox = SandboxCheck(foundation.requests, foundation.clock)
    rooms = await make_rooms(options, foundation, hub, sandbox, stack)
    clock_watch = ClockWatch(foundation.clock)
    await rooms.memory.start()
    await rooms.conversations.recover()
    rooms.network.let_ask(rooms.conversations.network_asker)
    rooms.ports.let_ask(rooms.conversations.ports_asker)
    await rooms.tasks.start()
    await adopt_known(rooms.conversations, rooms.memory)
    uplinks: list[Uplink] = []
    words = HubWords(rooms.memory, rooms.conversations, foundation.audit, foundation.clock)

    def uplink_status() -> UplinkStatus | None:
        return uplinks[0].status() if uplinks else None

    writers = make_writers(
        options.paths, foundation.database, rooms.memory, rooms.boxes, foundation.requests, foundation.clock
    )
    stack.push_async_callback(writers.aclose)
    router = _make_router(options, foundation, rooms, sandbox, clock_watch, uplink_status, writers)
    stack.push_async_callback(router.aclose)
    server, address = await _listen(options, foundation, router)
    stack.push_async_callback(server.aclose)
    if hub is not None:
        uplinks.append(
            hub.uplink(
                foundation.device_id,
                foundation.name,
                router,
                words,
                foundation.clock,
                SystemRng(),
                options.uplink_timing,
                rooms.memory.last_level_at,
            )
        )
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(uplink.run()) for uplink in uplinks]
        tasks.append(group.create_task(words.run()))
        # Also without a call to run: boxes of an earlier daemon must be seen, and ended when they stay idle.
        tasks.append(group.create_task(take_up(rooms.boxes, writers)))
        tasks.append(group.create_task(_ask_persons_tools(options, foundation.settings, rooms.network)))
        tasks.append(group.create_task(rooms.ports.keep_looking(rooms.boxes)))
        tasks.append(group.create_task(sandbox.keep_looking()))
        tasks.append(group.create_task(clock_watch.keep_looking()))
        tasks.append(group.create_task(rooms.history.keep_up()))
        tasks.append(
            group.create_task(
                keep_house(foundation.database, rooms.overflow, foundation.clock, foundation.settings.audit)
            )
        )
        tasks.append(group.create_task(watch_ownership(foundation.database, foundation.clock, stopping)))
        started.set()
        announce(address | {"machine": foundation.name, "pid_file": str(options.paths.daemon_lock)})
        heartbeat_s = options.uplink_timing.probe_interval_s
        tasks.append(group.create_task(keep_informed(options.notifier, foundation.clock, uplink_status, heartbeat_s)))
        await stopping.wait()
        await asyncio.to_thread(options.notifier.tell, "STOPPING=1")
        for task in tasks:
            task.cancel()


async def _ask_persons_tools(options: DaemonOptions, settings: Settings, network: Network) -> None:
    """Beside the start: some of these programs take a second to say what they are configured to use."""
    wanted = settings.network.presets
    if wanted:
        # Few have any, and every start would pay for it.
        from lodger_daemon.network.presets import PersonsTools

        tools = PersonsTools(options.paths.home, options.environment)
        network.add_presets(await asyncio.to_thread(tools.entries, wanted))


def _make_router(
    options: DaemonOptions,
    foundation: Foundation,
    rooms: Rooms,
    sandbox: SandboxCheck,
    clock_watch: ClockWatch,
    uplink_status: Callable[[], Any],
    writers: Writers,
) -> Router:
    port_commands = PortCommands(rooms.ports, rooms.shares)
    care = MemoryCare(rooms.memory, rooms.conversations)
    report = StatusReport(
        name=foundation.name,
        device_id=foundation.device_id,
        paths=options.paths,
        clock=foundation.clock,
        clock_watch=clock_watch,
        database=foundation.database,
        conversations=rooms.conversations,
        memory=rooms.memory,
        models=rooms.models,
        outcomes=rooms.models.outcomes.all,
        boxes=rooms.boxes,
        questions=rooms.questions,
        sandbox=sandbox,
        uplink=uplink_status,
        sections={
            "spend": rooms.spend.status,
            "ports": port_commands.section,
            "ssh_agent": AgentLook(
                options.environment.get("SSH_AUTH_SOCK", ""), asked=foundation.settings.network.ssh_agent
            ).section,
            **care.sections(),
            "memory_writers": WriterCommands(writers, rooms.conversations).section,
        },
    )
    porter = Porter(foundation.database, foundation.clock, SystemRng())
    porting = PortingCommands(porter, rooms.conversations, options.paths.state, foundation.clock, SystemRng())
    return Router(
        ClientServices(
            conversations=rooms.conversations,
            models=rooms.models,
            facts=Machine(foundation.name, str(foundation.workspace), foundation.requests.memory_inside, rooms.rules),
            external_tools=rooms.external,
            clock=foundation.clock,
            rng=SystemRng(),
            answered_elsewhere={
                "lodger_status": report.status,
                "lodger_waiting": report.waiting,
                "lodger_memory_settled": report.memory_settled,
                "lodger_memory_state": care.state,
                "lodger_memory_sync": care.sync,
                "lodger_memory_resolve": care.resolve,
                "lodger_memory_writers": WriterCommands(writers, rooms.conversations).answer,
                "lodger_memory_shared": care.shared,
                "lodger_memory_kept": KeptCommands(rooms.memory, rooms.conversations).answer,
                "lodger_search": SearchCommand(rooms.history).answer,
                "lodger_background_stop": StopCommand(rooms.tasks, rooms.boxes).answer,
                "lodger_ports": port_commands.show,
                "lodger_ports_open": port_commands.open,
                "lodger_ports_share": port_commands.share,
                "lodger_ports_close": port_commands.close,
                "lodger_export": porting.export,
                "lodger_import": porting.import_,
            },
            memory=MemoryCommands(
                rooms.memory, rooms.conversations, foundation.requests.memory_inside, foundation.clock
            ),
            places=PlaceCommands(rooms.conversations, rooms.folders),
            workplaces=rooms.workplaces,
        )
    )


async def _listen(options: DaemonOptions, foundation: Foundation, router: Router) -> tuple[AppServer, dict[str, Any]]:
    """Let clients in: always on the machine's own socket, on TCP when asked. Returns what to announce."""
    listen = options.listen
    token = await asyncio.to_thread(_token, options, listen) if listen else None
    server = AppServer(router, foundation.clock, AppServerOptions(token, partial(_note_lockout, foundation.audit)))
    await server.start_unix(options.paths.socket)
    if listen is None:
        return server, {"type": "ready", "socket": str(options.paths.socket)}
    parts = urlsplit(listen.url)
    if parts.scheme != "ws" or parts.username or parts.query or parts.fragment or not parts.hostname:
        raise StartRefused(f"{listen.url}: give an address such as ws://127.0.0.1:0")
    port = await server.start_tcp(parts.hostname, parts.port or 0)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    address = {"type": "listening", "url": f"ws://{host}:{port}/ws"}
    if token is not None and token.file is not None:
        address["token_file"] = str(token.file)
    return server, address


def _note_lockout(audit: AuditLog, source: str, locked_s: float) -> None:
    audit.note("app-server", "client.locked_out", source, {"seconds": round(locked_s)})


def _token(options: DaemonOptions, listen: ListenOptions) -> CapabilityToken:
    """With `--ws-auth` the one that was named, for everybody; else one of our own, for whom nothing else vouches."""
    if listen.auth == "capability-token":
        file = Path(listen.token_file) if listen.token_file else None
        return CapabilityToken(file=file, sha256_hex=listen.token_sha256 or None)
    if listen.auth:
        raise StartRefused(f"--ws-auth {listen.auth} is not known; `capability-token` is")
    own = options.paths.state / "app-server.token"
    ensure_token(own)
    return CapabilityToken(file=own, required=False)
