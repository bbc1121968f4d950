"""The loop of a worker: orders arrive cut anywhere, and end with the daemon."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from lodger_daemon.models.contract import FinishReason, StepEnded, TextChunk, Usage
from lodger_daemon.models.core.frames import (
    READY_LINE,
    CancelOrder,
    ForgetOrder,
    ListedModel,
    ListOrder,
    Order,
    Report,
    StepOrder,
    order_line,
    read_order,
)
from lodger_daemon.models.core.providers import Dialect, Provider
from lodger_daemon.models.worker.outbox import Outbox
from lodger_daemon.models.worker.serving import serve
from support.patience import LIMIT_S

PROVIDER = Provider("mine", "http://127.0.0.1:1/v1", Dialect.OPENAI)
HOLD = b'{"hold":true}'


class Recorder:
    """A caller that repeats what it was asked, and holds on where it is told to."""

    def __init__(self) -> None:
        self.forgot: list[str] = []
        self.cancelled: list[int] = []
        self.is_closed = False

    async def step(self, order: StepOrder, body: bytes, put: Callable[[Report], None], outbox: Outbox) -> None:
        put(TextChunk(f"{order.model} {body.decode()}"))
        if body == HOLD:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.append(order.number)
        put(StepEnded(FinishReason.STOP, Usage()))

    async def list_models(self, order: ListOrder) -> tuple[ListedModel, ...]:
        return (ListedModel(f"of {order.provider.name}"),)

    def forget(self, provider_name: str) -> None:
        self.forgot.append(provider_name)

    async def aclose(self) -> None:
        self.is_closed = True


@dataclass(frozen=True)
class Daemon:
    """Its end of the pipe."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    worker: asyncio.Task[None]
    caller: Recorder

    async def report(self) -> list[object]:
        fields = json.loads(await asyncio.wait_for(self.reader.readline(), LIMIT_S))
        assert isinstance(fields, list)
        return fields


@asynccontextmanager
async def worked() -> AsyncIterator[Daemon]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    caller = Recorder()
    worker = asyncio.create_task(serve(theirs, caller))
    try:
        assert await asyncio.wait_for(reader.readline(), LIMIT_S) == READY_LINE
        yield Daemon(reader, writer, worker, caller)
    finally:
        writer.close()
        await asyncio.wait_for(asyncio.gather(worker, return_exceptions=True), LIMIT_S)
        assert caller.is_closed


@pytest.mark.parametrize(
    "order",
    [
        StepOrder(1, PROVIDER, 'a "model" of \\ \ud800 ü'),
        StepOrder(2, replace(PROVIDER, base_url="http://127.0.0.1:2/v1", models=("a", "b"), context_window=7), "a"),
        ListOrder(3, replace(PROVIDER, name='"mine"', bearer="token")),
        CancelOrder(4),
        ForgetOrder('"mine"'),
    ],
)
def test_an_order_is_read_as_it_was_given(order: Order) -> None:
    for _ in range(2):
        assert read_order(order_line(order)) == order


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
async def test_orders_may_be_cut_anywhere(size: int) -> None:
    orders = order_line(StepOrder(1, PROVIDER, "a")) + b'{"x":"\\u00fc"}\n' + order_line(ForgetOrder("mine"))
    orders += order_line(StepOrder(2, PROVIDER, "b")) + b"{}\n" + order_line(ListOrder(3, PROVIDER))
    async with worked() as daemon:
        for at in range(0, len(orders), size):
            daemon.writer.write(orders[at : at + size])
            await daemon.writer.drain()
            await asyncio.sleep(0)
        reports = [await daemon.report() for _ in range(5)]
    ended = ["e", "stop", [0, 0, 0, 0, 0], None]
    assert [report for report in reports if report[0] == 1] == [[1, "t", 'a {"x":"\\u00fc"}'], [1, *ended]]
    assert [report for report in reports if report[0] == 2] == [[2, "t", "b {}"], [2, *ended]]
    assert [report for report in reports if report[0] == 3] == [[3, "m", [["of mine", 0, 0, []]]]]
    assert daemon.caller.forgot == ["mine"]


async def test_a_step_is_cancelled_and_the_others_go_on() -> None:
    async with worked() as daemon:
        for number in (1, 2):
            daemon.writer.write(order_line(StepOrder(number, PROVIDER, "a")) + HOLD + b"\n")
            await daemon.report()
        daemon.writer.write(
            order_line(CancelOrder(1)) + order_line(CancelOrder(9)) + order_line(ListOrder(3, PROVIDER))
        )
        assert (await daemon.report())[:2] == [3, "m"]
        assert daemon.caller.cancelled == [1]


async def test_the_daemons_end_ends_every_step() -> None:
    async with worked() as daemon:
        daemon.writer.write(order_line(StepOrder(1, PROVIDER, "a")) + HOLD + b"\n")
        await daemon.report()
        daemon.writer.close()
        await asyncio.wait_for(daemon.worker, LIMIT_S)
        assert daemon.caller.cancelled == [1]


async def test_an_order_that_is_none_ends_the_worker() -> None:
    async with worked() as daemon:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        daemon.writer.write(b"no order\n")
        with pytest.raises(ExceptionGroup) as raised:
            await asyncio.wait_for(daemon.worker, LIMIT_S)
        assert raised.group_contains(json.JSONDecodeError)
