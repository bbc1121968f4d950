"""Talking to systemd or launchd: the only place that starts systemctl, loginctl and launchctl."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from lodger_cli.units.launchd import label
from lodger_cli.units.plan import Part, Scope
from lodger_cli.units.systemd import unit_name

COMMAND_LIMIT_S: Final = 180.0
"""A start waits until the daemon lets clients in: TimeoutStartSec=120, and some more."""
_OLDEST: Final = 252


@dataclass(frozen=True, slots=True)
class Said:
    """What a command of the manager answered."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Running:
    """One part, as the manager sees it."""

    state: str
    """systemd's ActiveState, such as `active` or `failed`; `unknown` when the manager cannot be asked."""
    enabled: str = ""
    status: str = ""
    """The program's own line about itself."""
    restarts: int = 0


class Manager(Protocol):
    """Blocking. `reachable` says in words why the manager cannot be asked; empty when it can."""

    def reachable(self) -> str: ...
    def start(self, part: Part, file: Path, *, restart: bool) -> Said: ...
    def restart(self, part: Part, file: Path) -> Said: ...
    def remove(self, part: Part, file: Path) -> Said: ...
    def forget(self) -> Said: ...
    def running(self, part: Part) -> Running: ...
    def by_hand(self, parts: Sequence[Part], folder: Path) -> list[str]: ...


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> Said:
    """One command to its end. Never raises for what it did."""
    try:
        done = subprocess.run(
            list(arguments), env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=COMMAND_LIMIT_S, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return Said(127, f"{arguments[0]} is not on this machine")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Said(126, str(error))
    return Said(done.returncode, (done.stdout + done.stderr).strip())


class Systemd:
    def __init__(self, scope: Scope, environment: Mapping[str, str]) -> None:
        self._scope = scope
        self._environment = dict(environment)
        if scope is Scope.USER:
            # A shell that was not logged in to (su, cron) lacks it, and systemctl finds the user's manager by it.
            self._environment.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")

    def reachable(self) -> str:
        if shutil.which("systemctl", path=self._environment.get("PATH")) is None:
            return "systemctl is not on this machine"
        said = self._systemctl("show", "--property=Version", "--value")
        if said.code == 0:
            return ""
        return "systemd does not answer here" + (f" ({said.text.splitlines()[0]})" if said.text else "")

    def version(self) -> int:
        """The oldest we know when it cannot be asked: its keys are understood by every later one."""
        words = self._systemctl("--version").text.split()
        return int(words[1]) if len(words) > 1 and words[0] == "systemd" and words[1].isdecimal() else _OLDEST

    def start(self, part: Part, file: Path, *, restart: bool) -> Said:
        del file
        for arguments in (("daemon-reload",), ("enable", unit_name(part))):
            if (said := self._systemctl(*arguments)).code != 0:
                return said
        return self._systemctl("restart" if restart else "start", unit_name(part))

    def restart(self, part: Part, file: Path) -> Said:
        del file
        return self._systemctl("restart", unit_name(part))

    def remove(self, part: Part, file: Path) -> Said:
        del file
        return self._systemctl("disable", "--now", unit_name(part))

    def forget(self) -> Said:
        return self._systemctl("daemon-reload")

    def running(self, part: Part) -> Running:
        names = "ActiveState,UnitFileState,StatusText,NRestarts"
        said = self._systemctl("show", unit_name(part), f"--property={names}")
        if said.code != 0:
            return Running("unknown")
        facts = dict(line.split("=", 1) for line in said.text.splitlines() if "=" in line)
        restarts = facts.get("NRestarts", "")
        return Running(
            facts.get("ActiveState", "unknown"),
            facts.get("UnitFileState", ""),
            facts.get("StatusText", ""),
            int(restarts) if restarts.isdecimal() else 0,
        )

    def by_hand(self, parts: Sequence[Part], folder: Path) -> list[str]:
        del folder
        units = " ".join(unit_name(part) for part in parts)
        who = "systemctl --user" if self._scope is Scope.USER else "systemctl"
        return [f"{who} daemon-reload", f"{who} enable --now {units}"]

    def _systemctl(self, *arguments: str) -> Said:
        scope = ["--user"] if self._scope is Scope.USER else ["--system"]
        return run(["systemctl", *scope, "--no-pager", *arguments], {**self._environment, "LC_ALL": "C.UTF-8"})


class Launchd:
    """Written from Apple's manual; nobody has run it on a Mac yet."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._domain = f"gui/{os.getuid()}"
        self._environment = environment

    def reachable(self) -> str:
        if shutil.which("launchctl", path=self._environment.get("PATH")) is None:
            return "launchctl is not on this machine"
        return ""

    def start(self, part: Part, file: Path, *, restart: bool) -> Said:
        loaded = self.running(part).state != "inactive"
        if loaded and restart:
            self._launchctl("bootout", f"{self._domain}/{label(part)}")
        if loaded and not restart:
            return Said(0, "")
        return self._launchctl("bootstrap", self._domain, str(file))

    def restart(self, part: Part, file: Path) -> Said:
        del file
        return self._launchctl("kickstart", "-k", f"{self._domain}/{label(part)}")

    def remove(self, part: Part, file: Path) -> Said:
        del file
        return self._launchctl("bootout", f"{self._domain}/{label(part)}")

    def forget(self) -> Said:
        return Said(0, "")

    def running(self, part: Part) -> Running:
        said = self._launchctl("print", f"{self._domain}/{label(part)}")
        if said.code != 0:
            return Running("inactive")
        active = "state = running" in said.text
        return Running("active" if active else "activating", "enabled")

    def by_hand(self, parts: Sequence[Part], folder: Path) -> list[str]:
        return [f"launchctl bootstrap {self._domain} {folder / f'{label(part)}.plist'}" for part in parts]

    def _launchctl(self, *arguments: str) -> Said:
        return run(["launchctl", *arguments], self._environment)


def lingering(environment: Mapping[str, str]) -> bool | None:
    """Whether this user's services run without a login; None when nobody can say."""
    user = pwd.getpwuid(os.getuid()).pw_name
    said = run(["loginctl", "show-user", user, "--property=Linger", "--value"], environment)
    if said.code == 0 and said.text in ("yes", "no"):
        return said.text == "yes"
    # Logind knows only users that are logged in; what it remembers of the others are these files.
    folder = Path("/var/lib/systemd/linger")
    return (folder / user).exists() if folder.is_dir() else None
