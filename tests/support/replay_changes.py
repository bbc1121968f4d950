"""How Lodger's differences change a recording: ways to change lines, and what each difference does with them."""

import copy
import json
from collections.abc import Callable, Iterable
from dataclasses import replace

from support.replay_cleaned import clean
from support.replay_model import SLOW_PIECES
from support.replay_normal import condense, is_text, text_of
from support.replay_recording import Frame, Kind, Line

Change = Callable[[list[Line]], list[Line]]


def each(frame_type: str, edit: Callable[[Frame], None], where: Callable[[Frame], bool] = lambda _: True) -> Change:
    """Edit the server's frames of one type; deltas are named by their message type."""

    def change(lines: list[Line]) -> list[Line]:
        return [_edited(line, edit) if is_frame(line, frame_type) and where(line.frame) else line for line in lines]

    return change


def drop(unwanted: Callable[[Line], bool]) -> Change:
    return lambda lines: [line for line in lines if not unwanted(line)]


def both(*changes: Change) -> Change:
    def change(lines: list[Line]) -> list[Line]:
        for one in changes:
            lines = one(lines)
        return lines

    return change


def _edited(line: Line, edit: Callable[[Frame], None]) -> Line:
    frame = copy.deepcopy(line.frame)
    edit(frame)
    return line.with_frame(frame)


def is_frame(line: Line, frame_type: str) -> bool:
    if line.kind is not Kind.RECEIVED:
        return False
    return line.frame["type"] == frame_type or line.frame.get("delta", {}).get("message_type") == frame_type


def _index(lines: list[Line], wanted: Callable[[Line], bool], start: int = 0) -> int:
    return next(index for index in range(start, len(lines)) if wanted(lines[index]))


def _status(line: Line) -> str:
    return str(line.frame["loop_status"]["status"]) if is_frame(line, "update_loop_status") else ""


def info(frame: Frame) -> None:
    frame["capabilities"] |= {"runtime_workspace_sandbox": False}
    frame["lodger"] = {
        "version": "<version>",
        "capabilities": ["resume", "batch_deltas", "receipts", "questions", "batch_questions"],
    }


def agent(frame: Frame) -> None:
    if frame["agent"] is not None:
        frame["agent"] |= {"created_at": "<time>", "updated_at": "<time>"}
        frame["agent"]["llm_config"]["model_endpoint"] = None


def model(frame: Frame) -> None:
    name = frame["agent"]["model"]
    provider, _, model = name.partition("/")
    frame["agent"]["model_settings"] = {
        "provider_type": provider,
        "context_window_limit": "<context_window_limit>",
        "max_tokens": "<max_tokens>",
    }
    frame["agent"]["llm_config"] |= {"model": model, "model_endpoint_type": provider, "max_tokens": "<max_tokens>"}


def question(request: Frame) -> None:
    request |= {"reason": "<reason>", "expires_at": "<time>"}


def pending(frame: Frame) -> None:
    for pending in frame["device_status"]["pending_control_requests"]:
        question(pending["request"])


def resent_runs_nothing(lines: list[Line]) -> list[Line]:
    """Nothing comes after the acknowledgement of the input that was sent again."""
    return lines[
        : _index(lines, lambda line: line.frame.get("request_id") == "input-4" and line.kind is Kind.RECEIVED) + 1
    ]


def without_third_run(frame: Frame) -> None:
    frame["loop_status"].get("client_message_ids_by_run_id", {}).pop("local-run-3", None)


def answer_first(lines: list[Line]) -> list[Line]:
    """The acknowledgement of an answer comes before what the answer sets going."""
    changed = list(lines)
    sent: dict[str, int] = {}
    for index, line in enumerate(lines):
        if line.kind is Kind.SENT:
            sent[line.frame.get("request_id", "")] = index
        elif is_frame(line, "input_accepted"):
            between = range(sent[line.frame["request_id"]], index)
            executing = [earlier for earlier in between if _status(lines[earlier]) == "EXECUTING_CLIENT_SIDE_TOOL"]
            if executing:
                changed.insert(executing[0], changed.pop(index))
    return changed


def folded_in(lines: list[Line]) -> list[Line]:
    changed = list(lines)
    told = _index(lines, lambda line: is_frame(line, "update_queue") and bool(line.frame["removed"]))
    changed.insert(told - 1, changed.pop(told))
    opened = each(
        "update_loop_status",
        lambda frame: frame["loop_status"].update(active_run_ids=[]),
        lambda frame: (
            frame["loop_status"]["status"] == "PROCESSING_API_RESPONSE"
            and frame["loop_status"]["active_run_ids"] == ["local-run-1"]
        ),
    )
    return [*changed[:told], *opened(changed[told:])]


def joined(frame: Frame) -> None:
    frame["delta"]["client_message_ids"] = ["cm-q-2", "cm-q-4"]


def input_gets_an_id(lines: list[Line]) -> list[Line]:
    named = _index(
        lines, lambda line: is_frame(line, "update_loop_status") and line.frame["loop_status"]["active_run_ids"] != []
    )
    ids = {"local-run-48": ["cm-00000000-0000-4000-8000-000000000000"]}
    tell = each("update_loop_status", lambda frame: frame["loop_status"].update(client_message_ids_by_run_id=ids))
    return [*lines[:named], *tell(lines[named:])]


def comment_for_all(lines: list[Line]) -> list[Line]:
    ours = 'The person allowed this call and said: "with a tweak"\n'
    theirs = 'The user approved the tool execution with the following comment: "with a tweak"\n'

    def returned(frame: Frame) -> None:
        frame["delta"]["tool_return"] = frame["delta"]["tool_returns"][0]["tool_return"] = f"{ours}edited\n"

    told = each("tool_return_message", returned, lambda frame: frame["delta"]["tool_return"] == "edited\n")(lines)
    return [_reworded(line, theirs, ours) for line in _texts_joined(told)]


def own_tool_words(lines: list[Line]) -> list[Line]:
    """Of the two writes the first makes the file, the second finds it; the model repeats each result."""
    path = "<workspace>/notes/made-by-agent.txt"
    theirs = f"Successfully wrote 18 characters to {path}"
    made, found = f"Created {path} (18 bytes).", f"Wrote {path} (18 bytes, before 18)."
    ours = iter((made, made, found, found))
    return [
        _reworded(line, theirs, next(ours)) if theirs in json.dumps(line.frame) else line
        for line in _texts_joined(lines)
    ]


def command_shown_once(lines: list[Line]) -> list[Line]:
    repeated = [
        index
        for index, line in enumerate(lines)
        if index and _status(line) == "EXECUTING_COMMAND" and line.frame == lines[index - 1].frame
    ]
    return [line for index, line in enumerate(lines) if index not in repeated]


def folder_error(lines: list[Line]) -> list[Line]:
    """A folder that is missing is told as one that is a file; the device status follows in both cases."""
    words = "is not a folder on this machine."
    asked = _index(
        lines, lambda line: line.kind is Kind.SENT and line.frame.get("payload", {}).get("cwd") == "/does/not/exist"
    )
    template = lines[_index(lines, lambda line: is_frame(line, "loop_error"))]
    told = _reworded(template, "Not a directory: <workspace>/README.md", f"/does/not/exist {words}")
    told.frame["delta"]["id"] = "lifecycle-00000000-0000-4000-8000-000000000000"
    after = each(
        "loop_error",
        lambda frame: frame["delta"].update(message=f"<workspace>/README.md {words}"),
        lambda frame: frame["delta"]["message"].startswith("Not a directory"),
    )(lines[asked + 2 :])
    return [*lines[: asked + 2], told, *after]


def unknown_tool(lines: list[Line]) -> list[Line]:
    """The third call, of the tool that was withdrawn."""
    call, tools = (
        "call_stub_12_0",
        "Bash, Read, Write, Edit, Glob, Grep, AskUserQuestion, TaskOutput, TaskStop, SearchMessages",
    )
    ours = f"There is no tool named lookup_weather here, so nothing ran. Your tools are: {tools}."
    unstarted = both(
        drop(lambda line: is_frame(line, "client_tool_start") and line.frame["delta"]["tool_call_id"] == call),
        each(
            "update_loop_status",
            lambda frame: frame["loop_status"].update(executing_tool_call_ids=[]),
            lambda frame: call in frame["loop_status"]["executing_tool_call_ids"],
        ),
    )(lines)

    def returned(frame: Frame) -> None:
        frame["delta"]["tool_return"] = frame["delta"]["tool_returns"][0]["tool_return"] = ours

    def said(frame: Frame) -> None:
        frame["delta"]["content"][0]["text"] = f"Tool said: {ours}"

    return both(
        each("tool_return_message", returned, lambda frame: frame["delta"]["tool_call_id"] == call),
        each("assistant_message", said, lambda frame: "Tool not found" in text_of(frame)),
    )(_texts_joined(unstarted))


def _reworded(line: Line, theirs: str, ours: str) -> Line:
    text = json.dumps(line.frame).replace(json.dumps(theirs)[1:-1], json.dumps(ours)[1:-1])
    return line.with_frame(json.loads(text))


def whole_path(request: Frame) -> None:
    for diff in request.get("diffs", ()):
        diff["fileName"] = request["input"]["file_path"]


def pending_path(frame: Frame) -> None:
    for pending in frame["device_status"]["pending_control_requests"]:
        whole_path(pending["request"])


def _texts_joined(lines: list[Line]) -> list[Line]:
    """Fragments that follow each other as one."""
    joined: list[Line] = []
    for line in lines:
        if joined and line.kind is joined[-1].kind is Kind.RECEIVED and line.connection == joined[-1].connection:
            whole = condense([joined[-1].frame, line.frame])
            if len(whole) == 1 and is_text(line.frame):
                joined[-1] = replace(line, frame=whole[0])
                continue
        joined.append(line)
    return joined


def started_after_abort(lines: list[Line]) -> list[Line]:
    """The message after an abort begins its turn as any other does."""
    sent = _index(lines, lambda line: line.kind is Kind.SENT and line.frame.get("request_id") == "input-4")
    finished = _index(lines, lambda line: is_frame(line, "turn_finished"), sent)

    def unwanted(index: int, line: Line) -> bool:
        between = sent < index < finished and _status(lines[index]) == "WAITING_ON_INPUT" and index < finished - 3
        after = index > finished and _status(line) == "WAITING_ON_INPUT"
        return index > sent and (is_frame(line, "update_queue") or is_frame(line, "user_message") or between or after)

    kept = [line for index, line in enumerate(lines) if not unwanted(index, line)]
    return each(
        "input_accepted",
        lambda frame: frame.update(disposition="started"),
        lambda frame: frame["request_id"] == "input-4",
    )(kept)


def mode(frame: Frame) -> None:
    frame["device_status"]["current_permission_mode"] = "standard"


def refused_by_model(line: Line) -> bool:
    return _status(line) == "PROCESSING_API_RESPONSE"


def plain_error(frame: Frame) -> None:
    text = "HTTP 400: stub refused"
    match frame["type"]:
        case "turn_finished":
            frame["error"] = text
        case _:
            frame["delta"]["message"] = text
            frame["delta"].pop("api_error", None)
            if frame["delta"]["message_type"] == "error_message":
                frame["delta"] |= {"detail": text, "error_type": "bad_request"}


def is_model_error(frame: Frame) -> bool:
    return "local_backend_error" in json.dumps(frame)


def malformed_is_answered(lines: list[Line]) -> list[Line]:
    index = _index(lines, lambda line: line.kind is Kind.SENT and line.frame.get("request_id") == "x2")
    answer = {
        "type": "read_file_response",
        "request_id": "x2",
        "success": False,
        "encoding": "utf8",
        "content": None,
        "error": "Malformed read_file: path: Field required",
    }
    return [*lines[: index + 1], Line(lines[index].connection, Kind.RECEIVED, answer), *lines[index + 1 :]]


def nothing_is_refused(lines: list[Line]) -> list[Line]:
    sent = _index(lines, lambda line: line.kind is Kind.SENT and line.frame.get("request_id") == "x6")
    end = _index(lines, lambda line: line.kind is Kind.SENT, sent + 1)
    refusal = copy.deepcopy(lines[sent + 1].frame)
    del refusal["disposition"]
    refusal |= {"accepted": False, "error": "An input needs at least one message."}
    return [*lines[: sent + 1], lines[sent + 1].with_frame(refusal), *lines[end:]]


def turn_goes_on(lines: list[Line]) -> list[Line]:
    """After its last client left the turn is still there, and goes on to its end as in 25."""
    back = _index(lines, lambda line: line.connection == "A2" and line.kind is Kind.RECEIVED)
    shown = [_as_running(line) if line.connection == "A2" else line for line in lines[back:]]
    asked = _index(shown, lambda line: line.kind is Kind.SENT)
    return [*lines[:back], *shown[:asked], *_rest_of_slow_turn(), *shown[asked:]]


def _as_running(line: Line) -> Line:
    def edit(frame: Frame) -> None:
        match frame["type"]:
            case "update_device_status":
                frame["device_status"]["is_processing"] = True
            case "update_loop_status":
                frame["loop_status"] |= {"status": "PROCESSING_API_RESPONSE", "active_run_ids": ["local-run-5"]}

    return _edited(line, edit) if line.kind is Kind.RECEIVED else line


def _rest_of_slow_turn() -> Iterable[Line]:
    told = [line for line in clean("25") if line.connection == "A2" and line.kind is Kind.RECEIVED]
    first = _index(told, lambda line: is_frame(line, "assistant_message"))
    after = _index(told, lambda line: is_frame(line, "usage_statistics"))
    texts = []
    for number, piece in enumerate(SLOW_PIECES[3:]):
        frame = copy.deepcopy(told[first].frame)
        frame["delta"]["content"] = [{"type": "text", "text": piece}]
        texts.append(replace(told[first], frame=frame, pieces=4 + number))
    for line in [*texts, *told[after:]]:
        text = json.dumps(line.frame)
        for there, here in (("local-conv-26", "local-conv-27"), ("local-run-4", "local-run-5"), ("cm-rc-1", "cm-rd-1")):
            text = text.replace(there, here)
        yield line.with_frame(json.loads(text))


def listed(lines: list[Line]) -> list[Line]:
    said = lines[_index(lines, lambda line: line.connection == "A2" and is_frame(line, "assistant_message"))].frame[
        "delta"
    ]

    def edit(frame: Frame) -> None:
        said_last, asked = frame["messages"]
        said_last |= {"id": said["id"], "run_id": said["run_id"], "otid": said["otid"]}
        said_last["content"] = [{"type": "text", "text": "".join(SLOW_PIECES)}]
        asked["content"] = asked["content"][-1:]

    return each("conversation_messages_list_response", edit)(lines)


def one_id_per_message(lines: list[Line]) -> list[Line]:
    first: dict[str, str] = {}

    def edit(frame: Frame) -> None:
        delta = frame["delta"]
        delta["id"] = first.setdefault(delta["otid"], delta["id"])

    return both(each("assistant_message", edit), each("reasoning_message", edit))(lines)


def second_question_dropped(lines: list[Line]) -> list[Line]:
    first = _index(lines, lambda line: line.connection == "B" and is_frame(line, "control_request"))
    second = _index(lines, lambda line: line.connection == "B" and is_frame(line, "control_request"), first + 1)
    return [*lines[:second], *lines[second + 1 :]]
