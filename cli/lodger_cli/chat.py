"""`lodger chat`: a conversation in the terminal, through the hub when one runs."""

import asyncio
import contextlib
import json
import sys
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lodger_cli.chat_screen import ChatScreen
from lodger_cli.lines import Lines, prompting
from lodger_cli.places import HubPlace, known_hub, local_daemon, paths
from lodger_cli.processes import StartError
from lodger_cli.questions import ask_person
from lodger_cli.runtime import RuntimeWish, check_mode, open_runtime
from lodger_cli.terminal import Exit, fail, failure_code, for_terminal, note, say_json, write_out
from lodger_cli.turn import Message, TurnDriver
from lodger_cli.wire import Refused, WireClient, WireError

HISTORY_FILE = "chat-history"
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
    """Talk until the person leaves or the input ends, and end the process with its exit code."""
    check_mode(chatting.mode)
    in_terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)) and not chatting.as_json
    try:
        left = asyncio.run(_in_terminal(chatting) if in_terminal else _line_by_line(chatting))
    except (WireError, StartError) as error:
        fail(str(error), failure_code(error, Exit.REFUSED))
    except KeyboardInterrupt:
        note("")
        left = True
    raise SystemExit(int(Exit.INTERRUPTED if left else Exit.OK))


async def _in_terminal(chatting: Chatting) -> bool:
    """Whether the person left by Ctrl-C."""
    from lodger_cli.chat_prompt import keys_as_pressed

    with keys_as_pressed():
        return await _from_room_to_room(chatting)


async def _from_room_to_room(chatting: Chatting) -> bool:
    from lodger_cli.chat_prompt import ChatPrompt, Left, above_the_prompt
    from lodger_cli.chat_room import CLEAR, ChatRoom

    async with _connection(chatting) as client:
        wish = _wish(chatting, can_answer=True)
        prompt = ChatPrompt(paths().state / HISTORY_FILE)
        while True:
            opened = await open_runtime(client, wish)
            note(f"Talking to {for_terminal(opened.agent_name)}, with the model {for_terminal(opened.model)}.")
            note("Write a message and press Enter; /help lists more. Ctrl-D ends the chat; the agent stays.")
            try:
                with above_the_prompt():
                    went = await ChatRoom(client, opened, prompt).run()
            except Left:
                return True
            if went is None:
                return False
            if went.clear_screen:
                write_out(CLEAR)
            wish = replace(wish, agent=opened.runtime["agent_id"], conversation="new", model="", cwd="")


async def _line_by_line(chatting: Chatting) -> bool:
    """Each line of standard input is a message, and is answered before the next is read."""
    async with _connection(chatting) as client:
        can_answer = sys.stdin.isatty() and not chatting.as_json
        opened = await open_runtime(client, _wish(chatting, can_answer=can_answer))
        lines, screen = Lines(), ChatScreen()
        decide = (lambda question: ask_person(question, prompting(lines))) if can_answer else None
        driver = TurnDriver(client, opened.runtime, decide, say_json if chatting.as_json else screen.show)
        while line := await lines.next():
            if line.strip():
                await driver.run(Message(line.strip()))
    return False


def _wish(chatting: Chatting, *, can_answer: bool) -> RuntimeWish:
    cwd = str(Path(chatting.cwd).absolute()) if chatting.cwd else ""
    return RuntimeWish(chatting.agent, chatting.model, cwd, chatting.conversation, chatting.mode, can_answer)


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

    Raises: Refused or, when it is not online, WireError; both name the machines that are.
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
        if any(name in (found["connectionName"], found["deviceId"]) for found in listed["connections"]) and not chosen:
            raise WireError(f"{name} is not online. Online: {names}")
        trouble = f"several machines are called {name}; say the id" if chosen else f"no machine is called {name}"
        raise Refused(f"{trouble}. Online: {names}")
    return str(chosen[0]["connectionId"]) if chosen else None
