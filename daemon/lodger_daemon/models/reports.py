"""What a worker reports of one request, kept until the daemon takes it."""

import asyncio
from collections import deque
from typing import Final

from lodger_daemon.models.contract import FailureKind, ModelFailure, ReasoningChunk, TextChunk, ToolCallChunk
from lodger_daemon.models.core.frames import Report

ANSWER_LIMIT_CHARACTERS: Final = 32 * 1024 * 1024
"""Of one step. Far above what any model writes; without it a server that never stops would take all memory."""
_REPORT_COST: Final = 64
"""What a report counts besides its text, so that empty ones have an end too."""


class Reports:
    """In order, until the end of the request."""

    __slots__ = ("_room", "_waiter", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[Report] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._room = ANSWER_LIMIT_CHARACTERS

    def put(self, report: Report) -> None:
        """What comes after too much is dropped."""
        if self._room < 0:
            return
        self._room -= _REPORT_COST + _characters(report)
        if self._room < 0:
            report = ModelFailure(
                FailureKind.BAD_REQUEST,
                f"The provider's answer is longer than {ANSWER_LIMIT_CHARACTERS} characters and was cut off.",
            )
        self._waiting.append(report)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> Report:
        while not self._waiting:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._waiting.popleft()


def _characters(report: Report) -> int:
    match report:
        case TextChunk(text):
            return len(text)
        case ReasoningChunk(text, signature):
            return len(text) + len(signature or "")
        case ToolCallChunk():
            return len(report.tool_call_id or "") + len(report.name or "") + len(report.arguments_fragment)
        case _:
            return 0
