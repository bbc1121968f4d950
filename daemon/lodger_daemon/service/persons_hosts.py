"""The person's list of allowed hosts, as clients may add to it.

A machine with a ceiling takes nothing new from clients, as with rules (attack A12): there the person writes it into the
settings on the machine itself.
"""

import asyncio
from collections.abc import Callable, Sequence

from lodger_daemon.service.settings import Settings, SettingsError
from lodger_daemon.service.settings_file import SettingsFile
from lodger_sandbox.egress.core.allow import AllowList, entry_for
from lodger_sandbox.egress.core.hosts import parse_destination
from lodger_tools.permissions.core.modes import Mode


class PersonsHosts:
    """Implements `AllowedHosts` on the settings file."""

    def __init__(self, file: SettingsFile, settings: Settings, changed: Callable[[AllowList], None]) -> None:
        """
        Args:
            changed: told of each new list; what the settings alone allow.
        """
        self._file = file
        self._ceiling = settings.permissions.ceiling
        self._changed = changed

    @property
    def may_grow(self) -> bool:
        return self._ceiling is Mode.UNRESTRICTED

    async def add(self, hosts: Sequence[str]) -> None:
        """Raises: ValueError; then nothing changed."""
        entries = [str(entry_for(parse_destination(host))) for host in hosts]
        if not self.may_grow:
            raise ValueError(
                f"this machine's ceiling is {self._ceiling.value}, so no client can allow a host; write "
                f"{', '.join(entries)} into the settings on the machine itself"
            )
        try:
            settings = await asyncio.to_thread(self._file.add_allowed_hosts, entries)
        except SettingsError as error:
            raise ValueError(str(error)) from error
        self._changed(settings.network.allow_list())
