"""What a client changes of an agent's card reaches the agent's memory, in which it travels."""

import pytest

from lodger_daemon.turns.contract import ConversationError
from support.turn_parts import House


async def test_name_description_and_model_reach_the_memory(house: House) -> None:
    key = await house.start()
    house.memory.cards.clear()
    await house.conversations.update_agent(key.agent_id, {"name": "Ada", "description": "counts", "tags": ["x"]})
    await house.until(lambda: len(house.memory.cards) == 1)
    assert house.memory.cards == [(key.agent_id, {"name": "Ada", "description": "counts"})]
    await house.conversations.set_model(key, "openai/other")
    await house.until(lambda: len(house.memory.cards) == 2)
    assert house.memory.cards[1] == (key.agent_id, {"model": "openai/other"})


async def test_what_is_not_on_the_card_or_not_taken_does_not(house: House) -> None:
    key = await house.start()
    house.memory.cards.clear()
    await house.conversations.update_agent(key.agent_id, {"system": "Be short.", "hidden": True})
    with pytest.raises(ConversationError):
        await house.conversations.update_agent(key.agent_id, {"name": 7})
    await house.conversations.update_agent(key.agent_id, {"name": "Ada"})
    await house.until(lambda: bool(house.memory.cards))
    assert house.memory.cards == [(key.agent_id, {"name": "Ada"})]


async def test_of_two_changes_the_last_one_stays(house: House) -> None:
    key = await house.start()
    house.memory.cards.clear()
    for number in range(5):
        await house.conversations.update_agent(key.agent_id, {"name": f"Ada {number}"})
    await house.until(lambda: len(house.memory.cards) == 5)
    assert house.memory.cards[-1] == (key.agent_id, {"name": "Ada 4"})
