"""The daemon's end of one connection to one runner: many calls in flight, everything read as hostile."""

import asyncio
import contextlib
from enum import Enum
from typing import Final, TypeAlias

from lodger_tools.box.contract import BoxCall, BoxLost, BoxOutcome, OutputPart, OutputSink, RunProgram, StillRuns
from lodger_tools.box.core.wire_calls import (
    decode_outcome,
    decode_part,
    output_limit_bytes,
    start_frame,
    time_limit_s,
)
from lodger_tools.json_value import JsonObject
from lodger_tools.runner.kept_output import HEAD_LIMIT_BYTES, TAIL_LIMIT_BYTES, KeptOutput
from lodger_tools.runner.wire import (
    LAST_OUTPUT_BYTES,
    TO_DAEMON_HEADER_LIMIT_BYTES,
    TO_DAEMON_PAYLOAD_LIMIT_BYTES,
    VERSION,
    FrameReader,
    WireError,
    encode_frame,
    fits_into_runner,
)

HELLO_WITHIN_S: Final = 10.0
ANSWER_WITHIN_S: Final = 10.0
CANCEL_WITHIN_S: Final = 5.0
"""TERM, 2 s, KILL, and a margin."""
COLLECT_WITHIN_S: Final = 700.0
"""Above the longest time a command may be given (600 s)."""
NOT_KEPT: Final = "the outcome of this call is no longer kept"


class Begun(Enum):
    """The runner has started a call in the background."""

    BEGUN = "begun"


Settled: TypeAlias = BoxOutcome | StillRuns | Begun | None
"""How the waiting for a call ends; None when the runner does not know the call."""


class Pending:
    """One call that waits for its end."""

    __slots__ = ("begins", "data_wanted", "future", "output", "sink")

    def __init__(
        self, output: KeptOutput, sink: OutputSink | None, data_wanted: bool = False, begins: bool = False
    ) -> None:
        """With `begins`, its start is what is waited for."""
        self.begins = begins
        self.output = output
        self.sink = sink
        self.data_wanted = data_wanted
        self.future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()


class BoxLink(asyncio.Protocol):
    """Made by `connect_box`. When the connection ends, every call in flight ends with BoxLost."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(TO_DAEMON_HEADER_LIMIT_BYTES, TO_DAEMON_PAYLOAD_LIMIT_BYTES)
        self._pending: dict[int, Pending] = {}
        self._answers: dict[int, asyncio.Future[tuple[JsonObject, bytes]]] = {}
        self._next_id = 0
        self._greeted = asyncio.get_running_loop().create_future()
        self.closed = asyncio.Event()

    @property
    def running_calls(self) -> int:
        return len(self._pending)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send(encode_frame({"do": "hello", "token": self._token}))

    def data_received(self, data: bytes) -> None:
        try:
            for header, payload in self._reader.feed(data):
                self._take(header, payload)
        except WireError as error:
            self._fail(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the box has ended")

    def _fail(self, why: str) -> None:
        if self.closed.is_set():
            return
        self.closed.set()
        if self._transport is not None:
            self._transport.abort()
        waiting: list[asyncio.Future[tuple[JsonObject, bytes]] | asyncio.Future[Settled]] = [self._greeted]
        waiting += [pending.future for pending in self._pending.values()]
        waiting += self._answers.values()
        for future in waiting:
            if not future.done():
                future.set_exception(BoxLost(why))
                # Marked as seen: whoever waited may have been cancelled already.
                future.exception()

    def _send(self, frame: bytes) -> None:
        if self._transport is None or self.closed.is_set():
            raise BoxLost("the box has ended")
        self._transport.write(frame)

    def _start(self, call_id: int, pending: Pending, call: BoxCall, *, background: bool = False) -> None:
        frame = start_frame(call_id, call, background)
        if fits_into_runner(frame):
            self._send(frame)
        else:
            # A runner would end the connection, and with it everything else that runs there.
            pending.future.set_result(BoxOutcome("error", f"{len(frame):,} bytes are too many for a call in a box"))

    def _take(self, header: JsonObject, payload: bytes) -> None:
        kind, call_id = header.get("is"), header.get("id")
        if kind == "hello":
            if header.get("version") != VERSION:
                raise WireError("the runner speaks another version")
            if not self._greeted.done():
                self._greeted.set_result((header, payload))
        elif not isinstance(call_id, int):
            raise WireError("a frame without a number")
        elif kind == "answer":
            answer = self._answers.pop(call_id, None)
            if answer is not None and not answer.done():
                answer.set_result((header, payload))
        elif (pending := self._pending.get(call_id)) is not None:
            self._take_for(call_id, pending, kind, header, payload)

    def _take_for(self, call_id: int, pending: Pending, kind: object, header: JsonObject, payload: bytes) -> None:
        match kind:
            case "output":
                if header.get("offset") != pending.output.total_bytes:
                    raise WireError("output at another place than expected")
                pending.output.append(payload)
                if pending.sink is not None:
                    pending.sink(payload)
            case "gap":
                size = header.get("bytes")
                if not isinstance(size, int) or size < 0:
                    raise WireError("a gap without a size")
                pending.output.leave_out(size)
            case "done":
                self._settle(call_id, decode_outcome(header, payload, pending.output, pending.data_wanted))
            case "started" if pending.begins:
                self._settle(call_id, Begun.BEGUN)
            case "unknown" | "dropped":
                self._settle(call_id, None)
            case _:
                raise WireError("a frame of an unknown kind")

    def _settle(self, call_id: int, outcome: Settled) -> None:
        pending = self._pending.pop(call_id)
        if not pending.future.done():
            pending.future.set_result(outcome)

    async def greeted(self) -> None:
        """Wait until the runner has accepted the token. Raises: BoxLost; TimeoutError."""
        async with asyncio.timeout(HELLO_WITHIN_S):
            await asyncio.shield(self._greeted)

    async def run(self, call: BoxCall, sink: OutputSink | None) -> BoxOutcome:
        """Run a call to its end. When the waiter is cancelled, its processes are ended first (at most 5 s).

        Raises: BoxLost, also for a runner that stays silent past every limit.
        """
        limit = output_limit_bytes(call.operation)
        output = KeptOutput(HEAD_LIMIT_BYTES, TAIL_LIMIT_BYTES) if limit is None else KeptOutput(limit, 0)
        pending = Pending(output, sink, isinstance(call.operation, RunProgram))
        call_id = self._register(pending)
        self._start(call_id, pending, call)
        outcome = await self._wait(call_id, call.call_key, pending, time_limit_s(call.operation))
        assert isinstance(outcome, BoxOutcome | None)  # nothing else was asked for
        if outcome is None:
            raise BoxLost(NOT_KEPT)
        return outcome

    async def run_a_while(self, call: BoxCall, sink: OutputSink | None, foreground_s: float) -> BoxOutcome | StillRuns:
        """The same, but a call that runs longer than that is left to run. Raises: BoxLost."""
        pending = Pending(KeptOutput(), sink)
        call_id = self._register(pending)
        self._start(call_id, pending, call)
        outcome = await self._wait_a_while(call_id, call.call_key, pending, foreground_s)
        if outcome is None:
            raise BoxLost(NOT_KEPT)
        return outcome

    async def begin(self, call: BoxCall) -> BoxOutcome | None:
        """Start a call that nobody waits for; an outcome when it has ended already. Raises: BoxLost."""
        pending = Pending(KeptOutput(), None, begins=True)
        call_id = self._register(pending)
        self._start(call_id, pending, call, background=True)
        outcome = await self._wait(call_id, call.call_key, pending, ANSWER_WITHIN_S)
        assert not isinstance(outcome, StillRuns)  # nobody leaves a call that is not followed
        if outcome is None:
            raise BoxLost(NOT_KEPT)
        return outcome if isinstance(outcome, BoxOutcome) else None

    async def watch(self, call_key: str) -> BoxOutcome | None:
        """The end of a call that was left to run, however late; None when this runner does not know it. Raises:
        BoxLost."""
        pending = Pending(KeptOutput(0, 0), None)
        call_id = self._register(pending)
        try:
            self._send(encode_frame({"do": "watch", "id": call_id, "key": call_key}))
            outcome = await pending.future
        finally:
            self._pending.pop(call_id, None)
        assert isinstance(outcome, BoxOutcome | None)
        return outcome

    async def read(self, call_key: str, offset: int, limit_bytes: int) -> OutputPart | None:
        """Raises: BoxLost; TimeoutError."""
        limit = min(limit_bytes, LAST_OUTPUT_BYTES)
        return decode_part(*await self._asked({"do": "read", "key": call_key, "offset": offset, "limit": limit}))

    async def write(self, call_key: str, data: bytes) -> bool | None:
        """Whether a session took the input; None when this runner does not know it. Raises: BoxLost; TimeoutError."""
        answer, _ = await self._asked({"do": "input", "key": call_key}, data)
        return answer.get("taken") is True if answer.get("known") is True else None

    def cancel(self, call_key: str) -> None:
        """Raises: BoxLost."""
        self._send(encode_frame({"do": "cancel", "key": call_key}))

    async def collect(self, call_key: str, data_wanted: bool = False) -> BoxOutcome | None:
        """The outcome of a call that somebody started before; None when this runner does not know it."""
        pending = Pending(KeptOutput(), None, data_wanted)
        call_id = self._resume(call_key, pending)
        outcome = await self._wait(call_id, call_key, pending, COLLECT_WITHIN_S)
        assert isinstance(outcome, BoxOutcome | None)
        return outcome

    async def collect_a_while(self, call_key: str, foreground_s: float) -> BoxOutcome | StillRuns | None:
        """The same, but a call that runs longer than that is left to run."""
        pending = Pending(KeptOutput(), None)
        call_id = self._resume(call_key, pending)
        return await self._wait_a_while(call_id, call_key, pending, foreground_s)

    def _resume(self, call_key: str, pending: Pending) -> int:
        call_id = self._register(pending)
        self._send(encode_frame({"do": "resume", "id": call_id, "key": call_key, "offset": 0}))
        return call_id

    async def _wait_a_while(
        self, call_id: int, call_key: str, pending: Pending, foreground_s: float
    ) -> BoxOutcome | StillRuns | None:
        timer = asyncio.get_running_loop().call_later(foreground_s, self._leave, call_id)
        try:
            outcome = await self._wait(call_id, call_key, pending, None)
        finally:
            timer.cancel()
        assert not isinstance(outcome, Begun)
        return outcome

    def _leave(self, call_id: int) -> None:
        pending = self._pending.get(call_id)
        if pending is None or pending.future.done() or self.closed.is_set():
            return
        self._send(encode_frame({"do": "leave", "id": call_id}))
        _, last = pending.output.part(-LAST_OUTPUT_BYTES, LAST_OUTPUT_BYTES)
        self._settle(call_id, StillRuns(last, pending.output.total_bytes))

    def _register(self, pending: Pending) -> int:
        self._next_id += 1
        self._pending[self._next_id] = pending
        return self._next_id

    async def _wait(self, call_id: int, call_key: str, pending: Pending, limit_s: float | None) -> Settled:
        """With a limit, a runner that is silent for longer is taken for broken."""
        try:
            if limit_s is None:
                return await pending.future
            # A timer of the loop is cheaper than a task around the wait.
            timer = asyncio.get_running_loop().call_later(limit_s, self._fail, "the runner does not answer")
            try:
                return await pending.future
            finally:
                timer.cancel()
        except asyncio.CancelledError:
            await self._cancel(call_id, call_key, pending)
            raise
        finally:
            self._pending.pop(call_id, None)

    async def _cancel(self, call_id: int, call_key: str, pending: Pending) -> None:
        """Ask the runner to end the call and wait for that; a second cancel ends the waiting."""
        done: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._pending[call_id] = waiting = Pending(pending.output, None, pending.data_wanted, pending.begins)
        waiting.future = done
        with contextlib.suppress(BoxLost, TimeoutError):
            self.cancel(call_key)
            async with asyncio.timeout(CANCEL_WITHIN_S):
                await done

    async def ask(self, what: str) -> JsonObject:
        """`list`, `ping` or `stop_all`. Raises: BoxLost; TimeoutError."""
        answer, _ = await self._asked({"do": what})
        return answer

    async def _asked(self, request: JsonObject, payload: bytes = b"") -> tuple[JsonObject, bytes]:
        self._next_id += 1
        call_id = self._next_id
        future: asyncio.Future[tuple[JsonObject, bytes]] = asyncio.get_running_loop().create_future()
        self._answers[call_id] = future
        try:
            self._send(encode_frame({**request, "id": call_id}, payload))
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return await future
        finally:
            self._answers.pop(call_id, None)

    def ask_to_end(self) -> None:
        with contextlib.suppress(BoxLost):
            self._send(encode_frame({"do": "end", "id": 0}))

    def close(self) -> None:
        """Let go of the box. What runs there goes on; whoever waits for it here is cancelled, since its outcome is
        not unknown but can be collected later."""
        for pending in self._pending.values():
            pending.future.cancel()
        self._fail("the connection was closed")
