"""A real ssh-agent with one key, of whoever runs the tests."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

START_LIMIT_S: Final = 30


@contextmanager
def ssh_agent(place: Path, key: Path) -> Iterator[Path]:
    """Its socket; ends with the block.

    Args:
        place: a short path, as sockets need.
    """
    words = ("ssh-agent", "-D", "-a", str(place))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            # It listens once it says where.
            assert b"SSH_AUTH_SOCK" in process.stdout.readline()
            added = subprocess.run(
                ("ssh-add", "-q", str(key)), env=agent_environment(place), timeout=START_LIMIT_S, check=False
            )
            assert added.returncode == 0
            yield place
        finally:
            process.terminate()


def keys_in(place: Path) -> str:
    """What the agent lists, as text."""
    listed = subprocess.run(
        ("ssh-add", "-l"),
        env=agent_environment(place),
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        check=False,
    )
    return listed.stdout


def agent_environment(place: Path) -> dict[str, str]:
    return {**os.environ, "SSH_AUTH_SOCK": str(place)}
