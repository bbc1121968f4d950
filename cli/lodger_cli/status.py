"""`lodger status`: what is true now, each fact with its age. Its JSON is documented in docs/status.md."""

import asyncio
import time
from dataclasses import asdict
from typing import Any

from lodger_cli.checks.machine import git
from lodger_cli.places import local_daemon
from lodger_cli.plain import plain
from lodger_cli.status_lines import status_lines
from lodger_cli.terminal import Exit, fail, say, say_json
from lodger_cli.units.look import look
from lodger_cli.wire import WireError

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
        "uplink": {"next_attempt_at": None, "failures": 0, "clients": 0, **facts["uplink"]},
    }


def status(*, as_json: bool) -> None:
    try:
        facts = asyncio.run(daemon_facts())
    except WireError as error:
        fail(str(error), Exit.UNREACHABLE, as_json=as_json)
    service = look()
    facts["service"] = None if service is None else {"verdict": service.verdict, "found": service.found}
    facts["git"] = {key: value for key, value in asdict(git()).items() if key in ("verdict", "found")}
    if as_json:
        say_json(facts)
        return
    for line in status_lines(facts, time.time()):
        say(plain(line))
