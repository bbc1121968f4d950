"""`lodger ask`: one message, one answer, an exit code that tells."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_cli.activity import activity_of
from lodger_cli.images import read_images
from lodger_cli.lines import Lines, prompting
from lodger_cli.meanwhile import Meanwhile
from lodger_cli.places import local_daemon
from lodger_cli.processes import StartError
from lodger_cli.questions import ask_person
from lodger_cli.runtime import RuntimeWish, check_mode, open_runtime, wait_for_background, wait_for_memory
from lodger_cli.terminal import Exit, fail, failure_code, for_terminal, note, say, say_json
from lodger_cli.turn import Decide, Message, TurnDriver, TurnResult
from lodger_cli.wire import Frame, WireClient, WireError

TEXT_LIMIT_BYTES: Final = 8 * 1024 * 1024
"""Half of what one frame of the wire may hold: escaped, a text may grow to that."""


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
    images: tuple[str, ...] = ()
    max_turns: int | None = None
    timeout_s: float | None = None


def ask(asking: Asking) -> None:
    """Run one turn and end the process with its exit code."""
    check_mode(asking.mode)
    message = Message(_text(asking.text), read_images(asking.images), asking.max_turns)
    try:
        result = asyncio.run(_ask(asking, message))
    except (WireError, StartError) as error:
        fail(str(error), failure_code(error, Exit.REFUSED))
    except KeyboardInterrupt:
        raise SystemExit(int(Exit.INTERRUPTED)) from None
    raise SystemExit(int(result.exit_code))


def _text(given: str) -> str:
    if given == "-":
        data = sys.stdin.buffer.read(TEXT_LIMIT_BYTES + 1)
        given = data.decode("utf-8", "replace")
        if len(data) > TEXT_LIMIT_BYTES:
            fail(f"standard input holds more than {TEXT_LIMIT_BYTES // 2**20} MiB; name a file instead", Exit.USAGE)
    if not given.strip():
        fail("there is nothing to ask: give some text, or - and text on standard input", Exit.USAGE)
    return given


async def _ask(asking: Asking, message: Message) -> TurnResult:
    async with local_daemon(start=True) as client:
        cwd = str(Path(asking.cwd).absolute()) if asking.cwd else ""
        can_answer = sys.stdin.isatty() and sys.stderr.isatty() and not asking.as_json
        wish = RuntimeWish(asking.agent, asking.model, cwd, asking.conversation, asking.mode, can_answer)
        opened = await open_runtime(client, wish)
        read = prompting(Lines())
        decide = (lambda question: ask_person(question, read)) if can_answer else None
        return await _one_turn(client, opened.runtime, asking, message, decide)


async def _one_turn(
    client: WireClient, runtime: Frame, asking: Asking, message: Message, decide: Decide | None
) -> TurnResult:
    meanwhile = Meanwhile(runtime, _tell)

    def show(frame: Frame) -> None:
        meanwhile.read(frame)
        if asking.as_json:
            say_json(frame)
        elif sys.stderr.isatty() and (line := activity_of(frame)):
            note(line)

    driver = TurnDriver(client, runtime, decide, show)
    if asking.timeout_s is None:
        result = await driver.run(message)
    else:
        result = await driver.run_within(message, asking.timeout_s)
    if not asking.as_json:
        _tell(result)
    if asking.wait:
        before = driver.running_before or frozenset()
        meanwhile.begin(before)
        await wait_for_background(client, runtime, before, say_json if asking.as_json else meanwhile.read)
        await wait_for_memory(client, runtime["agent_id"])
    if asking.as_json:
        say_json(_as_json(result, runtime))
    return result


def _tell(result: TurnResult) -> None:
    if result.text:
        say(for_terminal(result.text) if sys.stdout.isatty() else result.text)
    if not result.ok:
        why = f": {for_terminal(result.error)}" if result.error else ""
        note(f"lodger: the turn ended with {result.stop_reason}{why}")
    elif result.exit_code is Exit.NOT_ALLOWED:
        note("lodger: not everything ran, because it was denied or nobody could be asked; see `--mode`")


def _as_json(result: TurnResult, runtime: Frame) -> Frame:
    return {
        "type": "result",
        "status": "completed" if result.ok else "failed",
        "stop_reason": result.stop_reason,
        "result": result.text,
        "error": result.error,
        "run_ids": result.run_ids,
        "refused_calls": result.refused,
        "exit_code": int(result.exit_code),
        **runtime,
    }
