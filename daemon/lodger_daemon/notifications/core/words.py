"""What the agent is told of its background tasks. Pure."""

import hashlib
from typing import Final, assert_never

from lodger_daemon.notifications.contract import Task, TaskEnd, TaskStatus
from lodger_tools.catalogue.background_tasks import OUTPUT_TOOL, STOP_TOOL, task_id
from lodger_tools.catalogue.exec_sessions import CHARACTERS_PER_TOKEN
from lodger_tools.json_value import JsonObject
from lodger_tools.output.core.truncation import truncate_middle
from lodger_tools.toolbox_contract import BackgroundEnd, OutputSoFar, ToolOutcome

COMMAND_SHOWN_CHARS: Final = 200
COMMAND_LISTED_CHARS: Final = 2000
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
NO_OUTPUT: Final = "(no output)"
_END_WORDS: Final = {
    TaskStatus.COMPLETED: "completed",
    TaskStatus.FAILED: "failed",
    TaskStatus.STOPPED: "was stopped",
    TaskStatus.LOST: "is lost: its box has ended, and whether it was finished is not known",
}


def status_of(end: BackgroundEnd) -> TaskStatus:
    if end.cancelled:
        return TaskStatus.STOPPED
    return TaskStatus.COMPLETED if end.good else TaskStatus.FAILED


def text_of_end(end: BackgroundEnd) -> str:
    """The last of the output, with what else must be known."""
    text = end.text
    if end.timed_out:
        text += "\n[It took longer than its timeout and was ended.]"
    if end.out_of_memory:
        text += "\n[It was killed: what runs in its box used more memory together than it may.]"
    if end.leftovers:
        one = end.leftovers == 1
        text += f"\n[{end.leftovers} {'process it started still runs' if one else 'processes it started still run'}.]"
    return text


def started(task: Task) -> str:
    return (
        f"Command running in background with ID: {task_id(task.number)}. You will be told when it has ended. "
        f"{OUTPUT_TOOL} shows its output so far, {STOP_TOOL} ends it."
    )


def moved(task: Task, waited_s: float, text: str) -> str:
    return (
        f"Still running after {waited_s:g} s, and left to run in the background with ID: {task_id(task.number)}. You "
        f"will be told when it has ended. {OUTPUT_TOOL} shows its output, {STOP_TOOL} ends it. Output so far:\n"
        f"{text or NO_OUTPUT}"
    )


def no_such_task(number: int) -> str:
    return f"There is no background task {task_id(number)} of yours on this machine."


def state(task: Task) -> str:
    """One line on how a task stands."""
    name = f"{task_id(task.number)} ({shortened(task.command)})"
    end = task.end
    if end is None:
        return f"{name} is running."
    match end.status:
        case TaskStatus.COMPLETED:
            return f"{name} has completed (exit code: 0)."
        case TaskStatus.FAILED:
            return f"{name} has failed ({_exit_words(end)})."
        case TaskStatus.STOPPED:
            return f"{name} was stopped ({_exit_words(end)})."
        case TaskStatus.LOST:
            return f"{name} {_END_WORDS[TaskStatus.LOST]}."
        case TaskStatus.RUNNING:
            raise AssertionError("what has ended does not run")
        case _:
            assert_never(end.status)


def so_far(task: Task, part: OutputSoFar) -> str:
    more = f"; read on with offset={part.end}" if part.end < part.total or not part.ended else ""
    where = f"Output, bytes {part.start} to {part.end} of {part.total}{more}:"
    return f"{state(task)}\n{where}\n{part.text or NO_OUTPUT}"


def at_its_end(task: Task, end: TaskEnd) -> str:
    """When its box no longer has the output: what was kept of it."""
    whole = f"\nMore of its output is in {end.overflow_path}" if end.overflow_path else ""
    return f"{state(task)}\nThe last of its output:\n{end.text or NO_OUTPUT}{whole}"


def notification(task: Task, end: TaskEnd) -> str:
    """The text that tells a conversation of a task's end, as clients of the wire know it (BEHAVIOUR.md A14)."""
    duration_ms = max(0, round((end.ended_at - task.started_at) * 1000))
    name = shortened(task.description or task.command)
    shown = f"$ {shortened(task.command)}\n\n{_exit_words(end).capitalize()}\n\n{end.text or NO_OUTPUT}"
    whole = f"Full transcript available at: {end.overflow_path}"
    return (
        "<task-notification>\n"
        f"<task-id>{task_id(task.number)}</task-id>\n"
        f"<status>{end.status.value}</status>\n"
        f'<summary>Background command "{_escaped(name)}" {_END_WORDS[end.status]}</summary>\n'
        f"<result>{_escaped(shown)}</result>\n"
        f"<usage>duration_ms: {duration_ms}</usage>\n"
        "</task-notification>\n"
        f"{whole if end.overflow_path else f'{OUTPUT_TOOL} shows its output while its box lasts.'}"
    )


def session_ended(wall_s: float, outcome: ToolOutcome, limit_chars: int) -> str:
    """The result of a session's command that has ended, in the sections its models know (BEHAVIOUR.md C6)."""
    first, _, rest = outcome.text.partition("\n")
    failed = first.removeprefix("Exit code: ")
    if failed != first:
        return _sections(wall_s, f"Process exited with code {failed}", rest, limit_chars)
    ended = "Process exited with code 0" if outcome.status == "success" else "Process ended"
    return _sections(wall_s, ended, outcome.text, limit_chars)


def session_state(task: Task, wall_s: float, text: str, limit_chars: int) -> str:
    if task.end is None:
        how = f"Process running with session ID {task.number}"
    elif task.end.exit_code is not None:
        how = f"Process exited with code {task.end.exit_code}"
    else:
        how = f"Process {_END_WORDS[task.end.status]}"
    return _sections(wall_s, how, text, limit_chars)


def _sections(wall_s: float, how: str, text: str, limit_chars: int) -> str:
    chunk = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:6]
    tokens = -(-len(text) // CHARACTERS_PER_TOKEN)
    return (
        f"Chunk ID: {chunk}\nWall time: {wall_s:.4f} seconds\n{how}\nOriginal token count: {tokens}\n"
        f"Output:\n{truncate_middle(text, limit_chars)}"
    )


def shown_process(task: Task) -> JsonObject:
    """As the device status lists it (PROTOCOL.md 5.1)."""
    return {
        "process_id": task_id(task.number),
        "kind": "bash",
        # Sent with every status, several times a turn.
        "command": task.command[:COMMAND_LISTED_CHARS],
        "started_at_ms": round(task.started_at * 1000),
        "status": task.status.value,
        "exit_code": task.end.exit_code if task.end is not None else None,
    }


def shortened(command: str) -> str:
    line = " ".join(command.split())
    return line if len(line) <= COMMAND_SHOWN_CHARS else f"{line[: COMMAND_SHOWN_CHARS - 1]}…"


def _exit_words(end: TaskEnd) -> str:
    return "no exit code" if end.exit_code is None else f"exit code: {end.exit_code}"


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)
