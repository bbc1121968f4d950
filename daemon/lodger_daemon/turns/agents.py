"""Agents of this machine: their records, and that each one's memory is ready before it is needed."""

import asyncio
import logging
import sqlite3
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import AgentCard
from lodger_daemon.memory.errors import MemoryFailure
from lodger_daemon.store import agent_rows
from lodger_daemon.store.errors import ConstraintViolated
from lodger_daemon.turns.contract import AgentRecord, ConversationError, NewAgent
from lodger_daemon.turns.services import TurnServices
from lodger_tools.json_value import JsonObject

CHANGEABLE: Final = frozenset({"name", "description", "model", "system", "tags", "hidden"})
_ON_CARD: Final = frozenset({"name", "description", "model"})
_log = logging.getLogger(__name__)


class Agents:
    """Event loop only."""

    def __init__(self, services: TurnServices) -> None:
        self._services = services
        self._preparing: dict[AgentId, asyncio.Task[AgentCard]] = {}
        self._following: set[asyncio.Task[None]] = set()

    async def all(self) -> tuple[AgentRecord, ...]:
        return await self._services.database.read(agent_rows.all_agents)

    async def get(self, agent_id: AgentId) -> AgentRecord | None:
        return await self._services.database.read(lambda connection: agent_rows.get(connection, agent_id))

    async def create(self, agent: NewAgent) -> AgentRecord:
        """Its memory is made beside; the first turn waits for it."""
        record = await self._store(AgentId(f"agent-{self._services.rng.uuid()}"), agent)
        self._prepare(record.id, AgentCard(record.name, record.description, record.model))
        return record

    async def adopt(self, agent_id: AgentId) -> AgentRecord:
        """The agent as this machine knows it; else as its memory on the remote introduces it.

        Raises: ConversationError.
        """
        record = await self.get(agent_id)
        if record is not None:
            self._prepare(agent_id, AgentCard(record.name, record.description, record.model))
            return record
        if await self._services.database.read(lambda connection: agent_rows.deleted(connection, agent_id)):
            raise ConversationError(f"Agent {agent_id} was deleted on this machine.")
        if agent_id not in await self._services.memory.known_agents():
            raise ConversationError(f"There is no agent {agent_id} on this machine or at its hub.")
        try:
            # Shielded: whoever else waits for this clone goes on waiting when this client leaves.
            card = await asyncio.shield(self._prepare(agent_id, None))
        except (MemoryFailure, OSError) as error:
            raise ConversationError(f"The memory of agent {agent_id} cannot be had: {error}") from error
        return await self._store(agent_id, NewAgent(card.name, card.description, card.model))

    async def update(self, agent_id: AgentId, changes: JsonObject) -> AgentRecord:
        """Raises: ConversationError."""
        now = self._services.clock.wall()

        def write(connection: sqlite3.Connection) -> AgentRecord:
            record = agent_rows.get(connection, agent_id)
            if record is None:
                raise ConversationError(f"There is no agent {agent_id} on this machine.")
            changed = replace(_changed(record, changes), updated_at=now)
            agent_rows.replace(connection, changed)
            return changed

        changed = await self._services.database.write(write)
        if told := _ON_CARD & changes.keys():
            task = asyncio.get_running_loop().create_task(self._memory_follows(agent_id, told))
            self._following.add(task)
            task.add_done_callback(self._following.discard)
        return changed

    async def delete(self, agent_id: AgentId) -> None:
        """Take the agent out of every list for good; its memory and what was said stay on disk.

        Raises: ConversationError while it has something to do.
        """
        now = self._services.clock.wall()

        def write(connection: sqlite3.Connection) -> None:
            if agent_rows.at_work(connection, agent_id):
                raise ConversationError(
                    "The agent is at work, or messages wait for it. Stop its turns and empty its queues first."
                )
            if not agent_rows.delete(connection, agent_id, now):
                raise ConversationError(f"Agent {agent_id} not found")

        await self._services.database.write(write)

    async def memory_ready(self, agent_id: AgentId) -> None:
        """Waits for a first clone; afterwards it costs nothing."""
        task = self._preparing.get(agent_id)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            record = await self.get(agent_id)
            card = AgentCard(record.name, record.description, record.model) if record is not None else None
            task = self._prepare(agent_id, card)
        if not task.done():
            await asyncio.shield(task)
        task.result()

    async def aclose(self) -> None:
        tasks = {task for task in (*self._preparing.values(), *self._following) if not task.done()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _memory_follows(self, agent_id: AgentId, names: Collection[str]) -> None:
        """The card travels with the memory. Of several changes at once the last one stays, in whatever order they get
        here: each writes what is stored by then."""
        try:
            await self.memory_ready(agent_id)
            record = await self.get(agent_id)
            if record is not None:
                values = {"name": record.name, "description": record.description, "model": record.model}
                await self._services.memory.follow_card(agent_id, {name: values[name] for name in names})
        except (MemoryFailure, OSError) as error:
            _log.warning("agent.toml of %s does not follow the change: %s", agent_id, error)

    def _prepare(self, agent_id: AgentId, card: AgentCard | None) -> asyncio.Task[AgentCard]:
        task = self._preparing.get(agent_id)
        if task is not None and not (task.done() and (task.cancelled() or task.exception() is not None)):
            return task
        task = asyncio.get_running_loop().create_task(_prepared(self._services, agent_id, card))
        # Seen here so that a failure nobody waited for is not reported as lost; the next turn meets it again.
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        self._preparing[agent_id] = task
        return task

    async def _store(self, agent_id: AgentId, agent: NewAgent) -> AgentRecord:
        now = self._services.clock.wall()
        record = AgentRecord(
            id=agent_id,
            name=agent.name,
            description=agent.description,
            model=agent.model or await self._services.models.default_handle(),
            system=agent.system,
            tags=agent.tags,
            created_at=now,
            updated_at=now,
            hidden=agent.hidden,
        )
        try:
            await self._services.database.write(lambda connection: agent_rows.insert(connection, record))
        except ConstraintViolated:
            # Two clients adopted one agent at the same moment.
            known = await self.get(agent_id)
            if known is None:
                raise
            return known
        return record


async def _prepared(services: TurnServices, agent_id: AgentId, card: AgentCard | None) -> AgentCard:
    return await services.memory.prepare(agent_id, card)


def _changed(record: AgentRecord, changes: JsonObject) -> AgentRecord:
    for name, value in changes.items():
        if name not in CHANGEABLE:
            continue
        match name, value:
            case "tags", list():
                record = replace(record, tags=tuple(str(tag) for tag in value))
            case "hidden", bool():
                record = replace(record, hidden=value)
            case (("name" | "description" | "model" | "system"), str()):
                record = replace(record, **{name: value})  # type: ignore[arg-type]
            case _:
                raise ConversationError(f"{name} cannot be set to that.")
    return record
