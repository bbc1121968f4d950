"""Several rooms that are told of boxes as one watcher, in a fixed order."""

from lodger_tools.box.opening import BoxWatcher
from lodger_tools.box.record import FoundBox


class BoxWatchers:
    """Implements `BoxWatcher`."""

    def __init__(self, *watchers: BoxWatcher) -> None:
        self._watchers = watchers

    async def box_started(self, found: FoundBox) -> None:
        for watcher in self._watchers:
            await watcher.box_started(found)

    def box_ended(self, found: FoundBox) -> None:
        for watcher in reversed(self._watchers):
            watcher.box_ended(found)
