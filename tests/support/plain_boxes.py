"""A double of `Boxes` without confinement: runs a memory's programs as plain processes on the host's folder."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lodger_tools.box.contract import (
    BoxCall,
    BoxKey,
    BoxOutcome,
    BoxStatus,
    BoxUnavailable,
    OutputSink,
    ReadHead,
    RunProgram,
)
from lodger_tools.runner.file_errors import FileRefused
from lodger_tools.runner.read_head import read_head

INSIDE = "/home/person/memory"
SHARED = "/home/person/shared-memory"
"""Below it the memories that the agent shares."""


@dataclass(slots=True)
class PlainBoxes:
    """`INSIDE` stands for the folder that `host_folder` names for the key's agent, what is below `SHARED` for the one
    that `shared_folder` names for agent and memory."""

    host_folder: Callable[[str], str]
    shared_folder: Callable[[str, str], str] = lambda agent, name: "/nonexistent"
    home: str = "/nonexistent"
    """Of the person's whose git configuration the agent's git sees."""
    limit_s: float = 5.0
    """A program that hangs is soon given up; one that carries much needs more on a busy machine."""
    broken: bool = False
    busy_agents: set[str] = field(default_factory=set)
    programs: list[tuple[str, ...]] = field(default_factory=list)

    async def run(self, key: BoxKey, call: BoxCall, on_output: OutputSink | None = None) -> BoxOutcome:
        if self.broken:
            raise BoxUnavailable("no bwrap; install bubblewrap")
        match call.operation:
            case ReadHead() as read:
                return await asyncio.to_thread(_head, self._outside(key, read.repository))
            case RunProgram() as program:
                argv = tuple(self._outside(key, word) for word in program.argv)
                self.programs.append(program.argv)
                return await asyncio.to_thread(_run, argv, program, self.home, self.limit_s)
            case _:
                raise AssertionError(call)

    def _outside(self, key: BoxKey, word: str) -> str:
        if word == INSIDE:
            return self.host_folder(key.agent_id)
        place, _, name = word.rpartition("/")
        return self.shared_folder(key.agent_id, name) if place == SHARED else word

    async def collect(self, key: BoxKey, call_key: str) -> BoxOutcome | None:
        return None

    async def stop_all(self, key: BoxKey) -> int:
        return 0

    async def end(self, key: BoxKey) -> None:
        return None

    def statuses(self) -> tuple[BoxStatus, ...]:
        return tuple(BoxStatus(BoxKey(agent, "/"), 1, 1, 0, 0.0) for agent in self.busy_agents)

    async def aclose(self) -> None:
        return None


def _head(folder: str) -> BoxOutcome:
    try:
        commit, details = read_head(folder)
    except (FileRefused, OSError) as error:
        return BoxOutcome("error", str(error))
    return BoxOutcome("success", commit, details=details)


def _run(argv: tuple[str, ...], program: RunProgram, home: str, limit_s: float) -> BoxOutcome:
    try:
        done = subprocess.run(
            argv,
            input=program.stdin,
            env=agent_environment(home),
            cwd="/",
            capture_output=True,
            timeout=min(program.timeout_s, limit_s),
        )
    except subprocess.TimeoutExpired:
        return BoxOutcome("error", "the program took too long", timed_out=True)
    if len(done.stdout) > program.stdout_limit_bytes:
        return BoxOutcome("error", "its output is too long; it was ended", details={"too_large": True})
    status = "success" if done.returncode == 0 else "error"
    return BoxOutcome(status, done.stderr.decode("utf-8", "replace"), done.returncode, done.stdout)


def agent_environment(home: str = "/nonexistent") -> dict[str, str]:
    """`IN_BOX` lets a planted command tell where it was run."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "IN_BOX": "inside",
    }


def agent_git(checkout: Path | str, *argv: str, home: str = "/nonexistent") -> str:
    """What the agent does by itself, in its checkout."""
    done = subprocess.run(
        ["git", "-C", str(checkout), *argv], env=agent_environment(home), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.strip()
