"""Ask the person's own pip, npm, cargo and git where they get things from. All of it blocks.

They run outside of any box, as this daemon, from the root folder: what a workspace configures is not looked at.
"""

import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_sandbox.egress.core import presets
from lodger_sandbox.egress.core.allow import Entry
from lodger_sandbox.egress.core.presets import Preset

_RUN_LIMIT_S: Final = 20.0
"""npm needs a second on an idle machine."""
_FILE_LIMIT_BYTES: Final = 1024 * 1024
_PROGRAM_LIMIT_BYTES: Final = 256 * 1024 * 1024
_PIP_DEFAULT: Final = (
    "from pip._internal.models.index import PyPI as own; print(own.url, 'https://' + own.file_storage_domain)"
)
_log = logging.getLogger(__name__)


class _NotAsked(Exception):
    """A tool is not there or does not answer."""


@dataclass(frozen=True, slots=True)
class PersonsTools:
    home: Path
    environment: Mapping[str, str]

    def entries(self, wanted: tuple[Preset, ...]) -> tuple[Entry, ...]:
        """Never raises for a tool that is not there: its hosts are then asked about like any others."""
        found: dict[Entry, None] = {}
        for preset in wanted:
            try:
                entries = presets.entries_of(self._urls(preset))
            except (_NotAsked, OSError, ValueError) as error:
                _log.warning("the preset %s lets nothing out: %s", preset.value, error)
                continue
            _log.info("the preset %s lets out: %s", preset.value, ", ".join(map(str, entries)) or "nothing")
            found |= dict.fromkeys(entries)
        return tuple(found)

    def _urls(self, preset: Preset) -> tuple[str, ...]:
        readers: dict[Preset, Callable[[], tuple[str, ...]]] = {
            Preset.PIP: self._pip,
            Preset.NPM: lambda: presets.npm_urls(self._run("npm", "config", "list", "--json")),
            Preset.CARGO: self._cargo,
            Preset.GIT: self._git,
        }
        return readers[preset]()

    def _pip(self) -> tuple[str, ...]:
        listed = self._run("python3", "-m", "pip", "config", "list")
        urls = presets.pip_urls(listed)
        return urls if presets.pip_names_index(listed) else (*urls, *self._run("python3", "-c", _PIP_DEFAULT).split())

    def _git(self) -> tuple[str, ...]:
        # Not what came with the system: that names hosts of everybody's.
        return presets.git_urls(self._run("git", "config", "--global", "--list", "--name-only", "-z"))

    def _cargo(self) -> tuple[str, ...]:
        folder = Path(self.environment.get("CARGO_HOME") or self.home / ".cargo")
        urls: list[str] = []
        for name in ("config.toml", "config"):
            if (folder / name).is_file():
                urls += presets.cargo_urls(_text(folder / name))
        for config in sorted(folder.glob("registry/index/*/config.json"))[: presets.HOSTS_LIMIT]:
            urls += presets.cargo_index_urls(_text(config))
        with self._cargo_program().open("rb") as file:
            return (*urls, *presets.cargo_program_urls(file.read(_PROGRAM_LIMIT_BYTES)))

    def _cargo_program(self) -> Path:
        """Raises: _NotAsked."""
        program = Path(os.path.realpath(self._program("cargo")))
        return Path(self._run("rustup", "which", "cargo").strip()) if program.name == "rustup" else program

    def _program(self, name: str) -> str:
        found = shutil.which(name, path=self.environment.get("PATH", os.defpath))
        if found is None or not Path(found).is_absolute():
            raise _NotAsked(f"there is no {name}")
        return found

    def _run(self, name: str, *arguments: str) -> str:
        """Raises: _NotAsked."""
        try:
            ended = subprocess.run(
                [self._program(name), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**self.environment, "HOME": str(self.home)},
                cwd="/",
                timeout=_RUN_LIMIT_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise _NotAsked(f"{name} does not answer: {error}") from None
        return ended.stdout[:_FILE_LIMIT_BYTES].decode("utf-8", "replace")


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_FILE_LIMIT_BYTES).decode("utf-8", "replace")
