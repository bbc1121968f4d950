"""`lodger up`: hub and daemon on this machine as two processes, kept running, with progress shown."""

import asyncio
import contextlib
import dataclasses
import fcntl
import os
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any, Final

from lodger_cli.hub_api import HubApi
from lodger_cli.pair import new_pairing, pairing_lines
from lodger_cli.places import HubPlace, known_hub, paths
from lodger_cli.processes import Child, StartError
from lodger_cli.runtime import first_agent
from lodger_cli.serve import HubFlags
from lodger_cli.terminal import Exit, fail, note, say, say_json
from lodger_cli.wire import WireClient, WireError
from lodger_daemon.paths import Paths
from lodger_daemon.waiting import until_one_ends

LINK_LIMIT_S: Final = 30.0
SERVICE_LIMIT_S: Final = 5.0
"""For the link of a daemon that runs already."""
GOING_LIMIT_S: Final = 2.0
"""A daemon that loses whoever started it has gone by then."""
SANDBOX_LIMIT_S: Final = 3.0
"""How long the first probe is waited for: it takes about a second."""
RESTART_AFTER_S: Final = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Waits before a process that ended by itself is started again; the last one repeats."""
STEADY_AFTER_S: Final = 60.0
_BY_UP: Final = "  Ctrl-C where `lodger up` runs stops both."
_NOT_BY_UP: Final = "  No `lodger up` started it; as a service it is stopped by `lodger service uninstall`."


@dataclass(frozen=True, slots=True)
class Ready:
    """What a person or a program needs to go on."""

    hub: HubPlace
    facts: dict[str, Any]
    agent: str


def up(flags: HubFlags, *, as_json: bool) -> None:
    """Run until interrupted. A second `lodger up` finds the first, tells of it and ends."""
    where = paths()
    where.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = (where.state / "up.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        asyncio.run(_show_running(where, _BY_UP, as_json=as_json))
        return
    try:
        if _daemon_stays(where):
            # As a service, most likely. A second hub would only make commands here look for the wrong one.
            asyncio.run(_show_running(where, _NOT_BY_UP, as_json=as_json, limit_s=SERVICE_LIMIT_S))
            return
        asyncio.run(_Keeper(where, flags, as_json).run())
    except (StartError, WireError) as error:
        fail(str(error), Exit.UNREACHABLE)
    finally:
        lock.close()


def _daemon_stays(where: Paths) -> bool:
    """Whether a daemon runs here that nobody is just stopping, such as one whose `lodger up` was killed."""
    deadline = time.monotonic() + GOING_LIMIT_S
    while _daemon_answers(where):
        if time.monotonic() > deadline:
            return True
        time.sleep(0.1)
    return False


def _daemon_answers(where: Paths) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(where.socket))
        except OSError:
            return False
    return True


async def _show_running(where: Paths, how_it_stops: str, *, as_json: bool, limit_s: float = LINK_LIMIT_S) -> None:
    try:
        ready = await _wait_ready(where, limit_s)
    except WireError as error:
        fail(f"a daemon runs here already, but not with a hub that answers: {error}. Stop it first")
    if as_json:
        _announce_to_programs(ready)
        return
    _announce(ready, "was up already", "")
    say(how_it_stops)


class _Keeper:
    """Owns the two processes: starts them in order, starts them again when they end, stops them in order."""

    def __init__(self, where: Paths, flags: HubFlags, as_json: bool) -> None:
        self._where = where
        self._flags = flags
        self._as_json = as_json
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(signal_number, self._stopping.set)
        self._progress("Starting the hub …")
        hub = await self._start_hub()
        self._progress(f"The hub listens at {hub.first_line['url']}")
        try:
            self._progress("Starting the daemon …")
            daemon = await self._start_daemon()
        except StartError:
            await hub.stop()
            raise
        try:
            ready = await _wait_ready(self._where)
        except WireError:
            await daemon.stop()
            await hub.stop()
            raise
        if self._as_json:
            _announce_to_programs(ready)
        else:
            _announce(ready, "is up", ", in another terminal")
            note("  Ctrl-C here stops both.")
        await self._keep(hub, daemon)

    async def _keep(self, hub: Child, daemon: Child) -> None:
        async with asyncio.TaskGroup() as group:
            hub_task = group.create_task(self._watch("hub", hub))
            daemon_task = group.create_task(self._watch("daemon", daemon))
            await self._stopping.wait()
            self._progress("Stopping …")
            await daemon_task
            await hub_task

    async def _watch(self, name: str, child: Child) -> None:
        """Until we stop: wait for the process to end, start it again."""
        failures = 0
        while True:
            started = time.monotonic()
            ended = await self._ended(child)
            if not ended:
                await child.stop()
                return
            with contextlib.suppress(OSError):
                os.close(child.alive_fd)
            failures = 0 if time.monotonic() - started > STEADY_AFTER_S else failures + 1
            replacement = await self._start_again(name, failures)
            if replacement is None:
                return
            child = replacement

    async def _ended(self, child: Child) -> bool:
        """True when the process ended by itself, False when we are to stop."""
        await until_one_ends(child.process.wait(), self._stopping.wait())
        return not self._stopping.is_set()

    async def _start_again(self, name: str, failures: int) -> Child | None:
        while not self._stopping.is_set():
            delay_s = RESTART_AFTER_S[min(failures, len(RESTART_AFTER_S)) - 1] if failures else RESTART_AFTER_S[0]
            note(f"The {name} ended by itself; starting it again in {delay_s:.0f} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)
                return None
            try:
                return await (self._start_hub() if name == "hub" else self._start_daemon())
            except StartError as error:
                failures += 1
                note(f"lodger: {error}")
        return None

    async def _start_hub(self) -> Child:
        log = str(self._where.state / "hub.log")
        try:
            child = await Child.start(self._flags.arguments(), os.environ, log)
        except StartError:
            if self._flags.port == 0 or _is_free(self._flags.port):
                raise
            self._progress(f"Port {self._flags.port} is taken; using a free one")
            self._flags = dataclasses.replace(self._flags, port=0)
            child = await Child.start(self._flags.arguments(), os.environ, log)
        # A restart must come back where clients know it.
        lan_ports = [_port_of(page["url"]) for page in child.first_line["pages"] if page["reach"] == "lan"]
        self._flags = dataclasses.replace(
            self._flags,
            port=_port_of(child.first_line["url"]),
            lan_port=lan_ports[0] if lan_ports else self._flags.lan_port,
        )
        return child

    async def _start_daemon(self) -> Child:
        hub = known_hub(self._where)
        if hub is None:
            raise StartError("the hub left no token for this machine in its folder")
        arguments = ["daemon", "--hub", hub.url, "--hub-token-file", str(hub.machine_token_file)]
        return await Child.start(arguments, os.environ, str(self._where.state / "daemon.log"))

    def _progress(self, text: str) -> None:
        if not self._as_json:
            note(text)


def _port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1].strip("/"))


def _is_free(port: int) -> bool:
    """Whether it was not for its port that the hub did not start."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


async def _wait_ready(where: Paths, limit_s: float = LINK_LIMIT_S) -> Ready:
    """Wait until the daemon answers, its link to the hub is up and there is an agent. Raises: WireError."""
    started = time.monotonic()
    client = await WireClient.over_socket(where.socket)
    try:
        while True:
            facts = (await client.request({"type": "lodger_status"}))["status"]
            hub = known_hub(where)
            waited_s = time.monotonic() - started
            is_checked = facts["sandbox"]["holds"] is not None or waited_s > SANDBOX_LIMIT_S
            if hub is not None and facts["uplink"]["state"] == "connected" and is_checked:
                return Ready(hub, facts, await first_agent(client))
            if waited_s > limit_s:
                raise WireError(f"the daemon did not reach the hub: {facts['uplink']}")
            await asyncio.sleep(0.05)
    finally:
        await client.close()


def _announce_pairing(hub: HubPlace) -> None:
    try:
        lines = pairing_lines(new_pairing(HubApi(hub)))
    except WireError as error:
        note(f"lodger: there is no pairing code now: {error}; `lodger pair` asks again")
        return
    for line in lines:
        say(line)


def _announce_to_programs(ready: Ready) -> None:
    machine = ready.facts["machine"]
    say_json(
        {
            "type": "ready",
            "hub_url": ready.hub.url,
            "client_token": ready.hub.client_token,
            "machine": machine["name"],
            "device_id": machine["device_id"],
            "agent": ready.agent,
            "model": ready.facts["model"]["default"],
        }
    )


def _announce(ready: Ready, state: str, where_to_type: str) -> None:
    """`where_to_type`: this terminal is taken by a Lodger that was started here, and free otherwise."""
    model = ready.facts["model"]
    say("")
    say(f"  Lodger {state} on {ready.facts['machine']['name']}.")
    say(f"  Hub      {ready.hub.url}")
    say(f"  Model    {model['default']}")
    if model["practice"]:
        say("           (offline and rule-based; `lodger connect` connects a real one)")
    say(f"  Sandbox  {ready.facts['sandbox']['summary']}")
    _announce_pairing(ready.hub)
    say("")
    say(f'  Try{where_to_type}:  .venv/bin/lodger chat   or   .venv/bin/lodger ask "What can you do?"')
