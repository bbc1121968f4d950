"""What is known of this machine's sandbox: probed once at start, in a thread, beside everything else."""

import asyncio
from typing import Final

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.service.box_requests import BoxRequests
from lodger_sandbox.contract import ProbeReport, SandboxUnavailable
from lodger_tools.json_value import JsonObject

LOOK_AGAIN_AFTER_S: Final = 3600.0


class SandboxCheck:
    """Holds the latest probe's report. The report informs people; it opens nothing: a box that cannot be started
    refuses by itself."""

    def __init__(self, requests: BoxRequests, clock: Clock) -> None:
        self._requests = requests
        self._clock = clock
        self._report: ProbeReport | None = None
        self._at: WallTime | None = None

    async def look(self) -> ProbeReport:
        """Probe now (well under a second)."""
        self._report = await asyncio.to_thread(self._probe)
        self._at = self._clock.wall()
        return self._report

    async def keep_looking(self) -> None:
        """Probe now and once an hour, until cancelled: a kernel setting may have changed since."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_AGAIN_AFTER_S)

    def _probe(self) -> ProbeReport:
        from lodger_sandbox.probe import probe

        try:
            return probe(self._requests.user())
        except SandboxUnavailable as error:
            return ProbeReport(holds=False, backend="none", version="", failures=(str(error),))

    def facts(self) -> JsonObject:
        report = self._report
        if report is None:
            return {"holds": None, "summary": "being checked", "at": None, "failures": []}
        held = f"{report.backend} {report.version}: holds"
        broken = "does not hold, so tools refuse: " + "; ".join(report.failures)
        return {
            "holds": report.holds,
            "backend": report.backend,
            "version": report.version,
            "failures": list(report.failures),
            "advice": report.advice,
            "summary": held if report.holds else broken,
            "at": self._at,
        }
