"""What a worker has to say, written once per turn of its event loop.

Fragments that wait for the same write are joined, so a burst costs the daemon few lines; nothing is ever held back
for the sake of joining.
"""

import asyncio
import json

from lodger_daemon.models.core.frames import Report, merge, report_fields
from lodger_tools.json_value import Json


class Outbox:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._waiting: list[list[Json]] = []

    def put(self, number: int, report: Report) -> None:
        fields = report_fields(number, report)
        if self._waiting:
            if merge(self._waiting[-1], fields):
                return
        else:
            self._loop.call_soon(self.flush)
        self._waiting.append(fields)

    async def drain(self) -> None:
        """Wait while the daemon reads more slowly than the provider writes."""
        await self._writer.drain()

    def flush(self) -> None:
        """Write at once: an answer is complete, and whoever made it has other work before the loop's next turn."""
        if not self._waiting:
            return
        lines = [json.dumps(fields, separators=(",", ":")) for fields in self._waiting]
        self._waiting.clear()
        if not self._writer.is_closing():
            self._writer.write("\n".join([*lines, ""]).encode())
