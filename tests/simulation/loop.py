"""An event loop without a wall clock: when nothing is ready, time jumps to the next timer.

Everything that runs carries a context variable that says whose it is. A `Life` stands for one process: when it dies,
nothing of it ever runs again, not even a `finally`; while it is frozen, what was due for it waits.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Any, Final

LIFE: contextvars.ContextVar["Life | None"] = contextvars.ContextVar("life", default=None)

ROUNDS_WITHOUT_TIME: Final = 100_000
"""So many rounds of the loop at one instant are a program that spins."""


class Stalled(Exception):
    """Nothing is ready and no timer is set: whoever still waits waits for ever."""


class Halted(Exception):
    """A check failed; the run ends where it stands."""


class LifeState(Enum):
    ALIVE = auto()
    FROZEN = auto()
    DEAD = auto()


class Life:
    """One process of the simulation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = LifeState.ALIVE
        self.tasks: list[SimTask] = []
        self.held: list[asyncio.Handle] = []
        self.fuse: int | None = None
        """How many more callbacks of it run before `blow` is called: a moment between any two awaits."""
        self.blow: Callable[[], None] = lambda: None
        self.context = contextvars.copy_context()
        self.context.run(LIFE.set, self)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call something as this process."""
        return self.context.copy().run(function, *arguments)

    def thaw(self, loop: "VirtualLoop") -> None:
        self.state = LifeState.ALIVE
        loop.take_up(self.held)
        self.held = []


class SimTask(asyncio.Task[Any]):
    """Sets of tasks are walked in the order of their making, so that a seed plays the same in every process."""

    made = 0

    def __init__(self, coro: Coroutine[Any, Any, Any], loop: "VirtualLoop", **options: Any) -> None:
        SimTask.made += 1
        self._serial = SimTask.made
        context = options.get("context")
        self.life = LIFE.get() if context is None else context.get(LIFE)
        super().__init__(coro, loop=loop, **options)
        if self.life is not None:
            self.life.tasks.append(self)

    def __hash__(self) -> int:
        return self._serial

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs one seed, then is closed."""

    def __init__(self, executor_delay_s: Callable[[], float], delivery_delay_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = 0.0
        self._executor_delay_s = executor_delay_s
        self._delivery_delay_s = delivery_delay_s
        self._delivered_s = 0.0
        self._ready: deque[asyncio.Handle]
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap; timers of one moment go off in the order in which they were set."""
        self._timers_set = 0
        self._still = 0
        self.steps = 0
        self.halt: str | None = None
        self.unheard: list[str] = []
        self.set_exception_handler(self._note_unheard)

    def time(self) -> float:
        return self._now_s

    def skip(self, seconds: float) -> None:
        """The machine slept with its monotonic clock going on: every timer is late."""
        self._now_s += seconds

    def take_up(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)

    def create_task(self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None) -> Any:
        return SimTask(coro, self, name=name, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """A thread's work takes time and is done at one moment, in this thread."""
        future = self.create_future()

        def work() -> None:
            if future.done():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self._executor_delay_s(), work)
        return future

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """What another thread tells arrives later, in the order it was told."""
        self._delivered_s = max(self._delivered_s + 1e-9, self._now_s + self._delivery_delay_s())
        return self.call_at(self._delivered_s, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, handle))
        return handle

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready:
            self._jump()
        else:
            self._still += 1
            if self._still > ROUNDS_WITHOUT_TIME:
                raise Stalled("the program spins without waiting for anything")
        while timers and timers[0][0] <= self._now_s:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle: Any = ready.popleft()
            if handle._cancelled:
                continue
            life = handle._context.get(LIFE)
            if life is not None and not self._may_run(life, handle):
                continue
            self.steps += 1
            handle._run()
            if self.halt is not None:
                raise Halted(self.halt)

    def _may_run(self, life: Life, handle: asyncio.Handle) -> bool:
        if life.fuse is not None and life.state is LifeState.ALIVE:
            life.fuse -= 1
            if life.fuse <= 0:
                life.fuse = None
                life.blow()
        if life.state is LifeState.FROZEN:
            life.held.append(handle)
        return life.state is LifeState.ALIVE

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            if self._stopping:  # type: ignore[attr-defined]
                return
            raise Stalled("everybody waits for somebody else")
        self._now_s = max(self._now_s, timers[0][0])
        self._still = 0

    def _timer_handle_cancelled(self, handle: Any) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _note_unheard(self, _: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.unheard.append(f"{context.get('message')}: {error!r}")
