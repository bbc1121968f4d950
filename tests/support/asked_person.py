"""A person who is asked things, and whose answers a test gives."""

import asyncio
from typing import Generic, TypeVar

from lodger_tools.box.contract import BoxKey

Asked = TypeVar("Asked")
Thing = TypeVar("Thing")


class AskedPerson(Generic[Asked, Thing]):
    def __init__(self) -> None:
        self.there = True
        self.asked: list[Asked] = []
        self.answers: list[asyncio.Future[frozenset[Thing] | None]] = []
        """One for each question, to be given its result."""
        self.taken_back = 0

    def can_ask(self, box: BoxKey) -> bool:
        return self.there

    async def ask(self, what: Asked) -> frozenset[Thing] | None:
        self.asked.append(what)
        self.answers.append(asyncio.get_running_loop().create_future())
        try:
            return await self.answers[-1]
        except asyncio.CancelledError:
            self.taken_back += 1
            raise
