"""A port that is opened whenever a box listens there: `5173 in /home/me/site`, or `5173` for every folder."""

from dataclasses import dataclass
from typing import Final

from lodger_daemon.ports.core.offers import FIRST_PORT, LAST_PORT, OWN_PORTS

_BETWEEN: Final = " in "


@dataclass(frozen=True, slots=True)
class PortRule:
    port: int
    workspace: str | None = None
    """The absolute folder that the agent works in; None = any."""

    def __str__(self) -> str:
        return str(self.port) if self.workspace is None else f"{self.port}{_BETWEEN}{self.workspace}"

    def opens(self, workspace: str, port: int) -> bool:
        return port == self.port and self.workspace in (None, workspace)


def parse_port_rule(text: str) -> PortRule:
    """Raises: ValueError that says what is wrong."""
    number, between, workspace = text.partition(_BETWEEN)
    if not number.isascii() or not number.isdigit() or not FIRST_PORT <= int(number) <= LAST_PORT:
        raise ValueError(f"{text!r} does not begin with a port from {FIRST_PORT} to {LAST_PORT}")
    if int(number) in OWN_PORTS:
        raise ValueError(f"{number} is the box's own proxy")
    if between and not workspace.startswith("/"):
        raise ValueError(f"{text!r} does not name an absolute folder, as in `5173 in /home/me/site`")
    return PortRule(int(number), workspace if between else None)
