"""What is true of this daemon now, as `lodger status`, `doctor` and clients ask it. Each fact carries its instant."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import AgentMemory, SyncStatus
from lodger_daemon.models.contract import ModelGateway
from lodger_daemon.questions.questions import QuestionBook
from lodger_daemon.service.machine import VERSION
from lodger_daemon.service.sandbox_check import SandboxCheck
from lodger_daemon.store.database import Database
from lodger_daemon.turns.contract import ConversationError, ConversationService
from lodger_daemon.uplink.core.status import UplinkStatus
from lodger_tools.box.contract import Boxes
from lodger_tools.json_value import JsonObject

PRACTICE_PREFIX: Final = "practice/"
GIB: Final = 1024**3


class StatusReport:
    """Gathers facts from the rooms; opens nothing and waits for nobody for long."""

    def __init__(
        self,
        *,
        name: str,
        device_id: str,
        state: Path,
        clock: Clock,
        database: Database,
        conversations: ConversationService,
        memory: AgentMemory,
        models: ModelGateway,
        boxes: Boxes,
        questions: QuestionBook,
        sandbox: SandboxCheck,
        uplink: Callable[[], UplinkStatus | None],
    ) -> None:
        self._name = name
        self._device_id = device_id
        self._state = state
        self._clock = clock
        self._started_at: WallTime = clock.wall()
        self._database = database
        self._conversations = conversations
        self._memory = memory
        self._models = models
        self._boxes = boxes
        self._questions = questions
        self._sandbox = sandbox
        self._uplink = uplink

    async def status(self, command: JsonObject) -> JsonObject:
        """Answers `lodger_status`."""
        del command
        agents = await self._conversations.list_agents()
        model = await self._models.default_handle()
        usage = await asyncio.to_thread(shutil.disk_usage, self._state)
        return {
            "status": {
                "machine": {
                    "name": self._name,
                    "device_id": self._device_id,
                    "version": VERSION,
                    "pid": os.getpid(),
                    "started_at": self._started_at,
                },
                "uplink": self._uplink_facts(),
                "model": {"default": model, "practice": model.startswith(PRACTICE_PREFIX)},
                "sandbox": self._sandbox.facts(),
                "boxes": [
                    {
                        "agent_id": box.key.agent_id,
                        "workspace": box.key.workspace,
                        "profile": box.key.profile.value,
                        "running_calls": box.running_calls,
                        "leftovers": box.leftovers,
                        "idle_s": box.idle_s,
                    }
                    for box in self._boxes.statuses()
                ],
                "questions": {"pending": self._questions.count()},
                "disk": {
                    "free_bytes": usage.free,
                    "store_full": self._database.counts.full,
                    "summary": "FULL: new messages are refused"
                    if self._database.counts.full
                    else f"{usage.free / GIB:.1f} GiB free",
                },
                "agents": [
                    {
                        "id": agent.id,
                        "name": agent.name,
                        "model": agent.model,
                        "model_served": await self._models.describe(agent.model) is not None,
                        "memory": sync_facts(self._memory.status(agent.id)),
                    }
                    for agent in agents
                ],
            }
        }

    async def memory_settled(self, command: JsonObject) -> JsonObject:
        """Answers `lodger_memory_settled`: waits until no sync of an agent runs, at most `limit_s`."""
        agent_id, limit_s = command.get("agent_id"), command.get("limit_s", 0)
        if not isinstance(agent_id, str) or not isinstance(limit_s, int | float):
            raise ConversationError("lodger_memory_settled needs an agent_id, and limit_s as a number")
        if await self._conversations.get_agent(AgentId(agent_id)) is None:
            raise ConversationError(f"Agent {agent_id} not found")
        return {"sync": sync_facts(await self._memory.settled(AgentId(agent_id), min(float(limit_s), 60.0)))}

    def _uplink_facts(self) -> JsonObject:
        status = self._uplink()
        if status is None:
            return {"state": "off", "url": None, "since": None, "last_contact": None, "reason": None}
        return {
            "state": status.state.value,
            "url": status.hub_url,
            "since": status.since,
            "last_contact": status.last_contact_at,
            "next_attempt_at": status.next_attempt_at,
            "reason": status.reason,
            "failures": status.failures,
            "clients": status.clients,
        }


def sync_facts(sync: SyncStatus) -> JsonObject:
    return {
        "outcome": sync.outcome.value,
        "head": sync.head,
        "ahead": sync.ahead,
        "at": sync.at,
        "detail": sync.detail,
    }
