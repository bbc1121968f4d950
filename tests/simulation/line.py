"""One socket between two processes: messages arrive later, whole and in order; what is under way dies with it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from simulation.loop import Life
from simulation.world import World


@dataclass(frozen=True)
class Closed:
    """How the other end saw it end. 1006: without a word."""

    code: int = 1006
    reason: str = ""


Message: TypeAlias = str | bytes | Closed


class End:
    """One end, in one process. `take` is called there with each message, `Closed` once and last."""

    def __init__(self, life: Life | None, take: Callable[[Message], None]) -> None:
        self.life = life
        self.take = take
        self.last_s = 0.0
        self.told = False


class Line:
    """Between `near` (who dialled) and `far`."""

    def __init__(self, world: World, near: End, far: End) -> None:
        self._world = world
        self._near, self._far = near, far
        self.broken = False
        self.silent = False
        """Half open: nothing arrives any more and nobody is told."""

    def send(self, sender: End, message: str | bytes) -> None:
        """Raises: ConnectionError when the socket is gone."""
        if self.broken:
            raise ConnectionError("the socket is gone")
        if not self.silent:
            self._pass(self._other(sender), message)

    def close(self, closer: End, code: int, reason: str) -> None:
        """In good order: after all that was sent before."""
        if self.broken:
            return
        self.broken = True
        self._pass(self._other(closer), Closed(code, reason))
        self._pass(closer, Closed(code, reason))

    def cut(self) -> None:
        """Without a word; what is under way is lost."""
        self.broken = True
        for end in (self._near, self._far):
            end.last_s = 0.0
            self._pass(end, Closed())

    def _other(self, end: End) -> End:
        return self._far if end is self._near else self._near

    def _pass(self, to: End, message: Message) -> None:
        world = self._world
        to.last_s = max(to.last_s + 1e-7, world.loop.time() + world.between(0.0005, 0.08))
        context = to.life.context if to.life is not None else world.context
        world.loop.call_at(to.last_s, self._arrive, to, message, context=context)

    def _arrive(self, to: End, message: Message) -> None:
        if to.told or (self.broken and not isinstance(message, Closed) and to.last_s == 0.0):
            return
        if isinstance(message, Closed):
            to.told = True
        to.take(message)
