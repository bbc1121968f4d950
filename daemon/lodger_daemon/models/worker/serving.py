"""The loop of a model worker, the same for every kind: orders in, reports out, until the daemon's end is closed."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Protocol, assert_never

from lodger_daemon.models.contract import FailureKind, ModelFailure
from lodger_daemon.models.core.frames import (
    LINE_LIMIT_BYTES,
    READY_LINE,
    CancelOrder,
    ForgetOrder,
    ListedModel,
    ListOrder,
    ModelsListed,
    Order,
    Report,
    StepOrder,
    read_order,
)
from lodger_daemon.models.core.lines import LineReader
from lodger_daemon.models.worker.outbox import Outbox


class Caller(Protocol):
    """How one kind of worker talks to providers."""

    async def step(self, order: StepOrder, body: bytes, put: Callable[[Report], None], outbox: Outbox) -> None:
        """Put the chunks of one step, `StepEnded` last. Raises: ModelFailure. Cancelling it closes the request."""
        ...

    async def list_models(self, order: ListOrder) -> tuple[ListedModel, ...]:
        """Raises: ModelFailure."""
        ...

    def forget(self, provider_name: str) -> None: ...

    async def aclose(self) -> None: ...


async def serve(channel: socket.socket, caller: Caller) -> None:
    """Return when the daemon is gone; every request under way is closed then."""
    loop = asyncio.get_running_loop()
    gone = asyncio.StreamReader()
    orders = _Orders(gone)
    transport, _ = await loop.create_unix_connection(lambda: orders, sock=channel)
    writer = asyncio.StreamWriter(transport, orders, gone, loop)
    outbox = Outbox(writer)
    running: dict[int, asyncio.Task[None]] = {}

    def take(order: Order, body: bytes) -> None:
        match order:
            case CancelOrder(number):
                if task := running.get(number):
                    task.cancel()
            case ForgetOrder(name):
                caller.forget(name)
            case StepOrder() | ListOrder():
                task = group.create_task(_answer(caller, order, body, outbox))
                running[order.number] = task
                task.add_done_callback(partial(_drop, running, order.number))
            case _:
                assert_never(order)

    try:
        async with asyncio.TaskGroup() as group:
            orders.take = take
            writer.write(READY_LINE)
            # Orders are taken as they arrive, so nothing is left to read but the end.
            await gone.read()
            for task in list(running.values()):
                task.cancel()
    except* ConnectionError:
        # The daemon was killed: its requests are of no use to anybody.
        pass
    finally:
        await caller.aclose()
        writer.close()


class _Orders(asyncio.StreamReaderProtocol):
    """Gives each order on as it arrives: a reader of its own would cost a step two turns of the event loop.

    Attributes:
        take: called with each order and the body that belongs to it. What it raises ends the connection.
    """

    def __init__(self, gone: asyncio.StreamReader) -> None:
        super().__init__(gone)
        self.take: Callable[[Order, bytes], None]
        self._lines = LineReader(LINE_LIMIT_BYTES)
        self._step: StepOrder | None = None
        """Read, while its body is not."""

    def data_received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if self._step is not None:
                step, self._step = self._step, None
                self.take(step, line)
            elif isinstance(order := read_order(line), StepOrder):
                self._step = order
            else:
                self.take(order, b"")


def _drop(running: dict[int, asyncio.Task[None]], number: int, _task: asyncio.Task[None]) -> None:
    running.pop(number, None)


async def _answer(caller: Caller, order: StepOrder | ListOrder, body: bytes, outbox: Outbox) -> None:
    output_seen = False

    def put(report: Report) -> None:
        nonlocal output_seen
        output_seen = True
        outbox.put(order.number, report)

    try:
        if isinstance(order, StepOrder):
            await caller.step(order, body, put, outbox)
        else:
            put(ModelsListed(await caller.list_models(order)))
    except ModelFailure as failure:
        failure.output_seen = output_seen
        outbox.put(order.number, failure)
    except ConnectionError:
        raise
    except Exception as fault:  # noqa: BLE001 - one broken answer must not end the other requests of this worker
        words = f"The model worker failed: {type(fault).__name__}"
        outbox.put(order.number, ModelFailure(FailureKind.SERVER, words, output_seen=output_seen))
