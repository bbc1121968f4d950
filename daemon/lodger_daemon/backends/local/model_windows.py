"""What fits into a model: the window it has as far as is known, and what stands in every request before any message."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from lodger_daemon.backends.core.budget import SMALLEST_ANSWER, Budget, Calibration, budget_of, floor_of
from lodger_daemon.clock import Clock, MonoTime
from lodger_daemon.models.contract import ModelGateway, ModelInfo, ModelRequest, SystemMessage, ToolSchema

DEFAULT_WINDOW_TOKENS: Final = 128_000
"""For a model nobody knows the window of."""

DESCRIPTION_HOLDS_S: Final = 60.0
"""How long what the gateway said of a model is taken as still true."""


class ModelWindows:
    """Asks the gateway, and keeps what it said for a while."""

    def __init__(self, models: ModelGateway, clock: Clock) -> None:
        self._models = models
        self._clock = clock
        self._known_models: dict[str, tuple[MonoTime, ModelInfo | None]] = {}
        self._known_floor: tuple[object, int] | None = None

    def forget(self, handle: str) -> None:
        """What was said of this model has turned out wrong."""
        self._known_models.pop(handle, None)

    async def budget_of(self, request: ModelRequest, calibration: Calibration) -> Budget:
        return await self.budget(request.handle, self.floor_of(request), calibration)

    async def budget(self, handle: str, floor: int, calibration: Calibration) -> Budget:
        info = await self._describe(handle)
        window = (info.context_window if info is not None else 0) or DEFAULT_WINDOW_TOKENS
        return budget_of(calibration.window(window), floor, info.max_output_tokens if info is not None else None)

    def floor_of(self, request: ModelRequest) -> int:
        """The tokens of what stands before the messages of every request."""
        first = request.messages[0]
        return self.floor(first.text if isinstance(first, SystemMessage) else "", request.tools)

    def floor(self, prompt: str, tools: Sequence[ToolSchema]) -> int:
        known = (prompt, tuple((tool.name, len(tool.description)) for tool in tools))
        if self._known_floor is None or self._known_floor[0] != known:
            self._known_floor = (known, floor_of(prompt, tools))
        return self._known_floor[1]

    async def with_answer_limit(
        self, request: ModelRequest, estimated_tokens: int, calibration: Calibration
    ) -> ModelRequest:
        """Near the end of the window an answer may take half of what is left, and all that was kept for it: some
        providers refuse a request whose longest possible answer would not fit."""
        info = await self._describe(request.handle)
        if info is None:
            return request
        budget = await self.budget(request.handle, 0, calibration)
        room = budget.window - estimated_tokens
        if room >= info.max_output_tokens:
            return request
        limit = max(min(room, budget.reserve), room // 2, SMALLEST_ANSWER)
        return replace(request, max_output_tokens=min(limit, info.max_output_tokens))

    async def _describe(self, handle: str) -> ModelInfo | None:
        now = self._clock.mono()
        known = self._known_models.get(handle)
        if known is None or now - known[0] > DESCRIPTION_HOLDS_S:
            known = self._known_models[handle] = (now, await self._models.describe(handle))
        return known[1]


def too_large(handle: str, budget: Budget, messages: int) -> str:
    """Name what fills the window, and what helps."""
    window = f"{handle} reads about {budget.window} tokens"
    larger = "choose a model with a larger window"
    if not budget.can_be_sent(0):
        return (
            f"{window}, and the instructions, the memory and the descriptions of the tools alone take about "
            f"{budget.floor} of them. Shorten the agent's memory, allow it fewer tools, or {larger}; if the model does "
            "read more, set its context_window in the settings."
        )
    return (
        f"{window}, and this request needs about {budget.floor + messages} even after compaction: {budget.floor} for "
        f"instructions, memory and tools, {messages} for the newest messages. Send less at a time, or {larger}."
    )
