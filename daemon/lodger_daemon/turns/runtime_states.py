"""Opening a conversation, and the state that clients choose for it: mode, folder, model."""

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Literal

from lodger_daemon.identity import DEFAULT_CONVERSATION, AgentId, ConversationId, ConversationKey
from lodger_daemon.models.contract import PRACTICE_HANDLE
from lodger_daemon.store import conversation_rows
from lodger_daemon.turns.actor import ConversationActor
from lodger_daemon.turns.boot_folders import BootFolders
from lodger_daemon.turns.contract import (
    AgentRecord,
    ConversationError,
    ConversationSnapshot,
    Folders,
    StartedRuntime,
    StartRuntime,
)
from lodger_daemon.turns.core.events import DeviceStateChanged, LoopStatus, LoopStatusChanged
from lodger_daemon.turns.registry import Registry
from lodger_daemon.turns.services import TurnServices, finish_regardless
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.modes import Mode, within_ceiling


class RuntimeStates:
    """Event loop only. A change is committed before it is shown."""

    def __init__(self, services: TurnServices, registry: Registry) -> None:
        self._services = services
        self._database = services.database
        self._registry = registry
        self._boot = BootFolders(services)

    async def load(self) -> None:
        await self._boot.load()

    async def start(self, request: StartRuntime) -> StartedRuntime:
        if (request.agent_id is None) == (request.new_agent is None):
            raise ConversationError("Name an agent or describe a new one, not both.")
        await self._check(request.mode, request.cwd)
        agent_created = request.new_agent is not None
        if request.new_agent is not None:
            agent = await self._registry.agents.create(request.new_agent)
        else:
            assert request.agent_id is not None
            agent = await self.adopt_agent(request.agent_id)
        key, created = await self._find_or_name(agent.id, request.conversation_id)
        actor = await self._registry.actor(key)
        if created and request.conversation_tags:
            await self._tag(key, request.conversation_tags)
        if request.mode is not None or request.cwd is not None or request.reset_cwd:
            await self._store(actor, request.mode, request.cwd, request.reset_cwd)
        conversation = await self._database.read(lambda connection: conversation_rows.get(connection, key))
        assert conversation is not None
        return StartedRuntime(key, agent, conversation, agent_created, created)

    async def adopt_agent(self, agent_id: AgentId) -> AgentRecord:
        """An agent of this machine, or one whose memory the remote holds. Raises: ConversationError.

        One that has had to do with the practice model gets the default model as soon as that is another.
        """
        agent = await self._registry.agents.adopt(agent_id)
        if agent.model != PRACTICE_HANDLE:
            return agent
        handle = await self._services.models.default_handle()
        return agent if handle == PRACTICE_HANDLE else await self.update_agent(agent_id, {"model": handle})

    async def update_agent(self, agent_id: AgentId, changes: JsonObject) -> AgentRecord:
        async def change() -> AgentRecord:
            changed = await self._registry.agents.update(agent_id, changes)
            for actor in self._registry.of_agent(agent_id):
                actor.desk.live.agent = changed
            return changed

        return await finish_regardless(change())

    async def change(self, key: ConversationKey, mode: Mode | None, cwd: str | None) -> None:
        await self._check(mode, cwd)
        await self._store(await self._registry.actor(key), mode, cwd, reset_cwd=False)

    async def set_model(self, key: ConversationKey, handle: str) -> Literal["agent", "conversation"]:
        """The default conversation's model is its agent's; any other keeps its own."""
        if key.conversation_id == DEFAULT_CONVERSATION:
            await self.update_agent(key.agent_id, {"model": handle})
            return "agent"
        actor = await self._registry.actor(key)
        now = self._services.clock.wall()

        def write(connection: sqlite3.Connection) -> None:
            record = conversation_rows.get(connection, key)
            assert record is not None
            conversation_rows.describe(connection, replace(record, model=handle, updated_at=now))

        async def change() -> None:
            await self._database.write(write)
            actor.desk.live.model = handle

        await finish_regardless(change())
        return "conversation"

    async def folders(self) -> Folders:
        return await self._boot.folders()

    async def set_boot_folder(self, folder: str) -> Folders:
        await self._check(None, folder)
        await finish_regardless(self._boot.choose(folder))
        for actor in self._registry.all_in_use():
            if actor.desk.live.state.cwd is None:
                actor.desk.publish(DeviceStateChanged())
        return await self._boot.folders()

    async def snapshot(self, key: ConversationKey, *, with_queue: bool = True) -> ConversationSnapshot:
        options = self._services.options
        actor = self._registry.in_use(key)
        if actor is None and await self._registry.known(key):
            actor = await self._registry.actor(key)
        if actor is None:
            loop = LoopStatusChanged(LoopStatus.WAITING_ON_INPUT)
            return ConversationSnapshot(key, loop, False, (), (), options.default_mode, options.boot_folder, 0, (), 0)
        desk = actor.desk
        live = desk.live
        return ConversationSnapshot(
            key=key,
            loop=replace(desk.loop_status, client_message_ids=dict(live.runs) or None),
            processing=actor.processing,
            queue=tuple(item.as_queued() for item in desk.waiting()) if with_queue else (),
            questions=tuple(desk.questions.values()),
            mode=live.mode(options),
            cwd=live.cwd(options),
            cwd_revision=live.state.cwd_revision,
            toolset=live.state.toolset,
            last_event_number=desk.log.last_number,
        )

    async def _find_or_name(self, agent_id: AgentId, conversation_id: str | None) -> tuple[ConversationKey, bool]:
        if conversation_id is None:
            fresh = ConversationId(f"conv-{self._services.rng.uuid()}")
            return ConversationKey(agent_id, fresh), True
        key = ConversationKey(agent_id, ConversationId(conversation_id))
        if await self._registry.known(key):
            return key, False
        if conversation_id != DEFAULT_CONVERSATION:
            raise ConversationError(f"Agent {agent_id} has no conversation {conversation_id}.")
        # Every agent has it from the start, although its row is made at first use.
        return key, False

    async def _tag(self, key: ConversationKey, tags: tuple[str, ...]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            record = conversation_rows.get(connection, key)
            if record is not None:
                conversation_rows.describe(connection, replace(record, tags=tags))

        await self._database.write(write)

    async def _check(self, mode: Mode | None, cwd: str | None) -> None:
        ceiling = self._services.options.ceiling
        if mode is not None and not within_ceiling(mode, ceiling):
            raise ConversationError(f"This machine allows no wider mode than {ceiling.value}.")
        if cwd is not None and not (cwd.startswith("/") and await asyncio.to_thread(Path(cwd).is_dir)):
            raise ConversationError(f"{cwd} is not a folder on this machine.")
        if cwd is not None and (refusal := await asyncio.to_thread(self._services.refusal_of, cwd)):
            raise ConversationError(refusal)

    async def _store(self, actor: ConversationActor, mode: Mode | None, cwd: str | None, reset_cwd: bool) -> None:
        key, live = actor.desk.key, actor.desk.live

        def write(connection: sqlite3.Connection) -> int:
            if mode is not None:
                conversation_rows.set_mode(connection, key, mode)
            if cwd is not None or reset_cwd:
                return conversation_rows.set_cwd(connection, key, cwd)
            return live.state.cwd_revision

        async def change() -> None:
            revision = await self._database.write(write)
            if mode is not None:
                live.change_state(mode=mode)
            if cwd is not None or reset_cwd:
                live.change_state(cwd=cwd, cwd_revision=revision)
            actor.desk.publish(DeviceStateChanged())

        await finish_regardless(change())
