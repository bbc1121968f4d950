"""`lodger status`: what is true now, each fact with its age."""

import asyncio
import time
from typing import Any

from lodger_cli.places import local_daemon
from lodger_cli.terminal import Exit, age, fail, say, say_json, span
from lodger_cli.wire import WireError

Facts = dict[str, Any]


async def daemon_facts() -> Facts:
    """The daemon's own account of itself. Raises: WireError when none runs."""
    async with local_daemon(start=False) as client:
        answer = await client.request({"type": "lodger_status"})
        facts: Facts = answer["status"]
        return facts


def status(*, as_json: bool) -> None:
    try:
        facts = asyncio.run(daemon_facts())
    except WireError as error:
        fail(str(error), Exit.UNREACHABLE, as_json=as_json)
    if as_json:
        say_json(facts)
        return
    for line in status_lines(facts, time.time()):
        say(line)


def status_lines(facts: Facts, now: float) -> list[str]:
    """The same facts for a person."""
    machine, uplink, model = facts["machine"], facts["uplink"], facts["model"]
    lines = [
        f"Machine    {machine['name']}, daemon {machine['version']}, up for {span(now - machine['started_at'])}",
        f"Hub        {_uplink(uplink, now)}",
        f"Model      {model['default']}{' (practice model: offline, rule-based)' if model['practice'] else ''}",
        f"Sandbox    {facts['sandbox']['summary']} (checked {age(_since(facts['sandbox'].get('at'), now))})",
        f"Boxes      {len(facts['boxes'])} running",
        f"Questions  {facts['questions']['pending']} waiting for an answer",
        f"Disk       {facts['disk']['summary']}",
    ]
    for agent in facts["agents"]:
        memory = agent["memory"]
        lines.append(
            f"Agent      {agent['name']} ({agent['id']}), {agent['model']}: memory {memory['outcome']}, "
            f"{memory['ahead']} unsynced, {age(_since(memory.get('at'), now))}"
            + (f" — {memory['detail']}" if memory.get("detail") else "")
        )
    return lines


def _uplink(uplink: Facts, now: float) -> str:
    if uplink["state"] == "off":
        return "none configured"
    text = f"{uplink['url']}: {uplink['state']}"
    if uplink.get("since") is not None:
        text += f" for {span(now - uplink['since'])}"
    if uplink.get("last_contact") is not None:
        text += f", last heard {age(_since(uplink['last_contact'], now))}"
    if uplink.get("reason"):
        text += f" ({uplink['reason']})"
    return text


def _since(instant: float | None, now: float) -> float | None:
    return None if instant is None else now - instant
