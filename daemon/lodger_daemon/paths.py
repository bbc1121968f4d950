"""Where Lodger keeps things on this machine (ARCHITECTURE.md section 8)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WORKSPACE_NAME: Final = "lodger-work"
"""In the home. Not the name a clone of this project has by itself: no agent may work in the program's own folder."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one Lodger. `config` and `state` are private to its user and masked from every box."""

    config: Path
    state: Path
    workspace: Path
    """Where an agent works when nobody names a folder."""
    home: Path
    """The person's home, which boxes see as a private empty folder."""

    @property
    def settings_file(self) -> Path:
        return self.config / "settings.toml"

    @property
    def database(self) -> Path:
        return self.state / "lodger.db"

    @property
    def search(self) -> Path:
        """The full-text index: made from the database, and made anew when it is lost."""
        return self.state / "search.db"

    @property
    def agents(self) -> Path:
        """One folder per agent: its published repository and its checkout."""
        return self.state / "agents"

    @property
    def boxes(self) -> Path:
        """Locks, sockets and records of running boxes."""
        return self.state / "boxes"

    @property
    def overflow(self) -> Path:
        """Whole texts of truncated results, after redaction."""
        return self.state / "overflow"

    @property
    def socket(self) -> Path:
        """Where this machine's own clients find the daemon."""
        return self.state / "daemon.sock"

    @property
    def daemon_lock(self) -> Path:
        return self.state / "daemon.lock"

    @property
    def hub(self) -> Path:
        """The embedded hub's own state: its store, tokens and repositories."""
        return self.state / "hub"

    @property
    def secrets(self) -> Path:
        return self.config / "secrets"


def find_paths(environment: Mapping[str, str]) -> Paths:
    """`LODGER_HOME` moves everything below itself; otherwise the XDG folders hold."""
    home = Path(environment.get("HOME") or Path.home())
    if moved := environment.get("LODGER_HOME"):
        base = Path(moved).absolute()
        return Paths(config=base / "config", state=base / "state", workspace=base / "workspace", home=home)
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "lodger"
    state = Path(environment.get("XDG_STATE_HOME") or home / ".local" / "state") / "lodger"
    return Paths(config=config, state=state, workspace=home / WORKSPACE_NAME, home=home)
