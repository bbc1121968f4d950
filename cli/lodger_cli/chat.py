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

from lodger_cli.activity import activity_of
from lodger_cli.lines import Lines
from lodger_cli.places import HubPlace, known_hub, local_daemon, paths
from lodger_cli.processes import StartError
from lodger_cli.questions import ask_person
from lodger_cli.runtime import RuntimeWish, check_mode, open_runtime
from lodger_cli.terminal import Exit, fail, failure_code, note, say_json
from lodger_cli.turn import TurnDriver, text_of
from lodger_cli.wire import Frame, WireClient, WireError

HUB_ANSWER_LIMIT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chatting:
    agent: str
    model: str
    cwd: str
    conversation: str
    mode: str
    machine: str
    as_json: bool


def chat(chatting: Chatting) -> None:
    """Read lines, show answers, until the end of input or Ctrl-D."""
    check_mode(chatting.mode)
    try:
        asyncio.run(_chat(chatting))
    except (WireError, StartError) as error:
        fail(str(error), failure_code(error), as_json=chatting.as_json)
    except KeyboardInterrupt:
        note("")
        raise SystemExit(int(Exit.INTERRUPTED)) from None


async def _chat(chatting: Chatting) -> None:
    async with _connection(chatting) as client:
        cwd = str(Path(chatting.cwd).absolute()) if chatting.cwd else ""
        interactive = sys.stdin.isatty() and not chatting.as_json
        wish = RuntimeWish(
            chatting.agent, chatting.model, cwd, chatting.conversation, chatting.mode, can_answer=interactive
        )
        opened = await open_runtime(client, wish)
        lines = Lines()
        decide = (lambda question: ask_person(question, lines)) if interactive else None
        driver = TurnDriver(client, opened.runtime, decide, say_json if chatting.as_json else _show)
        if interactive:
            note(f"Talking to {opened.agent_name}, with the model {opened.model}.")
            note("Write a message and press Enter. Ctrl-D ends the chat; the agent stays.")
        while line := await _read_line(lines, interactive):
            if line.strip():
                result = await driver.run(line.strip())
                if not chatting.as_json:
                    sys.stdout.write("\n")
                    sys.stdout.flush()
                if not result.ok:
                    note(
                        f"lodger: the turn ended with {result.stop_reason}{f': {result.error}' if result.error else ''}"
                    )


async def _read_line(lines: Lines, interactive: bool) -> str:
    if interactive:
        sys.stderr.write("> ")
        sys.stderr.flush()
    line = await lines.next()
    if interactive and not line:
        note("")
    return line


def _show(frame: Frame) -> None:
    """Stream text as it comes, and one line for each tool."""
    if frame.get("type") == "stream_delta" and frame["delta"].get("message_type") == "assistant_message":
        sys.stdout.write(text_of(frame["delta"].get("content")))
        sys.stdout.flush()
    elif line := activity_of(frame):
        note(f"\n{line}")


@contextlib.asynccontextmanager
async def _connection(chatting: Chatting) -> AsyncIterator[WireClient]:
    hub = known_hub(paths())
    machine = await asyncio.to_thread(_find_machine, hub, chatting.machine, _own_id()) if hub else None
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


def _own_id() -> str:
    try:
        return (paths().state / "device-id").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _find_machine(hub: HubPlace, name: str, own_id: str = "") -> str | None:
    """The connection id of the machine named (by name or device id), without a name of the one with `own_id`, without
    either of any; None when there is none or the hub does not answer.

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
    wanted = name or own_id
    chosen = [found for found in online if not wanted or wanted in (found["connectionName"], found["deviceId"])]
    if name and len(chosen) != 1:
        names = ", ".join(f"{found['connectionName']} ({found['deviceId']})" for found in online) or "none"
        trouble = f"several machines are called {name}; say the id" if chosen else f"no machine called {name} is online"
        raise WireError(f"{trouble}. Online: {names}")
    return str(chosen[0]["connectionId"]) if chosen else None
