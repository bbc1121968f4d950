"""Where an agent's shared memories lie on this machine, and which of them are attached. Blocking; call one at a time.

    agents/AGENT/shared/NAME/       as an agent's own folder, and `role` with what the agent may do there
    agents/AGENT/detached/NAME-TIME/    what was detached, whole: nothing of it is ever thrown away

A folder without a readable `role` is not attached: a crash while one is made leaves such a folder, and attaching again
finishes it. Moving a folder is one step. The daemon never opens a path inside a checkout, and moves it unopened.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_daemon.durable_files import sync_folder, write_durably
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.checkout import make_checkout_folder
from lodger_daemon.memory.core.shared import ShareRole

_ROLE: Final = "role"
_CHECKOUT: Final = "checkout"
_ASIDE: Final = re.compile(r"(.+)-(\d{10,})")


@dataclass(frozen=True, slots=True)
class SharedFolders:
    agents: Path

    def folder(self, agent_id: AgentId, name: str) -> Path:
        return self.agents / agent_id / "shared" / name

    def checkout(self, agent_id: AgentId, name: str) -> Path:
        return self.folder(agent_id, name) / _CHECKOUT

    def attached(self, agent_id: AgentId) -> dict[str, ShareRole]:
        """By name."""
        folder = self.agents / agent_id / "shared"
        names = sorted(place.name for place in folder.iterdir()) if folder.is_dir() else []
        roles = {name: _role(folder / name) for name in names}
        return {name: role for name, role in roles.items() if role is not None}

    def attach(self, agent_id: AgentId, name: str, role: ShareRole) -> None:
        """Make the folder, or bring back what was detached from the same role, so that what was not synced then is
        synced now. Raises: OSError."""
        place = self.folder(agent_id, name)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = [old for old in self.set_aside(agent_id) if _name(old) == name and _role(old) is role]
        if kept and not place.exists():
            kept[-1].rename(place)
            sync_folder(place.parent)
        place.mkdir(mode=0o700, exist_ok=True)
        self.set_role(agent_id, name, role)

    def set_role(self, agent_id: AgentId, name: str, role: ShareRole) -> None:
        write_durably(self.folder(agent_id, name) / _ROLE, role.value)

    def make_checkout(self, agent_id: AgentId, name: str, owner: tuple[int, int] | None) -> None:
        make_checkout_folder(self.checkout(agent_id, name), owner)

    def detach(self, agent_id: AgentId, name: str, now_s: int) -> Path:
        """Set the whole folder aside, checkout and all; where to. Raises: OSError."""
        aside = self.agents / agent_id / "detached"
        aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        while (target := aside / f"{name}-{now_s}").exists():
            now_s += 1
        self.folder(agent_id, name).rename(target)
        sync_folder(aside)
        return target

    def set_checkout_aside(self, agent_id: AgentId, name: str, now_s: int) -> None:
        """What stands in a checkout that nobody may change is kept beside it, and makes room for a new one."""
        place = self.checkout(agent_id, name)
        while (target := place.with_name(f"{_CHECKOUT}-{now_s}")).exists():
            now_s += 1
        place.rename(target)
        sync_folder(place.parent)

    def set_aside(self, agent_id: AgentId) -> tuple[Path, ...]:
        """What was detached, oldest first."""
        folder = self.agents / agent_id / "detached"
        found = [place for place in folder.iterdir() if _ASIDE.fullmatch(place.name)] if folder.is_dir() else []
        return tuple(sorted(found, key=lambda place: int(place.name.rpartition("-")[2])))


def _role(folder: Path) -> ShareRole | None:
    try:
        with (folder / _ROLE).open(encoding="ascii") as stored:
            return ShareRole(stored.read(16).strip())
    except (OSError, ValueError):
        return None


def _name(aside: Path) -> str:
    return aside.name.rpartition("-")[0]
