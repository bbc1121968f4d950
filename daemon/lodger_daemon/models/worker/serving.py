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
    Report,
    StepOrder,
    read_order,
)
from lodger_daemon.models.worker.outbox import Outbox


class Caller(Protocol):
    """How one kind of worker talks to providers."""

    async def step(self, order: StepOrder, body: bytes, put: Callable[[Report], None], outbox: Outbox) -> None:
        """Put the chunks of one step, `StepEnded` last. Raises: ModelFailure. Cancelling it closes the request."""
        ...

    async def list_models(self, order: ListOrder) -> tuple[ListedModel, ...]:
        """Raises: ModelFailure."""
        ...

    async def forget(self, provider_name: str) -> None: ...

    async def aclose(self) -> None: ...


async def serve(channel: socket.socket, caller: Caller) -> None:
    """Return when the daemon is gone; every request under way is closed then."""
    reader, writer = await asyncio.open_connection(sock=channel, limit=LINE_LIMIT_BYTES)
    outbox = Outbox(writer)
    running: dict[int, asyncio.Task[None]] = {}
    writer.write(READY_LINE)
    try:
        async with asyncio.TaskGroup() as group:
            while line := await reader.readline():
                order = read_order(line)
                match order:
                    case CancelOrder(number):
                        if task := running.get(number):
                            task.cancel()
                    case ForgetOrder(name):
                        await caller.forget(name)
                    case StepOrder() | ListOrder():
                        body = await reader.readline() if isinstance(order, StepOrder) else b""
                        task = group.create_task(_answer(caller, order, body, outbox))
                        running[order.number] = task
                        task.add_done_callback(partial(_drop, running, order.number))
                    case _:
                        assert_never(order)
            for task in list(running.values()):
                task.cancel()
    except* ConnectionError:
        # The daemon was killed: its requests are of no use to anybody.
        pass
    finally:
        await caller.aclose()
        writer.close()


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
