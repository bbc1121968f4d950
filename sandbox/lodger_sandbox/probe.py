"""Finding out whether the sandbox of this machine holds, by trying to get out of one."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from lodger_sandbox.cgroups import limits_in_words
from lodger_sandbox.contract import BoxRequest, BoxUser, ProbeReport, SandboxUnavailable
from lodger_sandbox.core.make_policy import Program
from lodger_sandbox.foreground import run_with_policy
from lodger_sandbox.host import bwrap_version, find_bwrap
from lodger_sandbox.prepare import Rewrite, policy_for
from lodger_sandbox.probe_leftovers import FOLDERS, PREFIX, clear_leftovers
from lodger_sandbox.process_facts import name_and_start

PROBE_LIMIT_S: Final = 5.0
ANSWER_LIMIT_BYTES: Final = 64 * 1024
MASKED: Final = "/usr/share"
"""Any folder that is never empty and that the probe's own interpreter does not need."""

_DONE: Final = "done"


def probe(user: BoxUser, rewrite: Rewrite | None = None) -> ProbeReport:
    """Start a box whose program tries each way out once. Blocks for some 100 ms; never raises.

    `rewrite` is for tests: it takes a protection away, so that the probe must notice.
    """
    if sys.platform == "darwin":
        return ProbeReport(False, "none", "", ("boxes on macOS are a preview that nobody has run yet",), "")
    clear_leftovers(frozenset({os.geteuid(), user.uid}))
    try:
        version = bwrap_version(find_bwrap())
        failures = _failures(user, rewrite)
    except (SandboxUnavailable, OSError) as error:
        return ProbeReport(False, "none", "", (str(error),), "Mend this, then run `lodger doctor`.")
    if failures:
        return ProbeReport(False, "bwrap", version, failures, "A program in a box could do this; no tool will run.")
    return ProbeReport(True, "bwrap", version, limits=limits_in_words())


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What the probe's program must not reach."""

    outside: Path
    """The box's user may write it; the box must not."""
    workspace: Path
    home: Path
    canary: Path
    port: int
    abstract_name: str


def _failures(user: BoxUser, rewrite: Rewrite | None) -> tuple[str, ...]:
    with _surroundings(user) as around, tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as errors:
        request = BoxRequest(
            workspace=str(around.workspace),
            profile="agent",
            user=user,
            home=str(around.home),
            masks=(MASKED,),
            environment={"PATH": "/usr/bin:/bin"},
        )
        program = Program(str(Path(__file__).with_name("probe_program")), _arguments(around))
        try:
            run_with_policy(
                policy_for(request, program),
                request,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=errors,
                limit_s=PROBE_LIMIT_S,
                rewrite=rewrite,
            )
        except SandboxUnavailable as error:
            raise SandboxUnavailable(f"{error} {_text(errors)}".strip()) from error
        lines = _text(answer).splitlines()
        if _DONE not in lines:
            lines.append(_text(errors)[-500:] or "the probe did not come to its end")
        if any(around.outside.iterdir()):
            lines.append("writes beside the workspace")
    return tuple(line for line in lines if line != _DONE)


def _arguments(around: _Surroundings) -> tuple[str, ...]:
    own_pid = os.getpid()
    return (
        str(own_pid),
        str(name_and_start(own_pid)[1]),
        str(around.port),
        around.abstract_name,
        str(around.outside),
        str(around.canary),
        MASKED,
    )


@contextmanager
def _surroundings(user: BoxUser) -> Iterator[_Surroundings]:
    with ExitStack() as opened:
        base = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX, dir=FOLDERS)))
        base.chmod(0o755)
        workspace, home, outside = base / "workspace", base / "home", base / "outside"
        canary = home / ".ssh" / "canary"
        for folder in (workspace, home, outside, canary.parent):
            folder.mkdir(mode=0o700)
        canary.write_text("canary")
        if os.geteuid() != user.uid:
            for path in (workspace, home, outside, canary.parent, canary):
                os.chown(path, user.uid, user.gid)
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = opened.enter_context(socket.socket(socket.AF_UNIX))
        abstract_name = f"{PREFIX}{secrets.token_hex(8)}"
        abstract.bind(f"\0{abstract_name}")
        abstract.listen()
        yield _Surroundings(outside, workspace, home, canary, listener.getsockname()[1], abstract_name)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(ANSWER_LIMIT_BYTES).decode("utf-8", "replace").strip()
