"""`lodger status`: what is true now, each fact with its age. Its JSON is documented in docs/status.md."""

import asyncio
import contextlib
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lodger_cli.checks.machine import git
from lodger_cli.places import local_daemon, paths
from lodger_cli.plain import plain
from lodger_cli.status_lines import status_lines
from lodger_cli.terminal import Exit, fail, say, say_json
from lodger_cli.units.look import look
from lodger_cli.wire import WireError
from lodger_tools.box.record import is_alive, read_record

Facts = dict[str, Any]


async def daemon_facts() -> Facts:
    """The daemon's own account of itself. Raises: NoDaemon when none runs, WireError when it does not answer."""
    async with local_daemon(start=False) as client:
        answer = await client.request({"type": "lodger_status"})
        return filled(answer["status"])


def filled(facts: Facts) -> Facts:
    """With what a daemon of an earlier release does not tell yet: one may still run after an update."""
    return {
        "at": time.time(),
        "backend": None,
        "queues": [],
        "ports": [],
        **facts,
        "clock": {"ahead_of_hub_s": None, "compared_at": None, "jumps": [], **facts.get("clock", {})},
        "model": {"used": [], **facts["model"]},
        "questions": {"open": [], **facts["questions"]},
        "disk": {"at": None, "store_bytes": None, **facts["disk"]},
        "uplink": {"next_attempt_at": None, "failure": None, "failures": 0, "clients": 0, **facts["uplink"]},
    }


def left_behind(boxes: Path) -> list[str]:
    """What goes on without a daemon: boxes in which something runs outlive it."""
    lines = []
    with contextlib.suppress(OSError):
        for folder in sorted(boxes.iterdir()):
            record = read_record(folder)
            if record is not None and is_alive(folder):
                lines.append(
                    f"A box of {record.key.agent_id} in {record.key.workspace} goes on without it, because work runs "
                    f"there; the next daemon takes it up. Its end: kill -9 {record.runner_pid}"
                )
    return lines


def status(*, as_json: bool) -> None:
    try:
        facts = asyncio.run(daemon_facts())
    except WireError as error:
        fail("\n".join((str(error), *left_behind(paths().boxes))), Exit.UNREACHABLE)
    service = look()
    facts["service"] = None if service is None else {"verdict": service.verdict, "found": service.found}
    facts["git"] = {key: value for key, value in asdict(git()).items() if key in ("verdict", "found")}
    if as_json:
        say_json(facts)
        return
    for line in status_lines(facts, time.time()):
        say(plain(line))
