"""What goes on and what waits in all conversations at once, for status. Reads only; every answer is bounded.

busy(connection, limit) -> tuple[BusyConversation, ...]    with a turn or a queue; what began first, first
"""

import sqlite3
from dataclasses import dataclass

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ConversationId, ConversationKey

# The conditions are word for word those of the indexes `one_active_turn` and `waiting_inbox`, or SQLite reads it all.
_BUSY = """
SELECT v.agent_id, v.conversation_id, MAX(turn_since), SUM(waiting), SUM(parked), MIN(oldest) FROM (
    SELECT conversation, started_at AS turn_since, 0 AS waiting, 0 AS parked, NULL AS oldest
    FROM turns WHERE status = 'active'
    UNION ALL
    SELECT conversation, NULL, status = 'accepted', status = 'parked', accepted_at
    FROM inbox WHERE status IN ('accepted', 'parked', 'reserved', 'admitted') AND status IN ('accepted', 'parked')
) JOIN conversations v ON v.number = conversation
GROUP BY conversation ORDER BY MIN(COALESCE(oldest, turn_since)), conversation LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class BusyConversation:
    key: ConversationKey
    turn_since: WallTime | None
    """None while no turn goes on."""
    waiting: int
    parked: int
    """Waiting too, until the person lets an aborted conversation go on."""
    oldest_at: WallTime | None
    """When the item that waits longest was accepted."""


def busy(connection: sqlite3.Connection, limit: int) -> tuple[BusyConversation, ...]:
    return tuple(
        BusyConversation(ConversationKey(AgentId(agent), ConversationId(conversation)), since, waiting, parked, oldest)
        for agent, conversation, since, waiting, parked, oldest in connection.execute(_BUSY, (limit,))
    )
