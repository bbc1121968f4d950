"""The person's list of allowed hosts, as clients may add to it."""

from collections.abc import Callable, Sequence

from lodger_daemon.service.persons_lists import PersonsLists
from lodger_daemon.service.settings import Settings, SettingsError
from lodger_daemon.service.settings_file import SettingsFile
from lodger_sandbox.egress.core.allow import AllowList, entry_for
from lodger_sandbox.egress.core.hosts import parse_destination


class PersonsHosts:
    """Implements `AllowedHosts` on the settings file."""

    def __init__(self, file: SettingsFile, settings: Settings, changed: Callable[[AllowList], None]) -> None:
        """
        Args:
            changed: told of each new list; what the settings alone allow.
        """
        self._file = file
        self._lists = PersonsLists(settings.permissions.ceiling)
        self._changed = changed

    @property
    def may_grow(self) -> bool:
        return self._lists.may_grow

    async def add(self, hosts: Sequence[str]) -> None:
        """Raises: ValueError; then nothing changed."""
        entries = [str(entry_for(parse_destination(host))) for host in hosts]
        try:
            settings = await self._lists.add(self._file.add_allowed_hosts, entries, "allow a host")
        except SettingsError as error:
            raise ValueError(str(error)) from error
        self._changed(settings.network.allow_list())
