"""The folders a daemon needs, made private at start."""

import os
from pathlib import Path

from lodger_daemon.paths import Paths
from lodger_daemon.service.box_requests import BoxRequests
from lodger_sandbox.contract import SandboxUnavailable


def make_private_folders(paths: Paths) -> None:
    """Blocking. Raises: OSError."""
    for folder in (paths.config, paths.state, paths.agents, paths.boxes, paths.overflow, paths.secrets):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A folder that was there already may be open to others.
    for folder in (paths.state, paths.config):
        folder.chmod(0o700)


def make_workspace(path: Path, requests: BoxRequests) -> None:
    """The folder agents work in when nobody names one; as root it belongs to the user that boxes run as.

    Blocking. Raises: OSError.
    """
    if path.exists():
        return
    path.mkdir(parents=True)
    if os.geteuid() == 0:
        try:
            user = requests.user()
        except SandboxUnavailable:
            return  # doctor and every tool say so
        os.chown(path, user.uid, user.gid)
