"""What the hub says to the daemon itself, handed to the rooms it is for: implements `HubHearer`."""

import asyncio
import logging
from typing import Final, Protocol

from lodger_daemon.clock import Clock
from lodger_daemon.identity import AgentId
from lodger_daemon.store.audit_log import AuditLog
from lodger_daemon.store.errors import StoreError
from lodger_daemon.turns.contract import ConversationService

AGAIN_AFTER_S: Final = 5.0
"""After a store that could not be written, above all a full disk."""

_LOG: Final = logging.getLogger(__name__)


class MemoryHearer(Protocol):
    """The words that are for memory. Each returns at once, and takes whatever a hub may say."""

    def head_announced(self, agent_id: AgentId, head: str) -> None: ...

    def shared_head_announced(self, name: str, head: str) -> None: ...

    def sharing_announced(self, agent_id: AgentId) -> None: ...


class HubWords:
    """`run` is its one task. What has not been carried out when the daemon ends is said again by the hub at the next
    connection."""

    def __init__(
        self,
        memory: MemoryHearer,
        conversations: ConversationService,
        audit: AuditLog,
        clock: Clock,
    ) -> None:
        self._memory = memory
        self._conversations = conversations
        self._audit = audit
        self._clock = clock
        self._known: set[str] = set()
        self._waiting: set[str] = set()
        self._said = asyncio.Event()

    def memory_head(self, agent_id: str, head: str) -> None:
        self._memory.head_announced(AgentId(agent_id), head)

    def shared_memory_head(self, name: str, head: str) -> None:
        self._memory.shared_head_announced(name, head)

    def shared_memories_changed(self, agent_id: str) -> None:
        self._memory.sharing_announced(AgentId(agent_id))

    def devices_revoked(self, device_ids: tuple[str, ...]) -> None:
        """Each is looked after once in this daemon's life: from then on it refuses what still comes of it."""
        fresh = set(device_ids) - self._known
        if fresh:
            self._known |= fresh
            self._waiting |= fresh
            self._said.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._said.wait()
            self._said.clear()
            gone, self._waiting = self._waiting, set()
            try:
                await self._drop(gone)
            except StoreError as error:
                _LOG.error("what revoked devices have sent cannot be dropped yet: %s", error)
                self._waiting |= gone
                self._said.set()
                await self._clock.sleep(AGAIN_AFTER_S)

    async def _drop(self, device_ids: set[str]) -> None:
        dropped = await self._conversations.drop_senders(sorted(device_ids))
        if not dropped.removed and not dropped.stopped:
            return
        _LOG.warning("a device was revoked: %d messages removed, %d turns stopped", dropped.removed, dropped.stopped)
        subject = ", ".join(sorted(device_ids))[:1000]
        self._audit.note("hub", "device.revoked", subject, {"removed": dropped.removed, "stopped": dropped.stopped})
