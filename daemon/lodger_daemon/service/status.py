"""What is true of this daemon now, as `lodger status`, `doctor` and clients ask it. Each fact carries its instant.

The shape of the answer is documented in docs/status.md; keys are added, never renamed.
"""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import AgentMemory, SyncStatus
from lodger_daemon.models.contract import ModelGateway
from lodger_daemon.models.outcomes import ModelOutcome
from lodger_daemon.paths import Paths
from lodger_daemon.questions.questions import QuestionBook
from lodger_daemon.service.clock_watch import ClockWatch
from lodger_daemon.service.sandbox_check import SandboxCheck
from lodger_daemon.store import question_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.overview_rows import BusyConversation, busy
from lodger_daemon.store.question_rows import StoredQuestion
from lodger_daemon.turns.contract import AgentRecord, ConversationError, ConversationService
from lodger_daemon.uplink.core.status import UplinkStatus
from lodger_daemon.version import VERSION
from lodger_tools.box.contract import Boxes
from lodger_tools.json_value import Json, JsonObject

PRACTICE_PREFIX: Final = "practice/"
GIB: Final = 1024**3
SHOWN: Final = 50
"""Open questions and busy conversations told one by one; a person reads no more, and their numbers stand beside."""

Section: TypeAlias = Callable[[], Awaitable[Json]]


class StatusReport:
    """Gathers facts from the rooms; opens nothing and waits for nobody for long.

    Args:
        sections: what further rooms have to say of themselves, by the key it gets.
    """

    def __init__(
        self,
        *,
        name: str,
        device_id: str,
        paths: Paths,
        clock: Clock,
        clock_watch: ClockWatch,
        database: Database,
        conversations: ConversationService,
        memory: AgentMemory,
        models: ModelGateway,
        outcomes: Callable[[], tuple[ModelOutcome, ...]],
        boxes: Boxes,
        questions: QuestionBook,
        sandbox: SandboxCheck,
        uplink: Callable[[], UplinkStatus | None],
        sections: Mapping[str, Section],
    ) -> None:
        self._name = name
        self._device_id = device_id
        self._paths = paths
        self._clock = clock
        self._clock_watch = clock_watch
        self._started_at: WallTime = clock.wall()
        self._database = database
        self._conversations = conversations
        self._memory = memory
        self._models = models
        self._outcomes = outcomes
        self._boxes = boxes
        self._questions = questions
        self._sandbox = sandbox
        self._uplink = uplink
        self._sections = sections

    async def status(self, command: JsonObject) -> JsonObject:
        """Answers `lodger_status`."""
        del command
        agents = await self._conversations.list_agents()
        more: JsonObject = {key: await section() for key, section in self._sections.items()}
        return {
            "status": {
                "at": self._clock.wall(),
                "machine": {
                    "name": self._name,
                    "device_id": self._device_id,
                    "version": VERSION,
                    "pid": os.getpid(),
                    "started_at": self._started_at,
                },
                "backend": {"kind": "local", "store": str(self._paths.database), "epoch": self._database.epoch},
                "uplink": _uplink_facts(self._uplink()),
                "model": await self._model_facts(),
                "sandbox": self._sandbox.facts(),
                "boxes": self._box_facts(),
                **await self._waiting_facts(),
                "disk": await self._disk_facts(),
                "clock": self._clock_facts(),
                "agents": [await self._agent_facts(agent) for agent in agents],
                **more,
            }
        }

    async def waiting(self, command: JsonObject) -> JsonObject:
        """Answers `lodger_waiting`: of `status` what a list of conversations shows beside each, cheap enough to be
        asked for every few seconds."""
        del command
        return await self._waiting_facts()

    async def memory_settled(self, command: JsonObject) -> JsonObject:
        """Answers `lodger_memory_settled`: waits until no sync of an agent runs, at most `limit_s`."""
        agent_id, limit_s = command.get("agent_id"), command.get("limit_s", 0)
        if not isinstance(agent_id, str) or not isinstance(limit_s, int | float):
            raise ConversationError("lodger_memory_settled needs an agent_id, and limit_s as a number")
        if await self._conversations.get_agent(AgentId(agent_id)) is None:
            raise ConversationError(f"Agent {agent_id} not found")
        return {"sync": sync_facts(await self._memory.settled(AgentId(agent_id), min(float(limit_s), 60.0)))}

    async def _waiting_facts(self) -> JsonObject:
        open_ones, busy_ones = await self._database.read(_open_and_busy)
        return {
            "questions": {
                "pending": self._questions.count(),
                "open": [_question_facts(question) for question in open_ones[:SHOWN]],
            },
            "queues": [_queue_facts(one) for one in busy_ones],
        }

    async def _model_facts(self) -> JsonObject:
        default = await self._models.default_handle()
        return {
            "default": default,
            "practice": default.startswith(PRACTICE_PREFIX),
            "used": [_outcome_facts(outcome) for outcome in self._outcomes()],
        }

    def _box_facts(self) -> list[Json]:
        return [
            {
                "agent_id": box.key.agent_id,
                "workspace": box.key.workspace,
                "profile": box.key.profile.value,
                "running_calls": box.running_calls,
                "background": box.background,
                "leftovers": box.leftovers,
                "idle_s": box.idle_s,
            }
            for box in self._boxes.statuses()
        ]

    async def _disk_facts(self) -> JsonObject:
        free_bytes, store_bytes = await asyncio.to_thread(_disk_use, self._paths)
        counts = self._database.counts
        return {
            "free_bytes": free_bytes,
            "store_bytes": store_bytes,
            "store_full": counts.full,
            "events_dropped": counts.soon_dropped + counts.soon_failed,
            "summary": "FULL: new messages are refused" if counts.full else f"{free_bytes / GIB:.1f} GiB free",
            "at": self._clock.wall(),
        }

    def _clock_facts(self) -> JsonObject:
        uplink = self._uplink()
        hub = uplink.hub_clock if uplink is not None else None
        return {
            "ahead_of_hub_s": hub.ahead_s if hub is not None else None,
            "compared_at": hub.at if hub is not None else None,
            "jumps": [{"at": jump.at, "by_s": jump.by_s} for jump in self._clock_watch.jumps()],
        }

    async def _agent_facts(self, agent: AgentRecord) -> JsonObject:
        return {
            "id": agent.id,
            "name": agent.name,
            "model": agent.model,
            "model_served": await self._models.describe(agent.model) is not None,
            "memory": sync_facts(self._memory.status(agent.id)),
        }


def _open_and_busy(
    connection: sqlite3.Connection,
) -> tuple[tuple[StoredQuestion, ...], tuple[BusyConversation, ...]]:
    return question_rows.open_ones(connection), busy(connection, SHOWN)


def _disk_use(paths: Paths) -> tuple[int, int]:
    """Free bytes beside the store, and the store's own. Blocking."""
    own = [paths.database.with_name(paths.database.name + end) for end in ("", "-wal")]
    return shutil.disk_usage(paths.state).free, sum(_size_bytes(file) for file in own)


def _size_bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _outcome_facts(outcome: ModelOutcome) -> JsonObject:
    return {
        "handle": outcome.handle,
        "succeeded_at": outcome.succeeded_at,
        "failed_at": outcome.failed_at,
        "failure": outcome.failure.value if outcome.failure is not None else None,
        "message": outcome.message,
    }


def _question_facts(question: StoredQuestion) -> JsonObject:
    return {
        "agent_id": question.conversation.agent_id,
        "conversation_id": question.conversation.conversation_id,
        "tool": question.asked.tool_name,
        "reason": question.asked.reason,
        "asked_at": question.asked_at,
        "expires_at": question.expires_at,
    }


def _queue_facts(one: BusyConversation) -> JsonObject:
    return {
        "agent_id": one.key.agent_id,
        "conversation_id": one.key.conversation_id,
        "turn_since": one.turn_since,
        "waiting": one.waiting,
        "parked": one.parked,
        "oldest_at": one.oldest_at,
    }


def _uplink_facts(status: UplinkStatus | None) -> JsonObject:
    if status is None:
        return {
            "state": "off",
            "url": None,
            "since": None,
            "last_contact": None,
            "next_attempt_at": None,
            "reason": None,
            "failure": None,
            "failures": 0,
            "clients": 0,
        }
    return {
        "state": status.state.value,
        "url": status.hub_url,
        "since": status.since,
        "last_contact": status.last_contact_at,
        "next_attempt_at": status.next_attempt_at,
        "reason": status.reason,
        "failure": None if status.failure is None else status.failure.value,
        "failures": status.failures,
        "clients": status.clients,
    }


def sync_facts(sync: SyncStatus) -> JsonObject:
    return {
        "outcome": sync.outcome.value,
        "head": sync.head,
        "ahead": sync.ahead,
        "at": sync.at,
        "since": sync.since,
        "detail": sync.detail,
    }
