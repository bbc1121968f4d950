"""`lodger memory status` and `lodger memory log`."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from lodger_cli.places import local_daemon
from lodger_cli.processes import StartError
from lodger_cli.runtime import first_agent
from lodger_cli.terminal import age, fail, failure_code, say, say_json
from lodger_cli.wire import Frame, Refused, WireError


def status(agent: str, *, as_json: bool) -> None:
    answer = _run({"type": "lodger_memory_settled", "limit_s": 0}, agent, as_json=as_json)
    sync = answer["sync"]
    if as_json:
        say_json({"agent_id": answer["agent_id"], **sync})
        return
    at = sync.get("at")
    say(f"Agent      {answer['agent_id']}")
    say(f"Published  {sync['head'] or 'nothing yet'}")
    say(f"Last sync  {sync['outcome']}, {age(None if at is None else time.time() - at)}")
    say(f"Unsynced   {sync['ahead']} commit(s)")
    if sync.get("detail"):
        say(f"           {sync['detail']}")


def log(agent: str, *, limit: int, as_json: bool) -> None:
    answer = _run({"type": "memory_history", "limit": limit}, agent, as_json=as_json)
    commits: list[dict[str, Any]] = answer["commits"]
    if as_json:
        say_json(commits)
        return
    for commit in commits:
        when = datetime.fromisoformat(commit["timestamp"]).astimezone(UTC)
        say(f"{commit['sha'][:10]}  {when:%Y-%m-%d %H:%M} UTC  {commit['message'].splitlines()[0]}")
    if not commits:
        say("Nothing remembered yet.")


def _run(frame: Frame, agent: str, *, as_json: bool) -> Frame:
    try:
        answer = asyncio.run(_request(frame, agent))
    except (WireError, StartError) as error:
        fail(str(error), failure_code(error), as_json=as_json)
    if not answer.get("success"):
        fail(answer.get("error") or "the memory could not be read", as_json=as_json)
    return answer


async def _request(frame: Frame, agent: str) -> Frame:
    async with local_daemon(start=True) as client:
        agent_id = agent or await first_agent(client)
        if not agent_id:
            raise Refused('there is no agent on this machine yet: `lodger ask "hello"` makes one')
        return {"agent_id": agent_id, **await client.request({**frame, "agent_id": agent_id})}
