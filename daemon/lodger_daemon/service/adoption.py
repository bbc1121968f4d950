"""A machine that has no agent yet takes in those it can have."""

import asyncio
import logging
from typing import Final

from lodger_daemon.memory.memory import Memory
from lodger_daemon.turns.conductor import Conversations
from lodger_daemon.turns.contract import ConversationError

ADOPTION_LIMIT_S: Final = 30.0
"""A machine without agents waits this long for those its hub holds: their first clones."""
_LOG: Final = logging.getLogger(__name__)


async def adopt_known(conversations: Conversations, memory: Memory) -> None:
    """On a machine that has no agent yet: those the hub holds, oldest first, and those whose memory is here. A hub that
    does not answer delays the start and fails nothing."""
    if await conversations.list_agents():
        return
    try:
        async with asyncio.timeout(ADOPTION_LIMIT_S):
            for agent_id in await memory.known_agents():
                try:
                    await conversations.adopt_agent(agent_id)
                except ConversationError as error:
                    _LOG.warning("the agent %s could not be taken in: %s", agent_id, error)
    except TimeoutError as error:
        _LOG.warning("not every agent of the hub could be taken in: %s", error)
