"""Bring the peer into a virtual environment of its own, outside this tree, never a dependency of Lodger."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

REQUIREMENT: Final = "letta>=0.34.12"
"""From this release on the package is the agent daemon with its runtime inside; older ones are another program."""
INSTALL_LIMIT_S: Final = 600


class PeerMissing(Exception):
    """The peer cannot be had here; the text says why and what to do."""


def installed_peer() -> str:
    """The path of the peer's command, installed now if it was not. Raises: PeerMissing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "lodger-bench" / "peer"
    command = folder / "bin" / "letta"
    if not command.exists():
        print(f"Installing the peer ({REQUIREMENT}) into {folder}", flush=True)
        python = folder / "bin" / "python"
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT])
    if not command.exists():
        raise PeerMissing(f"{REQUIREMENT} was installed, but there is no {command}; remove {folder} and try again")
    return str(command)


def _run(argv: list[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"the peer could not be installed within {INSTALL_LIMIT_S} s") from None
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise PeerMissing(f"the peer could not be installed: {reason[-1] if reason else argv}")
