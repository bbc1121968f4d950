"""How a box comes to be known: started for a call, or adopted from an earlier daemon.

Both take several steps, and the daemon may let go of its boxes between any two of them. After that no box becomes
known: one that was being started is ended again, since nothing has run in it, and one that was being adopted is left to
the next daemon.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from lodger_sandbox.contract import BoxRequest, DetachedBox, RunnerStart
from lodger_tools.box import record as records
from lodger_tools.box.connected import Box, connect
from lodger_tools.box.contract import BoxKey, BoxLost, BoxUnavailable
from lodger_tools.box.ending import end_connected, end_unconnected
from lodger_tools.box.starting import Starter, fingerprint, start_box


class BoxWatcher(Protocol):
    """Told of every box of a manager, new or adopted."""

    async def box_started(self, found: records.FoundBox) -> None:
        """Before the first call in it. Must not raise."""
        ...

    def box_ended(self, found: records.FoundBox) -> None: ...


class Opener:
    """Event loop only."""

    def __init__(self, starter: Starter, watcher: BoxWatcher | None, monotonic: Callable[[], float]) -> None:
        self.starter = starter
        self._watcher = watcher
        self._monotonic = monotonic
        self._closed = False

    def close(self) -> None:
        """From now on no box becomes known."""
        self._closed = True

    def is_closed(self) -> bool:
        return self._closed

    async def start(self, key: BoxKey) -> Box:
        """Raises: BoxUnavailable, also once it is closed: nothing has run then."""
        self._refuse_when_closed()
        # Shielded: a cancelled waiter must not leave a box that nobody knows.
        starting = asyncio.ensure_future(asyncio.to_thread(start_box, self.starter, key))
        try:
            found = await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(BoxUnavailable):
                await asyncio.to_thread(end_unconnected, await starting)
            raise
        box: Box | None = None
        try:
            self._refuse_when_closed()
            box = await connect(found, self._monotonic())
            self._refuse_when_closed()
            if self._watcher is not None:
                await self._watcher.box_started(found)
            self._refuse_when_closed()
            return box
        except (asyncio.CancelledError, BoxUnavailable):
            # Nobody would know this box: it would go on beside the next one of its workspace.
            self.tell_of_end(found)
            if box is not None:
                box.link.close()
            await asyncio.shield(asyncio.to_thread(end_unconnected, found))
            raise
        except (BoxLost, OSError, TimeoutError) as error:
            await asyncio.to_thread(end_unconnected, found)
            raise BoxUnavailable(
                f"The box started but its runner did not answer ({error!r}); `lodger doctor` tests it."
            ) from error

    async def adopt(self, found: records.FoundBox) -> Box | None:
        """None for a box that is no more, and once this is closed. Retired when it would be started otherwise now."""
        box: Box | None = None
        try:
            self._refuse_when_closed()
            box = await connect(found, self._monotonic())
            self._refuse_when_closed()
            listing = await box.link.ask("list")
            self._refuse_when_closed()
            if not found.record.runner_pid:
                # The daemon died as it started this box: nothing ran in it, and nobody could kill it by its record.
                await end_connected(box)
                return None
            if self._watcher is not None:
                await self._watcher.box_started(found)
            leftovers, running = listing.get("leftovers"), listing.get("running")
            box.leftovers = leftovers if isinstance(leftovers, int) else 0
            box.background = set(map(str, running)) if isinstance(running, list) else set()
            box.retired = not await asyncio.to_thread(self.still_wanted, found)
            self._refuse_when_closed()
            return box
        except (BoxLost, OSError, TimeoutError):
            await asyncio.to_thread(end_unconnected, found)
            return None
        except (BoxUnavailable, asyncio.CancelledError) as error:
            # It goes on, and the next one that looks for boxes finds it.
            if box is not None:
                box.link.close()
            if isinstance(error, BoxUnavailable):
                return None
            raise

    def still_wanted(self, found: records.FoundBox) -> bool:
        """Whether it is as it would be started now. Blocking."""
        try:
            return fingerprint(self.starter, self.starter.request_for(found.record.key)) == found.record.fingerprint
        except Exception:  # noqa: BLE001 - whatever forbids such a box now, the old one begins nothing new
            return False

    def tell_of_end(self, found: records.FoundBox) -> None:
        if self._watcher is not None:
            self._watcher.box_ended(found)

    def _refuse_when_closed(self) -> None:
        """After each wait: the boxes may have been let go of meanwhile. Raises: BoxUnavailable."""
        if self._closed:
            raise BoxUnavailable("Lodger is being stopped here, so no box is started and nothing was run.")


def start_in_sandbox(request: BoxRequest, runner: RunnerStart) -> DetachedBox:
    """The real one, imported when the first box is started."""
    from lodger_sandbox.launch import start_detached

    return start_detached(request, runner)
