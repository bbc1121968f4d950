"""Memories that several agents share, and what each of these agents may do with them. Blocking; a millisecond.

Beside each shared repository lies `agents.json`, replaced as a whole: after a crash it is as before or as asked for.
A file that cannot be understood lets no agent in: what it was meant to hold back is not known.
"""

import contextlib
import json
import logging
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_hub.durable_files import write_durably
from lodger_hub.git_host.deleted import KEPT_DAYS, Deleted
from lodger_hub.git_host.grants import Right
from lodger_hub.git_host.repositories import MAKING, SHARED_FOLDER, Repositories, own_memory, shared_memory
from lodger_protocol.shared_names import shared_name_fault

MAX_AGENTS: Final = 1000
"""Of one shared memory; as many as a hub holds memories."""
MAX_ATTACHED: Final = 16
"""Shared memories of one agent: each takes a line or more of every prompt and a sync at each turn's end."""
_FILE: Final = "agents.json"
_MAX_BYTES: Final = 1024 * 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    name: str
    agents: Mapping[str, Right]
    """Those that it is attached to; READ or WRITE."""


class NotShared(Exception):
    """There is no shared memory of that name; `lodger memory share` makes one."""


class StillThere(Exception):
    """A memory of that name is at the hub, so that none can be brought back in its place."""


class TooManyAttached(Exception):
    """More than one may hold; the text says what."""


class BadAgentsFile(Exception):
    """What lies beside a shared memory is not understood; the text says why. Nothing was changed."""


class Sharing:
    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories
        self._deleted = Deleted(repositories.root, repositories.seam)
        self._lock = threading.Lock()

    def create(self, name: str) -> bool:
        """Make an empty shared memory. False when it is there already.

        Raises: ValueError for a name that may not be used, TooManyRepositories, GitMissing, OSError.
        """
        place = shared_memory(name)
        with self._lock:
            was_there = self._exists(name)
            self._repositories.ensure(place)
            return not was_there

    def delete(self, name: str, now_ns: int) -> tuple[str, ...]:
        """Take a memory from all agents that have it, and say which; the hub keeps it for `KEPT_DAYS`. Durable when it
        returns.

        Args:
            now_ns: wall time.

        Raises: NotShared, OSError.
        """
        with self._lock:
            self._deleted.drop_old(now_ns)
            if not self._exists(name):
                raise NotShared(f"there is no shared memory {name[:80]}")
            agents = self._agents(name)
            self._deleted.put(self._repositories.folder(shared_memory(name)).parent, now_ns)
            return tuple(sorted(agents))

    def bring_back(self, name: str) -> tuple[str, ...]:
        """Undo the latest `delete` of that name, and say which agents have it again.

        Raises: ValueError, StillThere, NotShared, TooManyRepositories, OSError.
        """
        folder = self._repositories.folder(shared_memory(name)).parent
        with self._lock:
            self._drop_half_made(name)
            if folder.exists():
                raise StillThere(f"there is a shared memory {name} at this hub; delete that first")
            self._repositories.check_room()
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._deleted.bring_back(folder):
                raise NotShared(f"no shared memory {name} was deleted here in the last {KEPT_DAYS} days")
            return tuple(sorted(self._agents(name)))

    def drop_old(self, now_ns: int) -> None:
        """Let go of what was deleted long enough ago."""
        with self._lock:
            self._deleted.drop_old(now_ns)

    def right(self, name: str, agent_id: str) -> Right:
        """What an agent may do; NONE too where there is no such memory."""
        return self._agents(name).get(agent_id, Right.NONE) if self._exists(name) else Right.NONE

    def attach(self, name: str, agent_id: str, right: Right) -> None:
        """From now on the agent may do this; NONE ends it. Durable when it returns.

        Raises: ValueError, NotShared, TooManyAttached, BadAgentsFile, OSError.
        """
        own_memory(agent_id)
        with self._lock:
            if not self._exists(name):
                raise NotShared(f"there is no shared memory {name[:80]}")
            agents = dict(self._read(name))
            known = agents.pop(agent_id, Right.NONE)
            if right is not Right.NONE:
                if known is Right.NONE and len(self.of_agent(agent_id)) >= MAX_ATTACHED:
                    raise TooManyAttached(f"{agent_id} has {MAX_ATTACHED} shared memories, which is all it may")
                if len(agents) >= MAX_AGENTS:
                    raise TooManyAttached(f"{name} is attached to {MAX_AGENTS} agents, which is all it may")
                agents[agent_id] = right
            self._write(name, agents)

    def list(self) -> tuple[SharedMemory, ...]:
        """By name."""
        folder = self._repositories.root / SHARED_FOLDER
        names = sorted(place.name for place in folder.iterdir()) if folder.is_dir() else []
        return tuple(SharedMemory(name, self._agents(name)) for name in names if self._exists(name))

    def of_agent(self, agent_id: str) -> dict[str, Right]:
        """The shared memories of an agent, by name."""
        return {shared.name: shared.agents[agent_id] for shared in self.list() if agent_id in shared.agents}

    def _drop_half_made(self, name: str) -> None:
        """What a `create` left that died, or met a full disk: a folder without a memory."""
        folder = self._repositories.folder(shared_memory(name)).parent
        if self._exists(name):
            return
        for left in folder.glob(f"{MAKING}*"):
            shutil.rmtree(left, ignore_errors=True)
        with contextlib.suppress(OSError):
            folder.rmdir()

    def _exists(self, name: str) -> bool:
        return shared_name_fault(name) is None and self._repositories.folder(shared_memory(name)).is_dir()

    def _file(self, name: str) -> Path:
        return self._repositories.folder(shared_memory(name)).parent / _FILE

    def _agents(self, name: str) -> Mapping[str, Right]:
        try:
            return self._read(name)
        except (OSError, BadAgentsFile) as error:
            _log.error("%s is not understood, so no agent has that memory: %s", self._file(name), error)
            return {}

    def _read(self, name: str) -> Mapping[str, Right]:
        """Raises: BadAgentsFile, OSError."""
        try:
            with self._file(name).open("rb") as stream:
                return _understood(stream.read(_MAX_BYTES + 1))
        except FileNotFoundError:
            return {}

    def _write(self, name: str, agents: Mapping[str, Right]) -> None:
        text = json.dumps({"agents": agents}, sort_keys=True, indent=1) + "\n"
        self._repositories.seam("before writing who shares")
        write_durably(self._file(name), text.encode())
        self._repositories.seam("after writing who shares")


def _understood(data: bytes) -> Mapping[str, Right]:
    """Raises: BadAgentsFile."""
    try:
        if len(data) > _MAX_BYTES:
            raise BadAgentsFile("it is larger than a megabyte")
        agents = json.loads(data)["agents"]
        return {own_memory(agent_id).path.partition("/")[0]: Right(right) for agent_id, right in agents.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadAgentsFile(str(error)[:200]) from None
