"""Memory commands of people, read from published memory (ARCHITECTURE.md section 10.7)."""

from typing import Final

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.memory import Memory
from lodger_daemon.turns.contract import ConversationError, ConversationService
from lodger_tools.json_value import JsonObject

DEFAULT_LIMIT: Final = 50
MOST: Final = 1000


class MemoryCommands:
    def __init__(self, memory: Memory, conversations: ConversationService) -> None:
        self._memory = memory
        self._conversations = conversations

    async def history(self, command: JsonObject) -> JsonObject:
        """Answers `memory_history` (PROTOCOL.md 4.6), newest first. Raises: ConversationError."""
        agent_id, limit = command.get("agent_id"), command.get("limit", DEFAULT_LIMIT)
        path = command.get("file_path") or ""
        if not isinstance(agent_id, str) or not isinstance(path, str):
            raise ConversationError("memory_history needs an agent_id, and file_path as text")
        if await self._conversations.get_agent(AgentId(agent_id)) is None:
            raise ConversationError(f"Agent {agent_id} not found")
        count = limit if isinstance(limit, int) and 0 < limit <= MOST else DEFAULT_LIMIT
        commits = await self._memory.history(AgentId(agent_id), count, path or None)
        return {
            "file_path": path,
            "commits": [
                {
                    "sha": commit.sha,
                    "message": commit.message,
                    "timestamp": commit.timestamp,
                    "author_name": commit.author_name,
                }
                for commit in commits
            ],
        }
