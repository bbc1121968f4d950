"""One rendering of an event for all who watch it."""

from lodger_daemon.clients.core.bodies import Body
from lodger_daemon.clients.core.rendering import render
from lodger_daemon.turns.core.events import NumberedEvent


class SharedRenderer:
    """Remembers the last event: its subscribers are called one after the other with the same object."""

    def __init__(self) -> None:
        self._event: NumberedEvent | None = None
        self._body: Body | None = None

    def body(self, numbered: NumberedEvent) -> Body | None:
        if numbered is not self._event:
            self._body = render(numbered)
            self._event = numbered
        return self._body
