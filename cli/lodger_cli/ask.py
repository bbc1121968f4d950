"""`lodger ask`: one message, one answer, an exit code that tells."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from lodger_cli.activity import activity_of
from lodger_cli.lines import Lines
from lodger_cli.places import local_daemon
from lodger_cli.processes import StartError
from lodger_cli.questions import ask_person
from lodger_cli.runtime import RuntimeWish, check_mode, open_runtime, wait_for_memory
from lodger_cli.terminal import Exit, fail, failure_code, note, say, say_json
from lodger_cli.turn import Decide, TurnDriver, TurnResult
from lodger_cli.wire import Frame, WireClient, WireError


@dataclass(frozen=True, slots=True)
class Asking:
    """What the person wants."""

    text: str
    agent: str
    model: str
    cwd: str
    conversation: str
    mode: str
    wait: bool
    as_json: bool


def ask(asking: Asking) -> None:
    """Run one turn and end the process with its exit code."""
    check_mode(asking.mode)
    text = sys.stdin.read() if asking.text == "-" else asking.text
    if not text.strip():
        fail("there is nothing to ask: give some text, or - and text on standard input", Exit.USAGE)
    try:
        result = asyncio.run(_ask(asking, text))
    except (WireError, StartError) as error:
        fail(str(error), failure_code(error), as_json=asking.as_json)
    except KeyboardInterrupt:
        raise SystemExit(int(Exit.INTERRUPTED)) from None
    raise SystemExit(int(Exit.OK if result.ok else Exit.FAILED))


async def _ask(asking: Asking, text: str) -> TurnResult:
    async with local_daemon(start=True) as client:
        cwd = str(Path(asking.cwd).absolute()) if asking.cwd else ""
        can_answer = sys.stdin.isatty() and not asking.as_json
        wish = RuntimeWish(asking.agent, asking.model, cwd, asking.conversation, asking.mode, can_answer)
        opened = await open_runtime(client, wish)
        lines = Lines()
        decide = (lambda question: ask_person(question, lines)) if can_answer else None
        return await _one_turn(client, opened.runtime, asking, text, decide)


async def _one_turn(client: WireClient, runtime: Frame, asking: Asking, text: str, decide: Decide | None) -> TurnResult:
    def show(frame: Frame) -> None:
        if asking.as_json:
            say_json(frame)
        elif sys.stderr.isatty() and (line := activity_of(frame)):
            note(line)

    result = await TurnDriver(client, runtime, decide, show).run(text)
    if asking.wait:
        await wait_for_memory(client, runtime["agent_id"])
    if asking.as_json:
        say_json(
            {
                "type": "result",
                "status": "completed" if result.ok else "failed",
                "stop_reason": result.stop_reason,
                "result": result.text,
                "error": result.error,
                "run_ids": result.run_ids,
                **runtime,
            }
        )
        return result
    if result.text:
        say(result.text)
    if not result.ok:
        note(f"lodger: the turn ended with {result.stop_reason}{': ' + result.error if result.error else ''}")
    return result
