"""An agent that was made while there was only the practice model gets the real one that came later."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.models.contract import PRACTICE_HANDLE
from lodger_daemon.turns.contract import NewAgent, StartRuntime
from support.turn_parts import House


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    await house.open()
    yield house
    await house.close()


@pytest.mark.parametrize(
    ("made_with", "default", "answers"),
    [
        (PRACTICE_HANDLE, "real/model", "real/model"),
        (PRACTICE_HANDLE, PRACTICE_HANDLE, PRACTICE_HANDLE),
        ("chosen/model", "real/model", "chosen/model"),
    ],
)
async def test_only_the_practice_model_gives_way(
    house: House, monkeypatch: pytest.MonkeyPatch, made_with: str, default: str, answers: str
) -> None:
    made = await house.conversations.start_runtime(StartRuntime(new_agent=NewAgent(model=made_with)))

    async def default_handle() -> str:
        return default

    monkeypatch.setattr(house.models, "default_handle", default_handle)
    opened = await house.conversations.start_runtime(
        StartRuntime(agent_id=made.agent.id, conversation_id=made.key.conversation_id)
    )
    assert opened.agent.model == answers
    house.key = opened.key
    house.listen()
    await house.say("hello", "cm-1")
    await house.settled()
    assert [request.handle for request in house.models.requests] == [answers]
