"""Makes, describes and forks conversations, in the store and where one is in use."""

from lodger_daemon.clock import Clock
from lodger_daemon.identity import AgentId, ConversationKey, MessageId
from lodger_daemon.randomness import Rng
from lodger_daemon.store.database import Database
from lodger_daemon.turns import conversation_changes
from lodger_daemon.turns.contract import ConversationRecord
from lodger_daemon.turns.registry import Registry
from lodger_daemon.turns.services import TurnServices, finish_regardless
from lodger_daemon.turns.stored_messages import whole_id
from lodger_tools.json_value import JsonObject


class ConversationEditor:
    """Event loop only."""

    def __init__(self, services: TurnServices, registry: Registry) -> None:
        self._database: Database = services.database
        self._clock: Clock = services.clock
        self._rng: Rng = services.rng
        self._registry = registry

    async def create(self, agent_id: AgentId, changes: JsonObject) -> ConversationRecord:
        """Of an agent that exists. Raises: ConversationError."""
        key, now = conversation_changes.new_key(agent_id, self._rng.uuid()), self._clock.wall()
        await self._database.write(lambda connection: conversation_changes.create(connection, key, changes, now))
        return await self._database.read(lambda connection: conversation_changes.required(connection, key))

    async def update(self, key: ConversationKey, changes: JsonObject) -> ConversationRecord:
        """Raises: ConversationError."""
        now = self._clock.wall()

        async def change() -> ConversationRecord:
            record = await self._database.write(
                lambda connection: conversation_changes.update(connection, key, changes, now)
            )
            actor = self._registry.in_use(key)
            if actor is not None:
                actor.desk.live.model = record.model
            return record

        return await finish_regardless(change())

    async def fork(self, key: ConversationKey, last_message_id: str | None, hidden: bool) -> ConversationKey:
        """Raises: ConversationError."""
        fresh, now = conversation_changes.new_key(key.agent_id, self._rng.uuid()), self._clock.wall()
        last = None if last_message_id is None else whole_id(last_message_id)
        await self._database.write(
            lambda connection: conversation_changes.fork(connection, key, fresh, last, hidden, self._new_id, now)
        )
        return fresh

    def _new_id(self) -> MessageId:
        return MessageId(f"message-{self._rng.uuid()}")
