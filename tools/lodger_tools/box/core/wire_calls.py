"""Calls as the runner's frames carry them, and outcomes as they come back. Pure."""

import re
from typing import assert_never

from lodger_tools.box.contract import (
    BoxCall,
    BoxOutcome,
    EditFile,
    FindFiles,
    LookAtFiles,
    Operation,
    OutputPart,
    PreviewChange,
    ReadFile,
    ReadHead,
    RunCommand,
    RunProgram,
    SearchFiles,
    WriteFile,
)
from lodger_tools.json_value import Json, JsonObject
from lodger_tools.runner.kept_output import KeptOutput
from lodger_tools.runner.wire import encode_frame

FILE_TIME_LIMIT_S = 70.0
"""For operations without a limit of their own: above the runner's own 60 s for searches."""
END_MARGIN_S = 15.0
"""How much later than its own limit a call may end: TERM, 2 s, KILL, and a machine under load."""
TEXT_LIMIT_CHARS = 1024 * 1024
_COMMIT = re.compile(r"[0-9a-f]{40}")


def start_frame(call_id: int, call: BoxCall, background: bool = False) -> bytes:
    kind, args, payload = encode_operation(call.operation)
    header: JsonObject = {
        "do": "start",
        "id": call_id,
        "key": call.call_key,
        "kind": kind,
        "cwd": call.cwd,
        "env": dict(call.environment),
        "args": args,
    }
    if background:
        header["background"] = True
    if call.checkout:
        header["checkout"] = call.checkout
    return encode_frame(header, payload)


def encode_operation(operation: Operation) -> tuple[str, JsonObject, bytes]:
    """Name, arguments and payload."""
    match operation:
        case RunCommand():
            args: JsonObject = {"command": operation.command, "timeout_s": operation.timeout_s}
            if operation.pinned:
                args["pinned"] = [[pinned.path, pinned.mark] for pinned in operation.pinned]
            if operation.session is not None:
                session = operation.session
                args |= {"session": True, "terminal": session.terminal, "login": session.login}
            return "run_command", args, b""
        case RunProgram():
            args = {
                "argv": list(operation.argv),
                "timeout_s": operation.timeout_s,
                "stdout_limit_bytes": operation.stdout_limit_bytes,
            }
            return "run_program", args, operation.stdin
        case ReadFile():
            args = {"path": operation.path, "first_line": operation.first_line, "line_count": operation.line_count}
            return "read_file", args, b""
        case WriteFile():
            return "write_file", {"path": operation.path}, text_bytes(operation.content)
        case EditFile():
            return "edit_file", *edit_parts(operation)
        case FindFiles():
            return "find_files", {"pattern": operation.pattern, "folder": operation.folder}, b""
        case SearchFiles():
            return "search_files", search_args(operation), b""
        case PreviewChange(change=WriteFile() as change):
            return "preview_change", {"change": "write", "path": change.path}, text_bytes(change.content)
        case PreviewChange(change=EditFile() as change):
            args, payload = edit_parts(change)
            return "preview_change", {"change": "edit", **args}, payload
        case PreviewChange():
            raise TypeError("a preview is of a write or an edit")
        case ReadHead():
            return "read_head", {"repository": operation.repository}, b""
        case LookAtFiles():
            return "look_at_files", {"paths": list(operation.paths), "marks": operation.marks}, b""
        case _:
            assert_never(operation)


def text_bytes(text: str) -> bytes:
    """A model's JSON may hold half a surrogate pair, which no file can."""
    return text.encode("utf-8", "replace")


def edit_parts(operation: EditFile) -> tuple[JsonObject, bytes]:
    old, new = text_bytes(operation.old_text), text_bytes(operation.new_text)
    args: JsonObject = {
        "path": operation.path,
        "old_bytes": len(old),
        "replace_all": operation.replace_all,
        "expected_replacements": operation.expected_replacements,
    }
    return args, old + new


def search_args(operation: SearchFiles) -> JsonObject:
    return {
        "pattern": operation.pattern,
        "path": operation.path,
        "glob": operation.glob,
        "output_mode": operation.output_mode,
        "before": operation.before,
        "after": operation.after,
        "ignore_case": operation.ignore_case,
        "line_numbers": operation.line_numbers,
        "file_type": operation.file_type,
        "head_limit": operation.head_limit,
        "offset": operation.offset,
        "multiline": operation.multiline,
    }


def output_limit_bytes(operation: Operation) -> int | None:
    """How much standard output is taken from the box; None for the usual head and tail."""
    return operation.stdout_limit_bytes if isinstance(operation, RunProgram) else None


def time_limit_s(operation: Operation) -> float | None:
    """When a runner that has not answered is taken for broken; None for a command without a limit."""
    own = operation.timeout_s if isinstance(operation, RunCommand | RunProgram) else FILE_TIME_LIMIT_S
    return None if own is None else own + END_MARGIN_S


def decode_outcome(header: JsonObject, payload: bytes, output: KeptOutput, data_wanted: bool) -> BoxOutcome:
    """The outcome in a `done` frame. Nothing in it is believed beyond its shape.

    Args:
        data_wanted: standard output is data (a program's), not text for the model (a command's).
    """
    text = payload.decode("utf-8", "replace")[:TEXT_LIMIT_CHARS]
    kept = output.whole("") if data_wanted else output.whole()
    if not data_wanted and kept:
        text = kept.decode("utf-8", "replace") + text
    details = header.get("details")
    return BoxOutcome(
        status="success" if header.get("status") == "success" else "error",
        text=text,
        exit_code=whole_number(header.get("exit_code")),
        data=kept if data_wanted else b"",
        details=details if isinstance(details, dict) else {},
        timed_out=header.get("timed_out") is True,
        cancelled=header.get("cancelled") is True,
        out_of_memory=header.get("out_of_memory") is True,
        leftovers=max(0, whole_number(header.get("leftovers")) or 0),
        head=commit_name(header.get("head")),
    )


def commit_name(value: object) -> str:
    """Empty for anything else than the name of a commit."""
    return value if isinstance(value, str) and _COMMIT.fullmatch(value) else ""


def decode_part(header: JsonObject, payload: bytes) -> OutputPart | None:
    """The answer to a `read`; None when the runner does not know the call, or answers with nonsense."""
    start, total = header.get("start"), header.get("total")
    if header.get("known") is not True or not isinstance(start, int) or not isinstance(total, int):
        return None
    if not 0 <= start <= start + len(payload) <= total < 2**62:
        return None
    return OutputPart(start, payload, total, header.get("ended") is True)


def whole_number(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31 else None
