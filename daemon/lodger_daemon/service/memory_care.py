"""What a person may do with an agent's memory beyond its files: look at its sync, start one, settle a conflict."""

import base64
import binascii
from typing import Final

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.sync_state import Conflict
from lodger_daemon.memory.core.wanted_paths import BadRequest
from lodger_daemon.memory.errors import MemoryFailure, MemoryUnavailable
from lodger_daemon.memory.kept import kept_beside_main
from lodger_daemon.memory.memory import Memory
from lodger_daemon.memory.mirror import MirrorStatus
from lodger_daemon.memory.settling import Choice, Decision, NothingToSettle, NotSettled, Settled, Side, Whole
from lodger_daemon.service.status import Section, sync_facts
from lodger_daemon.turns.contract import ConversationError, ConversationService
from lodger_tools.json_value import Json, JsonObject

WAIT_LIMIT_S: Final = 60.0
MAX_CHOICES: Final = 1000
"""Paths settled by one command; a hundredth of what a memory may hold."""


class MemoryCare:
    """Answers `lodger_memory_state`, `lodger_memory_sync` and `lodger_memory_resolve`, of an agent's own memory or with
    `shared` of the one of this name that it shares; and `lodger_memory_shared`. Raises: ConversationError."""

    def __init__(self, memory: Memory, conversations: ConversationService) -> None:
        self._memory = memory
        self._conversations = conversations

    async def state(self, command: JsonObject) -> JsonObject:
        """The last sync and the conflict that is left, if any; and what is kept beside main."""
        agent_id = await self._agent(command)
        return {**await self._state(agent_id, command), "kept": await self._kept(agent_id, _shared_name(command))}

    async def shared(self, command: JsonObject) -> JsonObject:
        """Each memory that the agent shares, what it may do there and how its last sync ended; and what was detached
        and lies here still."""
        agent_id = await self._agent(command)
        sharing = self._memory.shared
        if sharing is None:
            return {"shared": [], "set_aside": []}
        sharing.look(agent_id)
        await sharing.looked(agent_id, _limit_s(command))
        aside: list[Json] = [str(place) for place in sharing.set_aside(agent_id)]
        return {"shared": [*shared_facts(self._memory, agent_id)], "set_aside": aside}

    def sections(self) -> dict[str, Section]:
        """For a status: of all agents here."""
        return {"shared_memories": self._shared, "memory_mirrors": self._mirrors}

    async def _shared(self) -> Json:
        agents = await self._conversations.list_agents()
        return [{"agent_id": agent.id, **one} for agent in agents for one in shared_facts(self._memory, agent.id)]

    async def _mirrors(self) -> Json:
        """How the copies elsewhere stand; empty where the settings name no mirror."""
        found = {agent.id: self._memory.mirror_status(agent.id) for agent in await self._conversations.list_agents()}
        return [{"agent_id": agent, **_mirror_facts(status)} for agent, status in found.items() if status is not None]

    async def sync(self, command: JsonObject) -> JsonObject:
        """Sync now; with `fetch`, ask the remote for newer memory too. Waits for it up to `limit_s`."""
        agent_id = await self._agent(command)
        fetch = command.get("fetch", False)
        if not isinstance(fetch, bool):
            raise ConversationError("fetch must be true or false")
        try:
            self._memory.sync_now(agent_id, fetch=fetch, shared=_shared_name(command))
        except MemoryUnavailable as error:
            raise ConversationError(str(error)) from error
        return await self._state(agent_id, command)

    async def resolve(self, command: JsonObject) -> JsonObject:
        """Settle a conflict as the command says, and sync.

        `choices` maps paths to `{"side": "ours" or "theirs"}` or `{"content": BASE64}`; `rest` is `ours` or `theirs`
        for every other path, or of a history that was replaced `ours`, `theirs` or `both`.
        """
        agent_id = await self._agent(command)
        try:
            result = await self._memory.settle(agent_id, _decision(command), _shared_name(command))
        except (BadRequest, MemoryFailure) as error:
            raise ConversationError(str(error)) from error
        match result:
            case Settled():
                left: list[Json] = [*result.left]
                return {"settled": True, "left": left, **await self._state(agent_id, command)}
            case NothingToSettle():
                return {"settled": False, "left": [], **await self._state(agent_id, command)}
            case NotSettled(findings):
                told = "; ".join(str(finding) for finding in findings[:5])
                raise ConversationError(f"not settled, because what comes out is no valid memory: {told}")

    async def _agent(self, command: JsonObject) -> AgentId:
        agent_id = command.get("agent_id")
        if not isinstance(agent_id, str) or await self._conversations.get_agent(AgentId(agent_id)) is None:
            raise ConversationError(f"Agent {str(agent_id)[:120]} not found")
        return AgentId(agent_id)

    async def _kept(self, agent_id: AgentId, name: str | None) -> Json:
        """None while there is no memory, or where its repository cannot say."""
        try:
            kept = await self._memory.look(agent_id, kept_beside_main, name)
        except MemoryFailure:
            return None
        sharing = self._memory.shared
        detached = sharing.set_aside(agent_id) if sharing is not None and name is None else ()
        return {
            "refs": {str(kind): count for kind, count in kept.refs.items()},
            "bytes": kept.size_bytes,
            "set_aside": [str(place) for place in (*kept.checkouts, *detached)],
        }

    async def _state(self, agent_id: AgentId, command: JsonObject) -> JsonObject:
        """Waits for a sync that runs, as long as the command says."""
        name = _shared_name(command)
        try:
            repository = self._memory.repository(agent_id, name)
        except MemoryUnavailable as error:
            raise ConversationError(str(error)) from error
        sync = await repository.settled(_limit_s(command))
        conflict = repository.room.state.conflict
        mirror = self._memory.mirror_status(agent_id) if name is None else None
        return {
            "sync": sync_facts(sync),
            "conflict": None if conflict is None else _conflict_facts(conflict),
            "mirror": None if mirror is None else _mirror_facts(mirror),
        }


def shared_facts(memory: Memory, agent_id: AgentId) -> list[JsonObject]:
    """By name."""
    if memory.shared is None:
        return []
    return [
        {
            "name": one.name,
            "permissions": one.role.value,
            "place": one.place,
            **sync_facts(one.sync.status()),
            "conflict": None if (found := one.sync.room.state.conflict) is None else _conflict_facts(found),
        }
        for one in memory.shared.of(agent_id).values()
    ]


def _mirror_facts(mirror: MirrorStatus) -> JsonObject:
    return {"head": mirror.head, "at": mirror.at, "fault": mirror.fault}


def _shared_name(command: JsonObject) -> str | None:
    name = command.get("shared")
    if name is not None and not isinstance(name, str):
        raise ConversationError("shared must be the name of a shared memory")
    return name


def _conflict_facts(conflict: Conflict) -> JsonObject:
    kind = "history" if conflict.rewritten else "checkout" if conflict.at_import else "paths"
    paths: list[Json] = [path for path in conflict.paths if path not in conflict.settled]
    return {"kind": kind, "local": conflict.local, "remote": conflict.remote, "paths": paths}


def _limit_s(command: JsonObject) -> float:
    limit_s = command.get("limit_s", 0)
    if not isinstance(limit_s, int | float) or isinstance(limit_s, bool):
        raise ConversationError("limit_s must be a number of seconds")
    return min(max(float(limit_s), 0.0), WAIT_LIMIT_S)


def _decision(command: JsonObject) -> Decision:
    rest, choices = command.get("rest"), command.get("choices", {})
    if not isinstance(choices, dict) or len(choices) > MAX_CHOICES:
        raise ConversationError(f"choices must name at most {MAX_CHOICES} paths")
    if rest is not None and (not isinstance(rest, str) or rest not in list(Whole)):
        raise ConversationError(f"rest must be one of {', '.join(Whole)}")
    whole = None if rest is None else Whole(rest)
    return Decision({path: _choice(path, choice) for path, choice in choices.items()}, whole)


def _choice(path: str, choice: Json) -> Choice:
    match choice:
        case {"side": "ours" | "theirs" as side}:
            return Side(side)
        case {"content": str(content)}:
            try:
                return base64.b64decode(content, validate=True)
            except (binascii.Error, ValueError):
                pass
    raise ConversationError(f"{path[:200]}: give a side, ours or theirs, or the content in base64")
