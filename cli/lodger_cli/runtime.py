"""Which agent and conversation a command talks to."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lodger_cli.terminal import Exit, fail, note
from lodger_cli.wire import Frame, Refused, WireClient
from lodger_tools.permissions.core.modes import Mode

OPEN_LIMIT_S: Final = 120.0
"""An agent's first clone on a machine may take a while; the daemon limits it itself."""
MEMORY_WAIT_S: Final = 20.0
BACKGROUND_LOOK_S: Final = 1.0
"""How often the daemon is asked whether background work still runs."""
BACKGROUND_LIMIT_S: Final = 1800.0
"""A build ends by then; a server that the agent started never does. As long as a question waits for a person."""


@dataclass(frozen=True, slots=True)
class RuntimeWish:
    """Empty strings mean: whatever is usual."""

    agent: str = ""
    model: str = ""
    cwd: str = ""
    conversation: str = "default"
    mode: str = ""
    can_answer: bool = True
    """Whether a person is here to answer questions; without one they are denied at once."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The conversation a command talks to."""

    runtime: Frame
    agent_name: str
    model: str


def check_mode(mode: str) -> None:
    """End the command when there is no such mode."""
    if mode and mode not in list(Mode):
        fail(f"there is no mode {mode}; the modes are {', '.join(Mode)}", Exit.USAGE)


async def open_runtime(client: WireClient, wish: RuntimeWish) -> Opened:
    """Open or create what was wished for. Raises: WireError."""
    frame: Frame = {
        "type": "runtime_start",
        "client_info": {
            "name": "lodger-cli",
            "capabilities": ["resume", "batch_deltas", *(() if wish.can_answer else ("no_questions",))],
        },
        "recover_approvals": True,
        "wait_for_replay": False,
    }
    agent = wish.agent or await first_agent(client)
    if agent:
        frame["agent_id"] = agent
    else:
        frame["create_agent"] = {"body": {"name": "Lodger", **({"model": wish.model} if wish.model else {})}}
    if wish.conversation == "new":
        frame["create_conversation"] = {"body": {}}
    else:
        frame["conversation_id"] = wish.conversation
    if wish.cwd:
        frame["cwd"] = wish.cwd
    if wish.mode:
        frame["mode"] = wish.mode
    started = await client.request(frame, limit_s=OPEN_LIMIT_S)
    if not started.get("success"):
        raise Refused(started.get("error") or "the conversation could not be opened")
    runtime: Frame = started["runtime"]
    if agent and wish.model:
        await use_model(client, runtime, wish.model)
    shown = started.get("agent") or {}
    model = wish.model or (started.get("conversation") or {}).get("model") or shown.get("model") or "no model"
    return Opened(runtime, str(shown.get("name") or "the agent"), str(model))


async def first_agent(client: WireClient) -> str:
    """The agent that is meant when nobody names one: the first; empty when there is none yet."""
    listed = await client.request({"type": "agent_list"}, limit_s=OPEN_LIMIT_S)
    agents = listed.get("agents") or []
    return str(agents[0]["id"]) if agents else ""


async def agent_or_first(client: WireClient, named: str) -> str:
    """The agent that a command is about. Raises: Refused when none is named and there is none; WireError."""
    agent = named or await first_agent(client)
    if not agent:
        raise Refused('there is no agent on this machine yet: `lodger ask "hello"` makes one')
    return agent


async def use_model(client: WireClient, runtime: Frame, handle: str) -> None:
    changed = await client.request(
        {"type": "update_model", "runtime": runtime, "payload": {"model_id": handle, "model_handle": handle}}
    )
    if not changed.get("success"):
        raise Refused(f"the model {handle} cannot be used here; `lodger models` lists those that can")


async def wait_for_background(
    client: WireClient, runtime: Frame, before: frozenset[str], show: Callable[[Frame], None] | None
) -> None:
    """Wait until all background work of a conversation has ended but what ran `before`, for `BACKGROUND_LIMIT_S` at the
    most; then what still runs is named and goes on. Raises: WireError."""
    said = False
    deadline = time.monotonic() + BACKGROUND_LIMIT_S
    while running := await _background(client, runtime, before, show):
        names = ", ".join(running)
        if time.monotonic() >= deadline:
            limit = f"{BACKGROUND_LIMIT_S / 60:.0f} minutes"
            note(f"lodger: background work still runs after {limit} ({names}); it goes on, `lodger status` shows it")
            return
        if not said:
            note(f"lodger: waiting for background work ({names}); `--no-wait` does not")
            said = True
        await asyncio.sleep(BACKGROUND_LOOK_S)


async def _background(
    client: WireClient, runtime: Frame, before: frozenset[str], show: Callable[[Frame], None] | None
) -> list[str]:
    """In words, what runs now and did not before."""
    frame: Frame = {"type": "sync", "runtime": runtime, "recover_approvals": False, "force_device_status": True}
    await client.request(frame)
    running: list[str] = []
    for seen in client.waiting():
        if show is not None:
            show(seen)
        if seen.get("type") == "update_device_status" and seen.get("runtime") in (None, runtime):
            new = [one for one in processes_of(seen) if one.get("process_id") not in before]
            running = [str(one.get("description") or one.get("command") or one.get("kind")) for one in new]
    return running


def processes_of(status: Frame) -> list[Frame]:
    """What an `update_device_status` lists as running in the background."""
    return [one for one in status["device_status"].get("background_processes") or [] if isinstance(one, dict)]


async def wait_for_memory(client: WireClient, agent_id: str) -> None:
    """Wait until what the agent remembered has left this machine, or says why it has not."""
    settled = await client.request(
        {"type": "lodger_memory_settled", "agent_id": agent_id, "limit_s": MEMORY_WAIT_S}, limit_s=MEMORY_WAIT_S + 5
    )
    sync = settled.get("sync") or {}
    if sync.get("outcome") in {"push_failed", "conflict", "invalid"}:
        note(f"lodger: memory is kept here but was not synced ({sync['outcome']}): {sync.get('detail', '')}")
