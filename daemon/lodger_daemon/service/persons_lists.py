"""What clients may add to the lists of the person's settings: rules, hosts, ports.

A machine with a ceiling takes nothing new from clients: an allow rule is stronger than any mode, so saving one would be
a way above the ceiling (attack A12). There the person writes it into the settings on the machine itself.
"""

import asyncio
from collections.abc import Callable, Sequence

from lodger_daemon.service.settings import Settings, SettingsError
from lodger_tools.permissions.core.modes import Mode


class PersonsLists:
    def __init__(self, ceiling: Mode) -> None:
        self._ceiling = ceiling

    @property
    def may_grow(self) -> bool:
        return self._ceiling is Mode.UNRESTRICTED

    async def add(self, add: Callable[[Sequence[str]], Settings], lines: Sequence[str], what: str) -> Settings:
        """Have `add` append these lines to its list of the settings file; the settings as they are then.

        Args:
            what: what no client may do when there is a ceiling, for the person.

        Raises: SettingsError; then nothing changed.
        """
        if not self.may_grow:
            raise SettingsError(
                f"this machine's ceiling is {self._ceiling.value}, so no client can {what}; write {', '.join(lines)} "
                "into the settings on the machine itself"
            )
        return await asyncio.to_thread(add, lines)
