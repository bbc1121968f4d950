"""Background writers of memory in this daemon: put together, taken up at its start, and looked after by people."""

from typing import Final

from lodger_daemon.clock import Clock
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.writers import Writer, WriterId
from lodger_daemon.memory.errors import MemoryFailure
from lodger_daemon.memory.memory import Memory
from lodger_daemon.memory.work_trees import WorkTrees
from lodger_daemon.memory.writer_steps import WriterServices
from lodger_daemon.memory.writers import Writers
from lodger_daemon.paths import Paths
from lodger_daemon.randomness import SystemRng
from lodger_daemon.service.box_requests import BoxRequests
from lodger_daemon.store.database import Database
from lodger_daemon.turns.contract import ConversationError, ConversationService
from lodger_tools.box.manager import BoxManager
from lodger_tools.json_value import Json, JsonObject

_BY_PERSON: Final = "a person stopped it"


def make_writers(
    paths: Paths, database: Database, memory: Memory, boxes: BoxManager, requests: BoxRequests, clock: Clock
) -> Writers:
    trees = WorkTrees(paths.agents, requests.owner())
    services = WriterServices(database, memory, boxes, trees, clock, SystemRng())
    return Writers(services, reads_inside=requests.reads_inside)


async def take_up(boxes: BoxManager, writers: Writers) -> None:
    """What an earlier daemon left, once the boxes that it left are known."""
    await boxes.start()
    await writers.start()


class WriterCommands:
    """Answers `lodger_memory_writers` with the list, after the `action` on a `writer_id`, if there is one."""

    def __init__(self, writers: Writers, conversations: ConversationService) -> None:
        self._writers = writers
        self._conversations = conversations

    async def answer(self, command: JsonObject) -> JsonObject:
        """Raises: ConversationError."""
        agent_id = command.get("agent_id")
        if not isinstance(agent_id, str) or await self._conversations.get_agent(AgentId(agent_id)) is None:
            raise ConversationError(f"Agent {str(agent_id)[:120]} not found")
        if (action := command.get("action")) is not None:
            await self._act(AgentId(agent_id), action, command.get("writer_id"))
        return {"writers": [_facts(writer) for writer in await self._writers.of(AgentId(agent_id))]}

    async def section(self) -> Json:
        """For a status: those at work, and those of which something is kept that nobody has decided about."""
        return [_facts(writer) for writer in await self._writers.unsettled()]

    async def _act(self, agent_id: AgentId, action: Json, writer_id: Json) -> None:
        if not isinstance(writer_id, str) or action not in ("cancel", "merge", "drop"):
            raise ConversationError("give a writer_id, and as action cancel, merge or drop")
        if all(writer.id != writer_id for writer in await self._writers.of(agent_id)):
            raise ConversationError(f"{agent_id} has no writer {writer_id[:80]!r}")
        try:
            match action:
                case "cancel":
                    await self._writers.cancel(WriterId(writer_id), _BY_PERSON)
                case "merge":
                    await self._writers.merge_again(WriterId(writer_id))
                case _:
                    await self._writers.drop(WriterId(writer_id))
        except MemoryFailure as failure:
            raise ConversationError(str(failure)) from failure


def _facts(writer: Writer) -> JsonObject:
    reads = writer.reads
    paths: list[Json] = [*writer.paths]
    return {
        "agent_id": writer.agent_id,
        "writer_id": writer.id,
        "kind": writer.kind.value,
        "state": writer.state.value,
        "created_at": writer.created_at,
        "ended_at": writer.ended_at,
        "reads": None if reads is None else {"after": reads.after, "through": reads.through},
        "base": writer.base,
        "tip": writer.tip,
        "head": writer.head,
        "paths": paths,
        "reason": writer.reason,
        "report": writer.report,
    }
