"""What goes to the service manager, over sockets that the test owns and on a clock that the test moves."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lodger_daemon.clock import MonoTime, WallTime
from lodger_daemon.service.notify import SILENT, Notifier
from lodger_daemon.service.watchdog import keep_informed
from lodger_daemon.uplink.core.status import UplinkState, UplinkStatus
from support.notify_socket import NotifySocket


@dataclass
class SteppedClock:
    """Every sleep ends at once, at its time and `late_s` later; after `most` of them the watcher is cancelled."""

    most: int
    now: float = 1000.0
    late_s: float = 0.0
    slept: list[float] = field(default_factory=list)
    on_sleep: Callable[[int], None] = lambda _: None

    def wall(self) -> WallTime:
        return WallTime(self.now)

    def mono(self) -> MonoTime:
        return MonoTime(self.now)

    async def sleep(self, delay_s: float) -> None:
        if len(self.slept) == self.most:
            raise asyncio.CancelledError
        self.slept.append(delay_s)
        self.on_sleep(len(self.slept))
        self.now += delay_s + self.late_s
        await asyncio.sleep(0)


def uplink(state: UplinkState, age_s: float = 0.0) -> UplinkStatus:
    return UplinkStatus("https://hub", state, 1000.0, None, 1000.0, age_s, None, 0, None, 0)


async def told(notifier: Notifier, clock: SteppedClock, status: Callable[[], UplinkStatus | None]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await keep_informed(notifier, clock, status, heartbeat_s=20.0)


@pytest.fixture(params=["path", "abstract"])
async def manager(request: pytest.FixtureRequest, tmp_path: Path) -> NotifySocket:
    address = tmp_path / "notify" if request.param == "path" else f"@lodger-unit-{uuid.uuid4()}"
    made = NotifySocket.at(address)
    request.addfinalizer(made.listener.close)
    return made


async def test_messages_arrive_on_both_kinds_of_socket(manager: NotifySocket) -> None:
    Notifier(manager.address).tell("READY=1", "STATUS=It works")
    await manager.word("STATUS=It works")
    assert [message for _, message in manager.heard] == [["READY=1", "STATUS=It works"]]
    manager.close()


async def test_it_feeds_every_half_of_the_time_and_tells_what_changes(tmp_path: Path) -> None:
    manager = NotifySocket.at(tmp_path / "notify")
    clock = SteppedClock(most=7)
    await told(Notifier(manager.address, 30.0), clock, lambda: None)
    await manager.word("WATCHDOG=1", times=3)
    assert [message for _, message in manager.heard] == [
        ["READY=1", "STATUS=Serving this machine; no hub is configured", "WATCHDOG=1"],
        ["WATCHDOG=1"],
        ["WATCHDOG=1"],
    ]
    assert clock.slept == [5.0] * 7, "looked at every 5 s, fed every 15 s"
    manager.close()


async def test_nothing_is_fed_while_a_connected_hub_is_silent_and_at_once_when_it_is_heard(tmp_path: Path) -> None:
    manager = NotifySocket.at(tmp_path / "notify")
    status = [uplink(UplinkState.CONNECTED)]
    clock = SteppedClock(most=30)

    def change(sleeps: int) -> None:
        status[0] = uplink(UplinkState.CONNECTED, 41.0 if sleeps < 20 else 0.0)

    clock.on_sleep = change
    await told(Notifier(manager.address, 30.0), clock, lambda: status[0])
    await manager.word("WATCHDOG=1", times=5)
    assert clock.slept[:22] == [5.0] + [1.0] * 19 + [5.0] * 2
    manager.close()


async def test_a_late_loop_misses_its_food(tmp_path: Path) -> None:
    manager = NotifySocket.at(tmp_path / "notify")
    clock = SteppedClock(most=10, late_s=6.0)
    await told(Notifier(manager.address, 30.0), clock, lambda: None)
    await manager.word("WATCHDOG=1")
    assert manager.count("WATCHDOG=1") == 1, "only the first, before anything was late"
    manager.close()


async def test_without_a_watchdog_only_the_status_is_told(tmp_path: Path) -> None:
    manager = NotifySocket.at(tmp_path / "notify")
    states = iter([UplinkState.STOPPED, UplinkState.REGISTERING, UplinkState.CONNECTED, *[UplinkState.CONNECTED] * 9])
    clock = SteppedClock(most=8)
    await told(Notifier(manager.address), clock, lambda: uplink(next(states)))
    await manager.word("STATUS=Hub https://hub: connected")
    assert manager.words == [
        "READY=1",
        "STATUS=Hub https://hub: starting",
        "STATUS=Hub https://hub: registering",
        "STATUS=Hub https://hub: connected",
    ]
    assert clock.slept == [1.0, 1.0, *[5.0] * 6]
    manager.close()


async def test_nobody_listens() -> None:
    clock = SteppedClock(most=0)
    await keep_informed(SILENT, clock, lambda: None, heartbeat_s=20.0)
    Notifier("/nonexistent/notify").tell("READY=1")
    assert clock.slept == []


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Notifier()),
        ({"NOTIFY_SOCKET": "/run/notify"}, Notifier("/run/notify")),
        ({"NOTIFY_SOCKET": "@name", "WATCHDOG_USEC": "30000000"}, Notifier("@name", 30.0)),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "77"}, Notifier("/n", 2.0)),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "78"}, Notifier("/n")),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "0"}, Notifier("/n")),
        ({"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"}, Notifier("/n")),
        ({"NOTIFY_SOCKET": "vsock:2:1234", "WATCHDOG_USEC": "1"}, Notifier()),
    ],
)
def test_what_the_manager_asks_for_is_taken_out_of_the_environment(
    environment: dict[str, str], expected: Notifier
) -> None:
    given = {**environment, "LANG": "C"}
    assert Notifier.take(given, 77) == expected
    assert given == {"LANG": "C"}
