"""What all parts of one simulated run share: chance, time, the disk, the trace, and what has gone wrong."""

import asyncio
import contextvars
import random
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lodger_daemon.clock import MonoTime, WallTime
from simulation.loop import Life, SimTask, VirtualLoop

FIRST_WALL_S: Final = 1_790_000_000.0


@dataclass
class Weather:
    """How likely each misfortune is in this run; all of it ends when the run is to settle."""

    model_fails: float = 0.0
    model_odd: float = 0.0
    """Empty, cut, hostile or oddly framed answers."""
    calls_tools: float = 0.5
    box_dies: float = 0.0
    slow_disk: float = 0.0
    answers_questions: float = 1.0
    window_tokens: int = 100_000
    turn_tokens: int | None = None
    """What one turn may spend before a person is asked."""

    def clear_up(self) -> None:
        self.model_fails = self.model_odd = self.box_dies = self.slow_disk = 0.0
        self.answers_questions = 1.0


@dataclass
class World:
    seed: int
    folder: Path
    keep_trace: bool = False
    chance: random.Random = field(init=False)
    loop: VirtualLoop = field(init=False)
    context: contextvars.Context = field(init=False)
    weather: Weather = field(default_factory=Weather)
    disk_is_full: bool = False
    jumped_s: float = float("-inf")
    """When the monotonic clock jumped last."""
    wall_offset_s: float = FIRST_WALL_S
    trace: list[tuple[float, str, str]] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    owner: Life | None = None
    """The daemon that started last: it alone is let into boxes, and only its requests move a conversation on."""
    sent_numbers: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    """What each event number of a conversation stands for: one thing, for everybody and for ever."""
    inspector: sqlite3.Connection | None = None
    digest: int = 0
    """Of everything noted: the same whenever and wherever the seed is played."""

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed}/events")
        self.loop = VirtualLoop(self._executor_delay_s, self._executor_delay_s)
        self.context = contextvars.copy_context()

    # -- chance --

    def happens(self, likelihood: float) -> bool:
        return self.chance.random() < likelihood

    def between(self, least_s: float, most_s: float) -> float:
        """Short waits more often than long ones."""
        return least_s + (most_s - least_s) * self.chance.random() ** 3

    def commit_delay_s(self) -> float:
        if self.happens(self.weather.slow_disk):
            return self.between(0.05, 3.0)
        return self.between(0.0002, 0.004)

    def _executor_delay_s(self) -> float:
        return self.between(0.00001, 0.002)

    # -- time --

    def wall_s(self) -> float:
        return self.wall_offset_s + self.loop.time()

    # -- work of nobody's process --

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self.loop.create_task(work, context=self.context.copy())
        return task

    def later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        return self.loop.call_later(delay_s, callback, *arguments, context=self.context)

    # -- what was seen --

    def note(self, who: str, text: str) -> None:
        text = text.replace(str(self.folder), "")
        self.digest = zlib.crc32(f"{self.loop.time():.6f}{who}{text}".encode(errors="replace"), self.digest)
        if self.keep_trace:
            self.trace.append((self.loop.time(), who, text))

    def fail(self, law: str, text: str) -> None:
        """A promise was broken: the run halts with this."""
        self.note("FAULT", f"{law}: {text}")
        if self.loop.halt is None:
            self.loop.halt = f"{law}: {text}"

    # -- the disk --

    @property
    def database(self) -> Path:
        return self.folder / "lodger.db"

    def look(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What is committed now."""
        if self.inspector is None:
            self.inspector = sqlite3.connect(self.database, isolation_level=None)
            self.inspector.execute("PRAGMA query_only = ON")
        return self.inspector.execute(query, values).fetchall()

    def close(self) -> None:
        if self.inspector is not None:
            self.inspector.close()
            self.inspector = None
        for life in self.lives:
            life.held.clear()
            for task in life.tasks:
                bury(task)
            life.tasks.clear()
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def bury(task: SimTask) -> None:
    """What a dead process left waiting is let go of without running: nobody may see its `finally`."""
    if task.done():
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    work = task.get_coro()
    try:
        work.close()  # type: ignore[union-attr]
    except BaseException:
        # What a dead process does on its way out says nothing.
        return


class SimClock:
    """Implements `Clock` over virtual time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wall(self) -> WallTime:
        return WallTime(self._world.wall_s())

    def mono(self) -> MonoTime:
        return MonoTime(self._world.loop.time())

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
