"""The daemon's connection to a control plane: dialled out, kept up, and never given up."""

import asyncio
import dataclasses
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Final, TypeVar

from lodger_daemon.clock import Clock
from lodger_daemon.randomness import Rng
from lodger_daemon.uplink.core.closing import CloseMeaning
from lodger_daemon.uplink.core.retry import Failure, RetryState, after_failure, after_link
from lodger_daemon.uplink.core.status import HubClock, UplinkState, UplinkStatus
from lodger_daemon.uplink.core.wake import ClockReading, Gap, gap_between
from lodger_daemon.uplink.dial import Dialler, Sockets
from lodger_daemon.uplink.errors import AttemptFailed
from lodger_daemon.uplink.registration import Identity, Lease, check_hub_url, is_machine_connected, make_tls, register
from lodger_daemon.uplink.router import FrameRouter, HubHearer
from lodger_daemon.uplink.session import LinkEnd, Session
from lodger_daemon.uplink.timing import UplinkTiming

logger = logging.getLogger(__name__)

T = TypeVar("T")

TokenProvider = Callable[[], Awaitable[str]]
"""Gives the machine's token for the next try. OSError and LookupError mean there is none now."""

DIALS_PER_LEASE: Final = 3
"""So many failed dials in a row, and the hub is asked again where its socket is."""

ANSWERED_NO: Final = frozenset({Failure.TOKEN, Failure.REFUSED, Failure.NOT_A_HUB})
"""What a socket's address answers that will not do: dialling it again changes nothing."""

EMPTY_LOOKS: Final = 2
"""One could fall into the moment in which the other connects anew."""

SUPERSEDED: Final = (
    "another process is connected to the hub as this machine; stop it and restart this daemon. If both use copies of "
    "one state folder, delete `device-id` in one of them"
)
SUPERSEDED_LOOKING: Final = (
    "another process is connected to the hub as this machine; its place is taken once it is gone. If both use copies "
    "of one state folder, stop one and delete `device-id` there"
)


class Uplink:
    """Keeps one link to the hub. `run` is its one task; `status` may be read at any time."""

    def __init__(
        self,
        hub_url: str,
        token: TokenProvider,
        device_id: str,
        connection_name: str,
        metadata: Mapping[str, object],
        router: FrameRouter,
        hearer: HubHearer,
        clock: Clock,
        rng: Rng,
        *,
        ca_file: Path | None = None,
        timing: UplinkTiming | None = None,
        memory_level_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`memory_level_at` says when this machine's memory was last level with the hub's.

        Raises: InsecureHubUrl.
        """
        self._hub_url = check_hub_url(hub_url)
        self._token = token
        self._identity = Identity(device_id, connection_name, metadata)
        self._router = router
        self._hearer = hearer
        self._clock = clock
        self._rng = rng
        self._ca_file = ca_file
        self._timing = timing or UplinkTiming()
        self._memory_level_at = memory_level_at
        self._tls: ssl.SSLContext | None = None
        self._retry = RetryState()
        self._lease: Lease | None = None
        self._dials = 0
        self._failed_dials = 0
        self._session: Session | None = None
        self._resumed = asyncio.Event()
        self._hurried = asyncio.Event()
        self._status = UplinkStatus(
            self._hub_url, UplinkState.STOPPED, clock.wall(), None, None, None, None, 0, None, 0
        )

    def status(self) -> UplinkStatus:
        """What is true now."""
        contact = self._status.last_contact_at
        return dataclasses.replace(
            self._status,
            last_contact_age_s=None if contact is None else max(0.0, self._clock.wall() - contact),
            failures=self._retry.failures,
            connection_id=None if self._lease is None else self._lease.connection_id,
            clients=0 if self._session is None else self._session.clients,
        )

    def resume(self) -> None:
        """Take the device's place again after another process had taken it, and do not wait for a planned try."""
        self._resumed.set()
        self._hurried.set()

    async def run(self) -> None:
        """Until cancelled. No answer and no trouble ends it."""
        try:
            while True:
                try:
                    await self._once()
                except AttemptFailed as error:
                    if error.failure is Failure.TLS:
                        # The file may have been replaced, as when the hub had to make a new certificate.
                        self._tls = None
                    await self._wait(error.failure, error.reason, error.retry_after_s)
                # The last net: what nobody thought of must not leave the machine unreachable for ever.
                except Exception as error:
                    logger.exception("the uplink met something unexpected and goes on")
                    self._lease = None
                    await self._wait(Failure.NOT_A_HUB, f"an unexpected error: {error!r}", None)
        finally:
            self._show(UplinkState.STOPPED, None)

    async def _once(self) -> None:
        """Register if needed, dial, and live with the link to its end. Raises: AttemptFailed."""
        token = await self._read_token()
        if self._lease is None:
            self._show(UplinkState.REGISTERING, self._status.reason, self._status.failure)
            tls = await self._prepare_tls()
            registered = await self._while_awake(
                register(self._hub_url, token, self._identity, tls, self._clock.wall())
            )
            self._lease = registered.lease
            self._dials = self._failed_dials = 0
            self._note_contact()
            self._note_hub_time(registered.hub_wall)
        sockets = await self._while_awake(self._dial(self._lease, token))
        end = await self._live(sockets, self._lease)
        match end.meaning:
            case CloseMeaning.SUPERSEDED:
                await self._stand_aside(self._lease)
                return
            case CloseMeaning.LEASE_UNKNOWN:
                self._lease = None
            case CloseMeaning.TRANSIENT:
                pass
        raise AttemptFailed(end.failure, end.reason)

    async def _read_token(self) -> str:
        try:
            token = (await self._token()).strip()
        except ConnectionError as error:
            raise AttemptFailed(Failure.NETWORK, f"the hub cannot be reached: {error}") from error
        except (OSError, LookupError) as error:
            raise AttemptFailed(Failure.REFUSED, f"this machine's token cannot be used: {error}") from error
        if not token or not token.isascii() or not token.isprintable():
            raise AttemptFailed(Failure.REFUSED, "this machine's token is empty or holds characters no token has")
        return token

    async def _prepare_tls(self) -> ssl.SSLContext | None:
        if self._tls is None and self._hub_url.startswith("https:"):
            try:
                self._tls = await asyncio.to_thread(make_tls, self._ca_file)
            except (OSError, ssl.SSLError) as error:
                raise AttemptFailed(Failure.TLS, f"the hub's certificate file cannot be used: {error}") from error
        return self._tls

    async def _dial(self, lease: Lease, token: str) -> Sockets:
        self._show(UplinkState.DIALLING, self._status.reason, self._status.failure)
        self._dials += 1
        dialler = Dialler(self._identity, token, self._tls, self._clock.wall, self._timing.ready_limit_s)
        try:
            sockets = await dialler.dial(lease, self._dials, self._rng.uuid())
        except AttemptFailed as error:
            self._failed_dials += 1
            if self._failed_dials >= DIALS_PER_LEASE or error.failure in ANSWERED_NO:
                self._lease = None
            raise
        self._failed_dials = 0
        return sockets

    async def _while_awake(self, attempt: Coroutine[object, object, T]) -> T:
        """A try during which the machine slept waits for an answer out of a network that is gone: it is given up, and
        made again without the waits of earlier failures. Raises: AttemptFailed."""
        trying = asyncio.ensure_future(attempt)
        watching = asyncio.create_task(self._until_wake())
        try:
            await asyncio.wait((trying, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            trying.cancel()
            watching.cancel()
            await asyncio.gather(trying, watching, return_exceptions=True)
        if trying.cancelled():
            self._retry = RetryState()
            raise AttemptFailed(Failure.NETWORK, "the machine slept while the hub was being called")
        return trying.result()

    async def _until_wake(self) -> None:
        pause_s = self._timing.wake_check_s
        while True:
            before = self._reading()
            await self._clock.sleep(pause_s)
            if gap_between(before, self._reading(), pause_s) is Gap.SLEPT:
                return

    async def _live(self, sockets: Sockets, lease: Lease) -> LinkEnd:
        session = Session(
            sockets,
            self._router,
            self._hearer,
            self._clock,
            self._timing,
            connection_id=lease.connection_id,
            enveloped=lease.enveloped,
            on_contact=self._note_contact,
            memory_level_at=self._memory_level_at,
        )
        began = self._clock.mono()
        self._session = session
        self._note_contact()
        self._show(UplinkState.CONNECTED, None)
        try:
            end = await session.run()
        finally:
            self._session = None
        lasted_s = self._clock.mono() - began
        self._retry = after_link(self._retry, lasted_s=lasted_s, answered=session.answered)
        logger.info("uplink ended after %.0f s: %s", lasted_s, end.reason)
        return end

    async def _stand_aside(self, lease: Lease) -> None:
        """Until told to resume, or until a hub of ours shows the place empty: dialling while another process has it
        would only take it back and forth."""
        self._resumed.clear()
        looks = lease.enveloped
        words = SUPERSEDED_LOOKING if looks else SUPERSEDED
        logger.warning("uplink: %s", words)
        empty = 0
        while empty < EMPTY_LOOKS and not self._resumed.is_set():
            due = self._clock.mono() + self._timing.place_look_s
            next_look_at = self._clock.wall() + self._timing.place_look_s if looks else None
            self._show(UplinkState.SUPERSEDED, words, next_attempt_at=next_look_at)
            while self._clock.mono() < due and not self._resumed.is_set():
                await self._clock.sleep(min(self._timing.wake_check_s, self._timing.place_look_s))
            empty = empty + 1 if looks and await self._is_place_empty() else 0
        self._lease = None

    async def _is_place_empty(self) -> bool:
        try:
            token = await self._read_token()
        except AttemptFailed:
            return False
        connected = await is_machine_connected(self._hub_url, token, self._identity.device_id, self._tls)
        return connected is False

    async def _wait(self, failure: Failure, reason: str, retry_after_s: float | None) -> None:
        """The planned pause; a wake of the machine or `resume` ends it early."""
        plan = after_failure(self._retry, failure, chance=self._rng.random(), retry_after_s=retry_after_s)
        self._retry = plan.state
        delay_s = plan.delay_s * self._timing.time_scale
        logger.info("uplink: %s; next try in %.1f s", reason, delay_s)
        self._hurried.clear()
        self._show(UplinkState.WAITING, reason, failure, next_attempt_at=self._clock.wall() + delay_s)
        before = self._reading()
        deadline = before.mono + delay_s
        while before.mono < deadline and not self._hurried.is_set():
            pause_s = min(self._timing.wake_check_s, deadline - before.mono)
            await self._clock.sleep(pause_s)
            now = self._reading()
            if gap_between(before, now, pause_s) is Gap.SLEPT:
                # What failed before the sleep says nothing about the network the machine woke up in.
                self._retry = RetryState()
                return
            before = now

    def _note_contact(self) -> None:
        self._status = dataclasses.replace(self._status, last_contact_at=self._clock.wall())

    def _note_hub_time(self, hub_wall: float | None) -> None:
        if hub_wall is not None:
            now = self._clock.wall()
            self._status = dataclasses.replace(self._status, hub_clock=HubClock(now - hub_wall, now))

    def _show(
        self,
        state: UplinkState,
        reason: str | None,
        failure: Failure | None = None,
        next_attempt_at: float | None = None,
    ) -> None:
        since = self._status.since if self._status.state is state else self._clock.wall()
        self._status = dataclasses.replace(
            self._status,
            state=state,
            since=since,
            reason=reason,
            failure=failure,
            next_attempt_at=next_attempt_at,
        )

    def _reading(self) -> ClockReading:
        return ClockReading(self._clock.wall(), self._clock.mono())
