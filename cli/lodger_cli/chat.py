"""`lodger chat`: a conversation in the terminal, through the hub when one runs."""

import asyncio
import contextlib
import json
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lodger_cli.places import HubPlace, known_hub, local_daemon, paths
from lodger_cli.processes import StartError
from lodger_cli.questions import ask_person, nobody_here
from lodger_cli.runtime import RuntimeWish, open_runtime
from lodger_cli.terminal import Exit, fail, note, say_json
from lodger_cli.turn import TurnDriver, text_of
from lodger_cli.wire import Frame, WireClient, WireError

HUB_ANSWER_LIMIT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chatting:
    agent: str
    model: str
    cwd: str
    conversation: str
    machine: str
    as_json: bool


def chat(chatting: Chatting) -> None:
    """Read lines, show answers, until the end of input or Ctrl-D."""
    try:
        asyncio.run(_chat(chatting))
    except (WireError, StartError) as error:
        fail(str(error), Exit.UNREACHABLE, as_json=chatting.as_json)
    except KeyboardInterrupt:
        raise SystemExit(int(Exit.INTERRUPTED)) from None


async def _chat(chatting: Chatting) -> None:
    async with _connection(chatting) as client:
        cwd = str(Path(chatting.cwd).absolute()) if chatting.cwd else ""
        interactive = sys.stdin.isatty()
        wish = RuntimeWish(
            chatting.agent, chatting.model, cwd, chatting.conversation, can_answer=interactive or chatting.as_json
        )
        runtime = await open_runtime(client, wish)
        decide = ask_person if interactive and not chatting.as_json else nobody_here
        driver = TurnDriver(client, runtime, decide, say_json if chatting.as_json else _show)
        if interactive:
            note("Write a message and press Enter. Ctrl-D ends the chat; the agent stays.")
        while line := await _read_line(interactive):
            if line.strip():
                result = await driver.run(line.strip())
                if not chatting.as_json:
                    sys.stdout.write("\n")
                    sys.stdout.flush()
                if not result.ok:
                    note(
                        f"lodger: the turn ended with {result.stop_reason}{f': {result.error}' if result.error else ''}"
                    )


async def _read_line(interactive: bool) -> str:
    if interactive:
        sys.stderr.write("> ")
        sys.stderr.flush()
    return await asyncio.to_thread(sys.stdin.readline)


def _show(frame: Frame) -> None:
    """Stream text as it comes, and one line for each tool."""
    if frame.get("type") != "stream_delta":
        return
    delta = frame["delta"]
    match delta.get("message_type"):
        case "assistant_message":
            sys.stdout.write(text_of(delta.get("content")))
            sys.stdout.flush()
        case "client_tool_start":
            arguments = delta.get("tool_args") or ""
            note(f"\n[{delta.get('tool_name', 'tool')}] {arguments[:200]}")
        case "retry":
            note(f"\n[waiting] {delta.get('message', '')}")
        case _:
            pass


@contextlib.asynccontextmanager
async def _connection(chatting: Chatting) -> AsyncIterator[WireClient]:
    hub = known_hub(paths())
    machine = await asyncio.to_thread(_find_machine, hub, chatting.machine) if hub else None
    if hub is None or machine is None:
        if chatting.machine:
            raise WireError("no hub runs here, so other machines cannot be reached. Start one with `lodger up`")
        async with local_daemon(start=True) as client:
            yield client
        return
    client = await WireClient.over_hub(hub.url, hub.client_token, machine)
    try:
        yield client
    finally:
        await client.close()


def _find_machine(hub: HubPlace, name: str) -> str | None:
    """The connection id of the machine named, or of the one that is online; None when the hub does not answer.

    Raises: WireError naming the machines there are.
    """
    request = urllib.request.Request(  # noqa: S310 - the address is our own hub's
        f"{hub.url}/v1/environments?limit=100", headers={"Authorization": f"Bearer {hub.client_token}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5) as answer:
            listed: dict[str, Any] = json.loads(answer.read(HUB_ANSWER_LIMIT_BYTES))
    except (OSError, ValueError):
        return None
    online = [found for found in listed["connections"] if found.get("connectionId")]
    chosen = [found for found in online if not name or name in (found["connectionName"], found["deviceId"])]
    if name and not chosen:
        names = ", ".join(found["connectionName"] for found in online) or "none"
        raise WireError(f"no machine called {name} is online; online: {names}")
    return str(chosen[0]["connectionId"]) if chosen else None
