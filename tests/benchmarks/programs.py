"""The two programs under test: how each is prepared and started. Facts about command lines, no measuring."""

import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

BOX_USER: Final = "lodger"
"""Started as root, Lodger runs boxes as this user, so the workspace must be theirs."""
PREPARE_LIMIT_S: Final = 120


class Program(Protocol):
    """One of the programs beside each other."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str:
        """The handle of the scripted model."""

    def environment(self, home: Path, endpoint: str) -> dict[str, str]: ...

    def prepare(self, home: Path, workspace: Path, endpoint: str) -> None:
        """Everything that is done once before a first start and is not part of any figure."""

    def serve(self, port: int) -> list[str]: ...

    def version(self) -> str: ...


def plain_environment(home: Path) -> dict[str, str]:
    """What a login would give and nothing of the person who runs the benchmark."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ") if name in os.environ}
    return kept | {"HOME": str(home), "TERM": "dumb", "GIT_CONFIG_NOSYSTEM": "1"}


@dataclass(frozen=True, slots=True)
class Peer:
    """Letta Code from the Python package `letta`, with its local backend."""

    command: str
    name: str = "letta"
    model: str = "openai-compatible/stub-model"

    def environment(self, home: Path, endpoint: str) -> dict[str, str]:
        quiet = dict.fromkeys(("LETTA_TELEMETRY_DISABLED", "DO_NOT_TRACK", "DISABLE_AUTOUPDATER"), "1")
        return plain_environment(home) | quiet | {"LETTA_CODE_TELEM": "0"}

    def prepare(self, home: Path, workspace: Path, endpoint: str) -> None:
        argv = [self.command, "--backend", "local", "connect", "openai-compatible"]
        argv += ["--base-url", f"{endpoint}/v1", "--api-key", "sk-benchmark"]
        environment = self.environment(home, endpoint)
        done = subprocess.run(
            argv, env=environment, cwd=workspace, capture_output=True, text=True, timeout=PREPARE_LIMIT_S
        )
        if done.returncode != 0:
            raise RuntimeError(f"the peer could not be connected to the model: {done.stderr or done.stdout}")

    def serve(self, port: int) -> list[str]:
        return [self.command, "server", "--listen", f"ws://127.0.0.1:{port}", "--backend", "local"]

    def version(self) -> str:
        return _said([self.command, "--version"])


@dataclass(frozen=True, slots=True)
class Lodger:
    """This program, from the environment that runs the benchmark."""

    command: str = str(Path(sys.executable).with_name("lodger"))
    name: str = "lodger"
    model: str = "openai/stub-model"

    def environment(self, home: Path, endpoint: str) -> dict[str, str]:
        model = {"OPENAI_BASE_URL": f"{endpoint}/v1", "OPENAI_API_KEY": "sk-benchmark"}
        return plain_environment(home) | model | {"LODGER_HOME": str(home / "lodger")}

    def prepare(self, home: Path, workspace: Path, endpoint: str) -> None:
        if os.geteuid() == 0:
            shutil.chown(workspace, BOX_USER, pwd.getpwnam(BOX_USER).pw_gid)

    def serve(self, port: int) -> list[str]:
        return [self.command, "app-server", "--listen", f"ws://127.0.0.1:{port}"]

    def version(self) -> str:
        return _said([sys.executable, "-c", "from importlib.metadata import version; print(version('lodger'))"])


def make_box_user() -> None:
    """As root, make the user that boxes run as, where the installation has not."""
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(BOX_USER)
        except KeyError:
            argv = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", BOX_USER]
            subprocess.run(argv, check=True)


def _said(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PREPARE_LIMIT_S)
    return (done.stdout or done.stderr).strip().splitlines()[-1]
