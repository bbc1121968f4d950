"""What a person may do about what is kept beside an agent's memory: look, bring it back, let go of it."""

from functools import partial
from typing import assert_never

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.backups import NotRestored, Restored, bring_back
from lodger_daemon.memory.core.wanted_paths import BadRequest
from lodger_daemon.memory.errors import MemoryFailure
from lodger_daemon.memory.housekeeping import sweep_at_next
from lodger_daemon.memory.kept import KeptRef, drop_kept, kept_named, list_kept
from lodger_daemon.memory.memory import Memory
from lodger_daemon.memory.published import Published
from lodger_daemon.turns.contract import ConversationError, ConversationService
from lodger_tools.json_value import Json, JsonObject


class KeptCommands:
    """Answers `lodger_memory_kept` with the list, after the `action` on the `name` of one, if there is one."""

    def __init__(self, memory: Memory, conversations: ConversationService) -> None:
        self._memory = memory
        self._conversations = conversations

    async def answer(self, command: JsonObject) -> JsonObject:
        """Raises: ConversationError."""
        agent_id, shared = command.get("agent_id"), command.get("shared")
        if not isinstance(agent_id, str) or await self._conversations.get_agent(AgentId(agent_id)) is None:
            raise ConversationError(f"Agent {str(agent_id)[:120]} not found")
        if shared is not None and not isinstance(shared, str):
            raise ConversationError("shared must be the name of a shared memory")
        try:
            restored = await self._act(AgentId(agent_id), shared, command.get("action"), command.get("name"))
            found = await self._memory.look(AgentId(agent_id), list_kept, shared)
        except (BadRequest, MemoryFailure) as failure:
            raise ConversationError(str(failure)) from failure
        facts: JsonObject = {} if restored is None else {"head": restored.head, "changed": restored.changed}
        return {"kept": [_facts(one) for one in found], **facts}

    async def _act(self, agent_id: AgentId, shared: str | None, action: Json, name: Json) -> Restored | None:
        match action, name:
            case None, None:
                return None
            case "drop", str():
                await self._drop(agent_id, shared, name)
                return None
            case "restore", str():
                return await self._restore(agent_id, shared, name)
        raise BadRequest("give the name of what is kept, and as action drop or restore")

    async def _drop(self, agent_id: AgentId, shared: str | None, name: str) -> None:
        conflict = self._memory.repository(agent_id, shared).room.state.conflict
        sides = () if conflict is None else (conflict.local, conflict.remote)

        def drop(published: Published, _: str) -> None:
            if kept_named(published, name).commit in sides:
                raise BadRequest("this is one side of a conflict: settle it first, with `lodger memory resolve`")
            drop_kept(published, name)
            sweep_at_next(published)

        await self._memory.look(agent_id, drop, shared)
        self._memory.sync_now(agent_id, fetch=False, shared=shared)

    async def _restore(self, agent_id: AgentId, shared: str | None, name: str) -> Restored:
        room = self._memory.repository(agent_id, shared).room
        if not room.may_write:
            raise BadRequest("this memory is attached for reading: nothing is brought back into it from here")
        result = await self._memory.look(agent_id, partial(_bring_back, name, room.now_s()), shared)
        match result:
            case Restored():
                self._memory.sync_now(agent_id, fetch=False, shared=shared)
                return result
            case NotRestored(findings):
                told = "; ".join(str(finding) for finding in findings[:5])
                raise BadRequest(f"not brought back, because it is no valid memory: {told}")
            case _:
                assert_never(result)


def _bring_back(name: str, now_s: int, published: Published, _: str) -> Restored | NotRestored:
    return bring_back(published, kept_named(published, name).commit, now_s)


def _facts(one: KeptRef) -> JsonObject:
    return {"name": one.name, "commit": one.commit, "at": one.at_s, "subject": one.subject}
