"""The summary call, with a model that never comes to an end."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from lodger_daemon.backends.local.summariser import summarise
from lodger_daemon.models.contract import FailureKind, ModelChunk, ModelFailure, ModelGateway, ModelRequest, TextChunk


class Endless:
    """Goes on saying the same, at every turn of the loop."""

    def __init__(self) -> None:
        self.closed = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        try:
            while True:
                yield TextChunk("and ")
                await asyncio.sleep(0)
        finally:
            self.closed = True


async def test_a_summary_without_end_is_given_up_and_its_request_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lodger_daemon.backends.local.summariser.SUMMARY_LIMIT_S", 0.05)
    models = Endless()
    async with asyncio.timeout(10):
        with pytest.raises(ModelFailure) as failed:
            await summarise(cast("ModelGateway", models), "any/model", (), "key")
    assert (failed.value.kind, models.closed) == (FailureKind.TIMEOUT, True)
