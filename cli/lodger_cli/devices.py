"""`lodger devices`: who holds a token of this hub, and how to take it away or replace it."""

import time
import urllib.parse
from typing import Any, Final

from lodger_cli.hub_api import HubApi, hub_of_this_machine
from lodger_cli.plain import plain
from lodger_cli.terminal import Exit, age, fail, failure_code, say, say_json
from lodger_cli.wire import WireError

Device = dict[str, Any]

OWN: Final = {"machine": "own-machine", "client": "own-client"}
"""The words under which the two tokens of the hub's own machine are rotated."""


def list_devices(*, as_json: bool) -> None:
    hub = _hub()
    devices = _ask(hub, "GET", "/v1/devices")["devices"]
    if as_json:
        say_json(devices)
        return
    now = time.time()
    for device in devices:
        seen = device["last_seen_at"]
        line = (
            f"{device['id']}  {device['name']}  ({device['role']})  "
            f"paired {age(now - device['paired_at'] / 1000)}, "
            f"last seen {age(None if seen is None else now - seen / 1000)}"
        )
        say(plain(line))


def revoke(wanted: str, *, as_json: bool) -> None:
    hub = _hub()
    device = _find(hub, wanted)
    _ask(hub, "DELETE", f"/v1/devices/{_quoted(device['id'])}")
    if as_json:
        say_json({"type": "revoked", "id": device["id"], "name": device["name"]})
    else:
        name = plain(device["name"])
        say(f"{name} is revoked: its connections are closed, and what it had left for machines is dropped.")


def rotate(wanted: str, *, as_json: bool) -> None:
    hub = _hub()
    device = _find(hub, OWN.get(wanted, wanted))
    answer = _ask(hub, "POST", f"/v1/devices/{_quoted(device['id'])}/rotate")
    if as_json:
        say_json({"type": "rotated", **answer})
    elif answer["token"] is not None:
        say(answer["token"])
    elif device["role"] == "machine":
        say(f"The machine token is replaced. It is in {hub.place.machine_token_file}; copy it to your other machines.")
    else:
        say("The client token of this machine is replaced.")


def release(wanted: str, *, as_json: bool) -> None:
    """Let another token have a machine's id: for one that was set up anew, or took another's place on purpose."""
    hub = _hub()
    machine = _find_machine(hub, wanted)
    _ask(hub, "POST", f"/v1/machines/{_quoted(machine['deviceId'])}/release")
    if as_json:
        say_json({"type": "released", "machine_id": machine["deviceId"], "name": machine["connectionName"]})
    else:
        # A machine names itself.
        say(f"{plain(machine['connectionName'])} is released: the next machine that comes under its id has it.")


def _find_machine(hub: HubApi, wanted: str) -> Device:
    """By its id, or by a name that only one machine has."""
    machines: list[Device] = _ask(hub, "GET", "/v1/environments?limit=200")["connections"]
    found = [one for one in machines if one["deviceId"] == wanted] or [
        one for one in machines if one["connectionName"] == wanted
    ]
    if len(found) != 1:
        how_many = "no machine" if not found else f"{len(found)} machines"
        shown = ", ".join(f"{one['connectionName']} ({one['deviceId']})" for one in machines) or "none"
        fail(f"{how_many} called {wanted!r}; the hub knows {shown}")
    return found[0]


def _find(hub: HubApi, wanted: str) -> Device:
    """By id, or by a name that only one device has."""
    devices: list[Device] = _ask(hub, "GET", "/v1/devices")["devices"]
    found = [device for device in devices if device["id"] == wanted] or [
        device for device in devices if device["name"] == wanted
    ]
    if len(found) != 1:
        how_many = "no device" if not found else f"{len(found)} devices"
        fail(f"{how_many} called {wanted!r}: `lodger devices list` shows each with its id")
    return found[0]


def _hub() -> HubApi:
    try:
        return hub_of_this_machine()
    except WireError as error:
        fail(str(error), Exit.UNREACHABLE)


def _ask(hub: HubApi, method: str, path: str) -> dict[str, Any]:
    try:
        return hub.ask(method, path)
    except WireError as error:
        fail(str(error), failure_code(error))


def _quoted(device_id: str) -> str:
    return urllib.parse.quote(device_id, safe="")
