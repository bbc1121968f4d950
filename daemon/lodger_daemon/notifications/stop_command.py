"""`lodger_background_stop`: Lodger's own command by which a person ends what goes on in the background."""

from typing import Final, Protocol

from lodger_daemon.identity import AgentId, ConversationId, ConversationKey
from lodger_daemon.notifications.contract import Task
from lodger_daemon.turns.contract import ConversationError
from lodger_tools.box.contract import BoxKey, BoxStatus
from lodger_tools.catalogue.arguments import BadArguments
from lodger_tools.catalogue.background_tasks import bind_stop
from lodger_tools.json_value import Json, JsonObject

BOX_PREFIX: Final = "box-"
"""Before the number by which a status lists what earlier commands left running in one box."""


class RunningTasks(Protocol):
    def running(self, conversation: ConversationKey) -> tuple[JsonObject, ...]: ...

    async def stop(self, conversation: ConversationKey, number: int) -> Task | None: ...


class LeftoverBoxes(Protocol):
    def statuses(self) -> tuple[BoxStatus, ...]: ...

    async def stop_leftovers(self, key: BoxKey) -> int: ...


class StopCommand:
    """`agent_id`, `conversation_id`, and `process_id` as the device status lists it; without one, every task of the
    conversation and what its agent left running. Answers `stopped`, the ids of what was ended."""

    def __init__(self, tasks: RunningTasks, boxes: LeftoverBoxes) -> None:
        self._tasks = tasks
        self._boxes = boxes

    async def answer(self, command: JsonObject) -> JsonObject:
        """Raises: ConversationError."""
        agent_id, conversation_id, wanted = (
            command.get(name) for name in ("agent_id", "conversation_id", "process_id")
        )
        if not isinstance(agent_id, str) or not isinstance(conversation_id, str):
            raise ConversationError("Name the conversation by agent_id and conversation_id.")
        if wanted is not None and not isinstance(wanted, str):
            raise ConversationError("process_id must be a text.")
        key = ConversationKey(AgentId(agent_id), ConversationId(conversation_id))
        everything = [str(one["process_id"]) for one in self._tasks.running(key)]
        everything += [_box_id(box) for box in self._boxes.statuses() if box.key.agent_id == agent_id and box.leftovers]
        stopped: list[Json] = [one for one in everything if wanted in (None, one) and await self._stop(key, one)]
        if wanted is not None and not stopped:
            raise ConversationError(f"{wanted[:100]} does not run in the background of this conversation.")
        return {"stopped": stopped}

    async def _stop(self, key: ConversationKey, process_id: str) -> bool:
        for box in self._boxes.statuses():
            if _box_id(box) == process_id:
                return await self._boxes.stop_leftovers(box.key) > 0
        try:
            task = await self._tasks.stop(key, bind_stop({"task_id": process_id}))
        except BadArguments:
            return False
        return task is not None and task.end is not None


def _box_id(box: BoxStatus) -> str:
    return f"{BOX_PREFIX}{box.host_pid}"
