"""What is known of this machine's sandbox: probed at start, once an hour and, while it does not hold, each minute."""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.service.box_requests import BoxRequests
from lodger_sandbox.contract import BoxUser, ProbeReport, SandboxUnavailable
from lodger_tools.json_value import JsonObject

LOOK_AGAIN_AFTER_S: Final = 3600.0
LOOK_AGAIN_UNTIL_IT_HOLDS_S: Final = 60.0
"""Agents wait meanwhile, a probe that a busy machine cut short must not hold them up for long, and who has mended what
kept boxes from starting wants to see it."""

P = ParamSpec("P")
T = TypeVar("T")


def _probe(user: BoxUser) -> ProbeReport:
    from lodger_sandbox.probe import probe  # it is seldom needed

    return probe(user)


class SandboxCheck:
    """Holds the latest probe's report.

    A box that cannot be started refuses by itself. One that starts and leaks would not: no further box is started from
    the report of a leak until a probe holds again.
    """

    def __init__(self, requests: BoxRequests, clock: Clock, probe: Callable[[BoxUser], ProbeReport] = _probe) -> None:
        self._requests = requests
        self._clock = clock
        self._probe = probe
        self._report: ProbeReport | None = None
        self._at: WallTime | None = None

    async def look(self) -> ProbeReport:
        """Probe now (well under a second)."""
        self._report = await asyncio.to_thread(self._look)
        self._at = self._clock.wall()
        return self._report

    async def keep_looking(self) -> None:
        """Probe now and again, until cancelled: what boxes need may have come or gone since."""
        while True:
            report = await self.look()
            await self._clock.sleep(LOOK_AGAIN_AFTER_S if report.holds else LOOK_AGAIN_UNTIL_IT_HOLDS_S)

    def unless_it_leaks(self, request: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Make a box's request. From any thread. Raises: SandboxUnavailable, also what `request` raises."""
        report = self._report
        if report is not None and _leaks(report):
            raise SandboxUnavailable(
                f"The sandbox of this machine does not hold ({'; '.join(report.failures)}), so no box is started. "
                f"It is looked at again within {LOOK_AGAIN_UNTIL_IT_HOLDS_S:.0f} s; `lodger doctor` says more."
            )
        return request(*args, **more)

    def _look(self) -> ProbeReport:
        try:
            return self._probe(self._requests.user())
        except SandboxUnavailable as error:
            return ProbeReport(holds=False, backend="none", version="", failures=(str(error),))

    def facts(self) -> JsonObject:
        report = self._report
        if report is None:
            return {"holds": None, "summary": "being checked", "at": None, "failures": []}
        return {
            "holds": report.holds,
            "backend": report.backend,
            "version": report.version,
            "failures": list(report.failures),
            "advice": report.advice,
            "limits": report.limits,
            "summary": _summary(report),
            "at": self._at,
        }


def _leaks(report: ProbeReport) -> bool:
    """Whether a box could be had and did not hold."""
    return not report.holds and report.backend != "none"


def _summary(report: ProbeReport) -> str:
    if report.holds:
        return f"{report.backend} {report.version}: holds; {report.limits}"
    words = "does not hold, so no box is started" if _leaks(report) else "no box can be started, so tools refuse"
    return f"{words}: {'; '.join(report.failures)}"
