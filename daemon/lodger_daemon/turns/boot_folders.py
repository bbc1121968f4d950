"""The folder for conversations without one of their own: chosen by clients, kept over restarts."""

import asyncio
from pathlib import Path
from typing import Final

from lodger_daemon.store import conversation_rows, setting_rows
from lodger_daemon.turns.contract import Folders
from lodger_daemon.turns.services import TurnServices
from lodger_tools.json_value import JsonObject

SETTING: Final = "boot_working_directory"
MOST: Final = 4096
"""Conversations in the map; an entry has some 200 bytes."""


class BootFolders:
    """Event loop only. What is chosen is seen by every turn through `TurnOptions.boot`."""

    def __init__(self, services: TurnServices) -> None:
        self._database = services.database
        self._clock = services.clock
        self._options = services.options

    async def load(self) -> None:
        """What an earlier daemon was told; a folder that has gone since is passed over."""
        kept = await self._database.read(lambda connection: setting_rows.get(connection, SETTING))
        if not isinstance(kept, dict):
            return
        path, revision = kept.get("path"), kept.get("revision")
        boot = self._options.boot
        boot.revision = revision if isinstance(revision, int) else 0
        if isinstance(path, str) and await asyncio.to_thread(Path(path).is_dir):
            boot.chosen = path

    async def choose(self, folder: str) -> None:
        """Durable when it returns."""
        boot, now = self._options.boot, self._clock.wall()
        chosen: JsonObject = {"path": folder, "revision": boot.revision + 1}
        await self._database.write(lambda connection: setting_rows.put(connection, SETTING, chosen, now))
        boot.chosen, boot.revision = folder, boot.revision + 1

    async def folders(self) -> Folders:
        own = await self._database.read(lambda connection: conversation_rows.folders(connection, MOST))
        options = self._options
        return Folders(options.workspace, options.boot_folder, options.boot.revision, own)
