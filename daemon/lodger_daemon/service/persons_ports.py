"""The person's list of ports that are opened without asking, as clients may add to it.

A machine with a ceiling takes nothing new from clients, as with rules (attack A12).
"""

import asyncio
from collections.abc import Sequence

from lodger_daemon.ports.core.port_rules import PortRule
from lodger_daemon.service.settings import Settings, SettingsError
from lodger_daemon.service.settings_file import SettingsFile
from lodger_tools.permissions.core.modes import Mode


class PersonsPorts:
    """Implements `PortRules` on the settings file."""

    def __init__(self, file: SettingsFile, settings: Settings) -> None:
        self._file = file
        self._ceiling = settings.permissions.ceiling
        self._rules = settings.ports.rules()

    @property
    def may_grow(self) -> bool:
        return self._ceiling is Mode.UNRESTRICTED

    def opens(self, workspace: str, port: int) -> bool:
        return any(rule.opens(workspace, port) for rule in self._rules)

    async def add(self, workspace: str, ports: Sequence[int]) -> None:
        """Raises: ValueError; then nothing changed."""
        rules = [str(PortRule(port, workspace)) for port in ports]
        if not self.may_grow:
            raise ValueError(
                f"this machine's ceiling is {self._ceiling.value}, so no client can open a port for always; write "
                f"{', '.join(rules)} into the settings on the machine itself"
            )
        try:
            settings = await asyncio.to_thread(self._file.add_open_ports, rules)
        except SettingsError as error:
            raise ValueError(str(error)) from error
        self._rules = settings.ports.rules()
