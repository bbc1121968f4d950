"""One client, whatever carries its bytes: what it watches, what waits to be sent to it, what it asked."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from lodger_daemon.clients.core.bodies import Body, encode, event_body, finish
from lodger_daemon.clients.core.device_status import DeviceValues, device_status
from lodger_daemon.clients.core.rendering import DEVICE_STATUS
from lodger_daemon.clients.core.send_queue import DeviceRequest, SendQueue
from lodger_daemon.clients.core.times import TimestampWriter
from lodger_daemon.clients.errors import ClientCut
from lodger_daemon.clients.services import ClientServices
from lodger_daemon.clients.sharing import SharedRenderer
from lodger_daemon.identity import ConnectionId, ConversationKey
from lodger_daemon.turns.contract import ConversationSnapshot
from lodger_daemon.turns.core.events import (
    DeviceStateChanged,
    LoopStatusChanged,
    NumberedEvent,
    RunStopped,
    ToolCallRequested,
    ToolEnded,
    ToolOutput,
    ToolReturned,
    ToolStarted,
    UsageReported,
)
from lodger_protocol.capabilities import Capabilities
from lodger_protocol.limits import BUFFERED_BYTES_LIMIT, QUEUED_FRAMES_LIMIT
from lodger_tools.json_value import JsonObject

SEND_LIMIT_S: Final = 90.0
"""For some frames' way to the socket. As long as a client may leave pings unanswered before it is cut."""

FRAMES_PER_LIMIT: Final = 16
"""How many frames share one limit: the slowest reader that is kept takes one in 6 s. A step with a tool's call has some
twelve frames."""

WRITE_BYTES: Final = 32 * 1024
"""So much leaves at once, and the frame that reaches it: more would copy much to save little."""

GATHER_S: Final = 0.0005
"""How long frames may gather that tell of a step's work. By then what they tell of is under way: a tool's call in its
box, a request at the model. Before, each moment spent on them would be waited for. The kernel is asked to wake the loop
in whole milliseconds, so an idle loop sends them within one, a busy one after half of one."""

GATHERED: Final = (
    LoopStatusChanged,
    DeviceStateChanged,
    ToolCallRequested,
    ToolStarted,
    ToolOutput,
    ToolEnded,
    ToolReturned,
    UsageReported,
    RunStopped,
)
"""Events whose frames may gather. What else there is to tell, a model's text above all, takes them along at once."""

STALL_S: Final = 2.0
"""A client with too many frames waiting is cut only if it took none for so long: a model's burst of a thousand small
chunks arrives within one turn of the event loop and says nothing about the reader."""

COMMANDS_AT_ONCE: Final = 64
"""Commands of one client in work; the next is read when one is done, so its socket holds it back."""

SCOPES_LIMIT: Final = 1024
"""Conversations one client may watch: a desktop that has opened every conversation of a year."""

Work = Callable[[], Coroutine[None, None, None]]
"""A command's work, begun by calling it."""

SendFrames = Callable[[list[bytes]], Awaitable[None]]

NAME_LIMIT_CHARS: Final = 64
"""Of what a client calls itself."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Scope:
    """A conversation that this client watches."""

    key: ConversationKey
    unsubscribe: Callable[[], None]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    held: list[NumberedEvent] | None = None
    """Events that came while a snapshot is being taken; None when they go straight on."""
    last_device: bytes = b""
    """The device status this client saw last."""


@dataclass(frozen=True, slots=True)
class ConnectionTraits:
    """What is known of a client from how it came."""

    id: ConnectionId
    label: str
    local: bool
    """It came over loopback or the Unix socket: only then may it set provider keys."""
    wire_name: str
    """`current_connection_id` of its device status."""
    device_id: str = ""
    """The hub's id of the device it is on; empty for whoever did not come through a hub of ours."""


class ClientConnection:
    """Open until `close`. Commands come in by `receive`, in order; frames go out by the transport's `send`."""

    def __init__(
        self,
        services: ClientServices,
        renderer: SharedRenderer,
        traits: ConnectionTraits,
        handle: "Callable[[ClientConnection, bytes], Awaitable[None]]",
        send: SendFrames,
        cut: Callable[[], None] | None,
        closed: "Callable[[ClientConnection], None]",
    ) -> None:
        self.services = services
        self.traits = traits
        self.capabilities = Capabilities()
        self.client_name = "client"
        """As it calls itself: what the audit log has of who answered."""
        self._renderer = renderer
        self._handle = handle
        self._send = send
        self._cut = cut
        self._closed = closed
        self._queue = SendQueue(QUEUED_FRAMES_LIMIT, BUFFERED_BYTES_LIMIT)
        self._event_seq = 0
        self._last_sent = services.clock.mono()
        self._timestamps = TimestampWriter()
        self._scopes: dict[ConversationKey, Scope] = {}
        self._lanes: dict[ConversationKey, deque[Work]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(COMMANDS_AT_ONCE)
        self._wake = asyncio.Event()
        self._gathering: asyncio.TimerHandle | None = None
        self._drained = asyncio.Event()
        self._large = asyncio.Lock()
        self.is_open = True
        self._pump = asyncio.create_task(self._send_all())

    # -- for the transport --

    async def receive(self, frame: bytes) -> None:
        """Take one frame; returns when the next may be read. Raises: ClientCut when this connection is over."""
        if not self.is_open:
            raise ClientCut(f"{self.traits.label} was cut")
        await self._handle(self, frame)

    async def close(self) -> None:
        """The client has gone: nothing is delivered any more, its tools vanish, its accepted input stays."""
        self._stop()
        tasks = [*self._tasks, self._pump]
        current = asyncio.current_task()
        for task in tasks:
            if task is not current:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not current), return_exceptions=True)
        self._lanes.clear()

    # -- for handlers: answering --

    def respond(self, response: JsonObject) -> None:
        """Queue a frame without an envelope."""
        self.respond_bytes(encode(response))

    async def respond_large(self, response: JsonObject) -> None:
        """Queue a frame that may be larger than all that may wait otherwise; the next such waits for it."""
        async with self._large:
            # Encoded in turn: so large answers keep their order, and there is one of them in memory at a time.
            frame = await asyncio.to_thread(encode, response)
            async with asyncio.timeout(SEND_LIMIT_S):
                while self._queue.has_large and self.is_open:
                    self._drained.clear()
                    await self._drained.wait()
            if self.is_open:
                self._queue.add_large(frame)
                self._queued()

    def respond_bytes(self, frame: bytes) -> None:
        if self.is_open:
            self._queue.add_response(frame)
            self._queued()

    def show(self, body: Body, *, gathers: bool = False) -> None:
        """Queue an event frame for this client alone.

        Args:
            gathers: it may wait for others, for GATHER_S.
        """
        if self.is_open and (self.capabilities.resume or not body.beyond_v2):
            self._queue.add_body(body)
            self._queued(gathers)

    def show_device(
        self,
        key: ConversationKey,
        force: bool,
        snapshot: ConversationSnapshot | None = None,
        *,
        gathers: bool = False,
    ) -> None:
        """Queue the device status; unless forced it is sent only if it differs from the last this client saw."""
        if self.is_open:
            self._queue.add_device(key, force, snapshot)
            self._queued(gathers)

    def announce(self, capabilities: Capabilities, name: str = "") -> None:
        """What the client says of itself."""
        self.capabilities = capabilities
        self.client_name = name[:NAME_LIMIT_CHARS] or self.client_name
        self._queue.batch_deltas = capabilities.batch_deltas

    # -- for handlers: watching --

    def watches(self, key: ConversationKey) -> bool:
        return key in self._scopes

    def watch(self, key: ConversationKey) -> Scope:
        """Subscribe, once. Raises: ClientCut for a client that watches too many."""
        scope = self._scopes.get(key)
        if scope is None:
            if len(self._scopes) >= SCOPES_LIMIT:
                raise ClientCut(f"{self.traits.label} watches more than {SCOPES_LIMIT} conversations")
            unsubscribe = self.services.conversations.subscribe(key, self._hear)
            scope = self._scopes[key] = Scope(key, unsubscribe)
        return scope

    @asynccontextmanager
    async def holding(self, key: ConversationKey) -> AsyncIterator[list[NumberedEvent]]:
        """Keep this conversation's events back. What the caller leaves in the list is delivered at the end."""
        scope = self.watch(key)
        async with scope.lock:
            held: list[NumberedEvent] = []
            scope.held = held
            try:
                yield held
            finally:
                scope.held = None
                for numbered in held:
                    self._deliver(numbered)

    def replay(self, numbered: NumberedEvent) -> None:
        """Queue an event of the past, ahead of those that are held back."""
        self._deliver(numbered)

    async def room(self) -> None:
        """Wait until so little waits to be sent that a page of replayed events, or of a long answer, may follow."""
        async with asyncio.timeout(SEND_LIMIT_S):
            while len(self._queue) > QUEUED_FRAMES_LIMIT // 4 and self.is_open:
                self._drained.clear()
                await self._drained.wait()

    # -- for handlers: working --

    async def start(self, work: Work, lane: ConversationKey | None = None) -> None:
        """Run a command's work beside the reading; work of one lane runs in order. Waits for a free slot."""
        await self._slots.acquire()
        if not self.is_open:
            self._slots.release()
            raise ClientCut(f"{self.traits.label} was cut")
        if lane is None:
            self._own(self._in_slot(work))
        elif (waiting := self._lanes.get(lane)) is not None:
            waiting.append(work)
        else:
            self._lanes[lane] = deque([work])
            self._own(self._run_lane(lane))

    def _own(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_slot(self, work: Work) -> None:
        try:
            await work()
        finally:
            self._slots.release()

    async def _run_lane(self, key: ConversationKey) -> None:
        lane = self._lanes[key]
        while lane:
            await self._in_slot(lane.popleft())
        # Nothing is awaited between the look and the removal, so no work can slip in between.
        del self._lanes[key]

    # -- events --

    def _hear(self, numbered: NumberedEvent) -> None:
        scope = self._scopes.get(numbered.conversation)
        if scope is not None and scope.held is not None:
            scope.held.append(numbered)
            if len(scope.held) > 8 * QUEUED_FRAMES_LIMIT:
                self._give_up("more events came during a replay than may wait")
            return
        self._deliver(numbered)

    def _deliver(self, numbered: NumberedEvent) -> None:
        if isinstance(numbered.event, DeviceStateChanged):
            self.show_device(numbered.conversation, force=False, gathers=True)
            return
        body = self._renderer.body(numbered)
        if body is not None:
            self.show(body, gathers=isinstance(numbered.event, GATHERED))

    # -- sending --

    def _queued(self, gathers: bool = False) -> None:
        if self._queue.too_many_bytes:
            self._give_up("too many bytes wait to be sent to it")
        elif self._queue.too_many_frames and self.services.clock.mono() - self._last_sent > STALL_S:
            self._give_up(f"too many frames wait to be sent to it, and it took none for {STALL_S:g} s")
        if not gathers:
            self._wake.set()
        elif self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(GATHER_S, self._wake.set)

    async def _send_all(self) -> None:
        try:
            while self.is_open:
                await self._wake.wait()
                self._wake.clear()
                self._stop_gathering()
                # Counted from now: before, there was nothing to send.
                self._last_sent = self.services.clock.mono()
                await self._drain()
                self._drained.set()
        except TimeoutError:
            self._give_up(f"it took nothing for {SEND_LIMIT_S:g} s")
        except Exception as error:  # noqa: BLE001 - the one task loop here: any fault of a transport ends its connection
            self._give_up(f"{type(error).__name__}: {error}")

    def _stop_gathering(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None

    async def _drain(self) -> None:
        now = asyncio.get_running_loop().time
        # Setting a limit for each frame would cost as much as making the frame.
        async with asyncio.timeout(SEND_LIMIT_S) as limit:
            sent = 0
            while frames := await self._next_frames(FRAMES_PER_LIMIT - sent % FRAMES_PER_LIMIT):
                await self._send(frames)
                self._last_sent = self.services.clock.mono()
                sent += len(frames)
                if sent % FRAMES_PER_LIMIT == 0:
                    limit.reschedule(now() + SEND_LIMIT_S)
                    self._drained.set()

    async def _next_frames(self, most: int) -> list[bytes]:
        """What may leave together; nothing when nothing waits."""
        frames: list[bytes] = []
        size_bytes = 0
        while len(frames) < most and size_bytes < WRITE_BYTES and (item := self._queue.take()) is not None:
            frame = await self._device_frame(item) if isinstance(item, DeviceRequest) else self._finished(item)
            if frame is not None:
                frames.append(frame)
                size_bytes += len(frame)
        return frames

    def _finished(self, item: Body | bytes) -> bytes:
        if isinstance(item, bytes):
            return item
        self._event_seq += 1
        emitted_at = self._timestamps.write(self.services.clock.wall())
        return finish(item, self._event_seq, emitted_at, self.services.rng.uuid(), self.capabilities.resume)

    async def _device_frame(self, request: DeviceRequest) -> bytes | None:
        scope = self._scopes.get(request.key)
        if scope is None:
            return None
        snapshot = request.snapshot or await self.services.conversations.snapshot(request.key, with_queue=False)
        facts, agent_id = self.services.facts, request.key.agent_id
        workplaces = self.services.workplaces
        git: JsonObject | None = None
        left_running: tuple[JsonObject, ...] = ()
        if workplaces is not None:
            again = partial(self.show_device, request.key, force=False)
            git = workplaces.git_context(agent_id, snapshot.cwd, again)
            left_running = workplaces.background_processes(request.key, snapshot.cwd)
        values = DeviceValues(
            connection_id=self.traits.wire_name,
            connection_name=facts.connection_name,
            version=facts.version,
            memory_directory=facts.memory_directory(agent_id),
            git_context=git,
            background_processes=left_running,
        )
        body = event_body(DEVICE_STATUS, request.key, {"device_status": device_status(snapshot, values)})
        if body.head == scope.last_device and not request.force:
            return None
        scope.last_device = body.head
        return self._finished(body)

    # -- the end --

    def _give_up(self, reason: str) -> None:
        if not self.is_open:
            return
        _LOG.warning("client %s is cut: %s", self.traits.label, reason)
        self._stop()
        if self._cut is not None:
            self._cut()

    def _stop(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._stop_gathering()
        for scope in self._scopes.values():
            scope.unsubscribe()
        self._scopes.clear()
        self._wake.set()
        self._drained.set()
        self.services.external_tools.connection_closed(self.traits.id)
        self._closed(self)
