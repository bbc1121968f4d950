"""`lodger memory share`, `unshare`, `attach`, `detach` and `shared`: memories that several agents have together.

Who has them is the hub's to say, so all but the last speak to the hub of this machine, as its owner.
"""

import asyncio
import time
import urllib.parse
from typing import Any

from lodger_cli.hub_api import hub_of_this_machine
from lodger_cli.memory import ask_daemon
from lodger_cli.memory_outcomes import last_sync, meaning
from lodger_cli.places import local_daemon
from lodger_cli.processes import StartError
from lodger_cli.runtime import agent_or_first
from lodger_cli.terminal import Exit, confirm, fail, failure_code, for_terminal, require_yes, say, say_json
from lodger_cli.wire import WireError
from lodger_protocol.shared_names import shared_name_fault

LOOK_WAIT_S = 10.0
"""For the daemon to hear from the hub what is attached, and to fetch it."""


def share(name: str, *, as_json: bool) -> None:
    """Make an empty shared memory at this machine's hub."""
    _check(name)
    answer = _ask_hub("POST", "/v1/repositories", {"name": name})
    if as_json:
        say_json({"name": name, "made": answer["made"]})
    elif answer["made"]:
        say(f"{name} is at this hub now, empty. `lodger memory attach {name}` gives it to an agent.")
    else:
        say(f"{name} was at this hub already; nothing has changed.")


def unshare(name: str, *, undo: bool, sure: bool, as_json: bool) -> None:
    """Delete a shared memory at this machine's hub, or undo that."""
    _check(name)
    if undo:
        answer = _ask_hub("POST", f"/v1/repositories/{name}/restore", None)
    else:
        if not sure:
            _make_sure(name)
        answer = _ask_hub("DELETE", f"/v1/repositories/{name}", None)
    if as_json:
        say_json({"name": name, "deleted": not undo, "agents": answer["agents"]})
        return
    if undo:
        say(f"{name} is at this hub again, attached to {_those(answer['agents'])}.")
    else:
        say(f"{name} is deleted. It was attached to {_those(answer['agents'])}.")
        say(f"This hub keeps it for {answer['kept_days']} days: `lodger memory unshare {name} --undo` brings it back.")
        say("Each machine sets aside what it had of it: `lodger memory shared` there tells where.")


def _make_sure(name: str) -> None:
    require_yes("it is taken from all agents that have it")
    agents = _those(_those_who_have(name))
    confirm(f"Delete the shared memory {name}, which is attached to {agents}?", "nothing was deleted")


def _those_who_have(name: str) -> list[str]:
    """The agents that a shared memory is attached to."""
    listed = _ask_hub("GET", "/v1/repositories", None)["repositories"]
    found = [one["agents"] for one in listed if one["name"] == name]
    if not found:
        fail(f"there is no shared memory {name}")
    return [str(agent["agent_id"]) for agent in found[0]]


def _those(agents: list[str]) -> str:
    return ", ".join(agents) if agents else "no agent"


def attach(name: str, agent: str, *, read_only: bool, as_json: bool) -> None:
    """Give a shared memory to an agent, on every machine of this hub."""
    permissions = "read" if read_only else "write"
    _check(name)
    agent_id = agent or _first_agent()
    _put("PUT", name, agent_id, {"permissions": permissions})
    if as_json:
        say_json({"name": name, "agent_id": agent_id, "permissions": permissions})
    else:
        say(f"{agent_id} {'reads' if read_only else 'reads and writes'} {name} from its next command or turn on.")


def detach(name: str, agent: str, *, as_json: bool) -> None:
    """Take a shared memory from an agent; what is there stays at the hub and with the others."""
    _check(name)
    agent_id = agent or _first_agent()
    if agent_id not in _those_who_have(name):
        fail(f"{name} is not attached to {agent_id}")
    _put("DELETE", name, agent_id, None)
    if as_json:
        say_json({"name": name, "agent_id": agent_id, "permissions": "none"})
    else:
        say(f"{name} is no longer attached to {agent_id}. Each machine sets aside what it had of it:")
        say("`lodger memory shared` there tells where, with whatever had not been synced.")


def shared(agent: str, *, as_json: bool) -> None:
    """The shared memories of an agent, as this machine has them."""
    frame = {"type": "lodger_memory_shared", "limit_s": LOOK_WAIT_S}
    answer = ask_daemon(frame, agent, limit_s=LOOK_WAIT_S + 10)
    if as_json:
        say_json({key: answer[key] for key in ("agent_id", "shared", "set_aside")})
        return
    for one in answer["shared"]:
        _say_one(one)
    if not answer["shared"]:
        say(f"{answer['agent_id']} has no shared memory here. On the hub's machine, `lodger memory attach NAME`.")
    for place in answer["set_aside"]:
        say(for_terminal(f"Set aside  {place}"))


def _say_one(one: dict[str, Any]) -> None:
    synced = last_sync(one, time.time())
    say(f"{one['name']}  {one['permissions']}, at {one['place']}")
    say(f"           {synced}, {one['ahead']} commit(s) unsynced")
    say(f"           {meaning(one)}")
    if one["detail"]:
        say(for_terminal(f"           {one['detail']}"))
    if one["conflict"]:
        say(f"           `lodger memory resolve --shared {one['name']}` shows what there is to decide")


def _put(method: str, name: str, agent_id: str, body: dict[str, Any] | None) -> None:
    _ask_hub(method, f"/v1/repositories/{name}/agents/{urllib.parse.quote(agent_id, safe='')}", body)


def _check(name: str) -> None:
    if fault := shared_name_fault(name):
        fail(f"{name[:80]} cannot name a shared memory: {fault}", Exit.USAGE)


def _ask_hub(method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
    try:
        hub = hub_of_this_machine()
    except WireError as error:
        fail(f"{error}; who shares a memory is said on the hub's machine", failure_code(error))
    try:
        return hub.ask(method, path, body)
    except WireError as error:
        fail(str(error), failure_code(error))


def _first_agent() -> str:
    async def ask() -> str:
        async with local_daemon(start=True) as client:
            return await agent_or_first(client, "")

    try:
        return asyncio.run(ask())
    except (WireError, StartError) as error:
        fail(str(error), failure_code(error))
