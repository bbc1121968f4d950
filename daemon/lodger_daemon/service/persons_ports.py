"""The person's list of ports that are opened without asking, as clients may add to it."""

from collections.abc import Sequence

from lodger_daemon.ports.core.port_rules import PortRule
from lodger_daemon.service.persons_lists import PersonsLists
from lodger_daemon.service.settings import Settings, SettingsError
from lodger_daemon.service.settings_file import SettingsFile


class PersonsPorts:
    """Implements `PortRules` on the settings file."""

    def __init__(self, file: SettingsFile, settings: Settings) -> None:
        self._file = file
        self._lists = PersonsLists(settings.permissions.ceiling)
        self._rules = settings.ports.rules()

    @property
    def may_grow(self) -> bool:
        return self._lists.may_grow

    def opens(self, workspace: str, port: int) -> bool:
        return any(rule.opens(workspace, port) for rule in self._rules)

    async def add(self, workspace: str, ports: Sequence[int]) -> None:
        """Raises: ValueError; then nothing changed."""
        rules = [str(PortRule(port, workspace)) for port in ports]
        try:
            settings = await self._lists.add(self._file.add_open_ports, rules, "open a port for always")
        except SettingsError as error:
            raise ValueError(str(error)) from error
        self._rules = settings.ports.rules()
