"""`lodger ports`: what listens in boxes of this machine, and what of it is open here."""

import asyncio
import time

from lodger_cli.places import local_daemon
from lodger_cli.plain import plain
from lodger_cli.status_lines import port_words
from lodger_cli.terminal import fail, failure_code, say, say_json
from lodger_cli.wire import Frame, Refused, WireError


def list_ports(*, as_json: bool) -> None:
    found = _asked({"type": "lodger_ports"})["ports"]
    if as_json:
        say_json(found)
        return
    now = time.time()
    for one in found:
        say(plain(port_words(one, now)))
    if not found:
        say("Nothing listens in a box.")


def open_port(port: int, workspace: str, *, as_json: bool) -> None:
    answer = _asked({"type": "lodger_ports_open", "port": port, **_where(workspace)})
    if as_json:
        say_json({"type": "opened", "port": port, "local_port": answer["local_port"], "url": answer["url"]})
    else:
        say(f"Port {port} of the box is open at {answer['url']}")


def close_port(port: int, workspace: str, *, as_json: bool) -> None:
    answer = _asked({"type": "lodger_ports_close", "port": port, **_where(workspace)})
    if as_json:
        say_json({"type": "closed", "port": answer["port"], "workspace": answer["workspace"]})
    else:
        say(plain(f"Port {answer['port']} of the box in {answer['workspace']} is closed."))


def _where(workspace: str) -> Frame:
    return {"workspace": workspace} if workspace else {}


def _asked(command: Frame) -> Frame:
    async def ask() -> Frame:
        async with local_daemon(start=False) as client:
            answer = await client.request(command)
            if not answer.get("success"):
                raise Refused(str(answer.get("error") or "the daemon said no"))
            return answer

    try:
        return asyncio.run(ask())
    except WireError as error:
        fail(str(error), failure_code(error))
