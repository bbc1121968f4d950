"""Where Lodger answers otherwise than the recordings, and why: each change here stands in docs/compatibility.md.

A difference rewrites the recording into what is expected of Lodger. One that changes nothing in a recording it names is
out of date, and the test says so.
"""

import copy
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from support.replay_model import SLOW_PIECES
from support.replay_normal import Cleaner, is_text, text_of
from support.replay_recording import Frame, Kind, Line, load

RECORDED_WORKSPACE = "/home/user/project"
RECORDINGS = ("01", "02", "03", "06", "07", "08", "09", "10", "22", "24", "25", "26", "27")
PRELUDES = {"10": "01"}
"""10 looks at the conversation that 01 left."""

FLOATING = ("Approval request is no longer pending",)
"""Refusals that answer a client while a turn runs: when they come among its events is chance in both programs."""

Change = Callable[[list[Line]], list[Line]]


@dataclass(frozen=True, slots=True)
class Difference:
    name: str
    reason: str
    """One sentence for people; the page has it word for word."""
    recordings: tuple[str, ...]
    change: Change

    def row(self) -> str:
        """Its line in the page's table."""
        return f"| `{self.name}` | {', '.join(self.recordings)} | {self.reason} |"


class OutOfDate(AssertionError):
    """A difference that is not there any more."""


def clean(name: str) -> list[Line]:
    """A recording with the frames of its server cleaned, and with the bytes it lacks."""
    cleaners: dict[str, Cleaner] = {}
    pieces: dict[str, int] = {}
    lines: list[Line] = []
    for line in load(name).lines:
        if line.kind is Kind.RECEIVED:
            cleaner = cleaners.setdefault(line.connection, Cleaner(RECORDED_WORKSPACE))
            frame = cleaner.take(line.frame)
            lines.append(replace(line, frame=frame, pieces=_pieces_said(frame, pieces)))
            continue
        if line.kind is Kind.SENT and line.frame["type"] == "no_such_command":
            lines += [Line(line.connection, Kind.RAW, {}, raw) for raw in ("not JSON", "[1, 2]", "{", '"text"')]
        lines.append(line)
    return lines


def _pieces_said(frame: Frame, pieces: dict[str, int]) -> int:
    """Every subscriber is told the same pieces: the recorded server's name of a piece tells which one it is."""
    if not is_text(frame) or text_of(frame) not in SLOW_PIECES:
        return 0
    return pieces.setdefault(frame["delta"]["id"], len(pieces) + 1)


def expected(name: str) -> list[Line]:
    """A recording as Lodger is expected to play it."""
    lines = clean(name)
    for difference in DIFFERENCES:
        if name not in difference.recordings:
            continue
        changed = difference.change(lines)
        if changed == lines:
            raise OutOfDate(f"{difference.name} changes nothing in {name}")
        lines = changed
    return lines


# -- ways to change lines --


def each(frame_type: str, edit: Callable[[Frame], None], where: Callable[[Frame], bool] = lambda _: True) -> Change:
    """Edit the server's frames of one type; deltas are named by their message type."""

    def change(lines: list[Line]) -> list[Line]:
        return [_edited(line, edit) if _is(line, frame_type) and where(line.frame) else line for line in lines]

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


def _is(line: Line, frame_type: str) -> bool:
    if line.kind is not Kind.RECEIVED:
        return False
    return line.frame["type"] == frame_type or line.frame.get("delta", {}).get("message_type") == frame_type


def _index(lines: list[Line], wanted: Callable[[Line], bool], start: int = 0) -> int:
    return next(index for index in range(start, len(lines)) if wanted(lines[index]))


def _status(line: Line) -> str:
    return str(line.frame["loop_status"]["status"]) if _is(line, "update_loop_status") else ""


# -- what each difference does --


def _info(frame: Frame) -> None:
    frame["capabilities"] |= {"memory_management": False, "runtime_workspace_sandbox": False}
    frame["lodger"] = {
        "version": "<version>",
        "capabilities": ["resume", "batch_deltas", "receipts", "questions"],
    }


def _agent(frame: Frame) -> None:
    if frame["agent"] is not None:
        frame["agent"] |= {"created_at": "<time>", "updated_at": "<time>"}
        frame["agent"]["llm_config"]["model_endpoint"] = None


def _model(frame: Frame) -> None:
    name = frame["agent"]["model"]
    provider, _, model = name.partition("/")
    frame["agent"]["model_settings"] = {
        "provider_type": provider,
        "context_window_limit": "<context_window_limit>",
        "max_tokens": "<max_tokens>",
    }
    frame["agent"]["llm_config"] |= {"model": model, "model_endpoint_type": provider, "max_tokens": "<max_tokens>"}


def _question(request: Frame) -> None:
    request |= {"reason": "every command is asked for on this machine", "expires_at": "<time>"}


def _pending(frame: Frame) -> None:
    for pending in frame["device_status"]["pending_control_requests"]:
        _question(pending["request"])


def _resent_runs_nothing(lines: list[Line]) -> list[Line]:
    """Nothing comes after the acknowledgement of the input that was sent again."""
    return lines[
        : _index(lines, lambda line: line.frame.get("request_id") == "input-4" and line.kind is Kind.RECEIVED) + 1
    ]


def _without_third_run(frame: Frame) -> None:
    frame["loop_status"].get("client_message_ids_by_run_id", {}).pop("local-run-3", None)


def _answer_first(lines: list[Line]) -> list[Line]:
    """The acknowledgement of an answer comes before what the answer sets going."""
    changed = list(lines)
    acknowledged = _index(lines, lambda line: _is(line, "input_accepted") and line.frame["request_id"] == "input-3")
    executing = _index(lines, lambda line: _status(line) == "EXECUTING_CLIENT_SIDE_TOOL")
    changed.insert(executing, changed.pop(acknowledged))
    return changed


def _started_after_abort(lines: list[Line]) -> list[Line]:
    """The message after an abort begins its turn as any other does."""
    sent = _index(lines, lambda line: line.kind is Kind.SENT and line.frame.get("request_id") == "input-4")
    finished = _index(lines, lambda line: _is(line, "turn_finished"), sent)

    def unwanted(index: int, line: Line) -> bool:
        between = sent < index < finished and _status(lines[index]) == "WAITING_ON_INPUT" and index < finished - 3
        after = index > finished and _status(line) == "WAITING_ON_INPUT"
        return index > sent and (_is(line, "update_queue") or _is(line, "user_message") or between or after)

    kept = [line for index, line in enumerate(lines) if not unwanted(index, line)]
    return each(
        "input_accepted",
        lambda frame: frame.update(disposition="started"),
        lambda frame: frame["request_id"] == "input-4",
    )(kept)


def _mode(frame: Frame) -> None:
    frame["device_status"]["current_permission_mode"] = "standard"


def _refused_by_model(line: Line) -> bool:
    return _status(line) == "PROCESSING_API_RESPONSE"


def _plain_error(frame: Frame) -> None:
    text = "HTTP 400: stub refused"
    match frame["type"]:
        case "turn_finished":
            frame["error"] = text
        case _:
            frame["delta"]["message"] = text
            frame["delta"].pop("api_error", None)
            if frame["delta"]["message_type"] == "error_message":
                frame["delta"] |= {"detail": text, "error_type": "bad_request"}


def _is_model_error(frame: Frame) -> bool:
    return "local_backend_error" in json.dumps(frame)


def _malformed_is_answered(lines: list[Line]) -> list[Line]:
    index = _index(lines, lambda line: line.kind is Kind.SENT and line.frame.get("request_id") == "x2")
    answer = {
        "type": "read_file_response",
        "request_id": "x2",
        "success": False,
        "content": None,
        "error": "This Lodger does not serve this command. (read_file)",
    }
    return [*lines[: index + 1], Line(lines[index].connection, Kind.RECEIVED, answer), *lines[index + 1 :]]


def _nothing_is_refused(lines: list[Line]) -> list[Line]:
    sent = _index(lines, lambda line: line.kind is Kind.SENT and line.frame.get("request_id") == "x6")
    end = _index(lines, lambda line: line.kind is Kind.SENT, sent + 1)
    refusal = copy.deepcopy(lines[sent + 1].frame)
    del refusal["disposition"]
    refusal |= {"accepted": False, "error": "An input needs at least one message."}
    return [*lines[: sent + 1], lines[sent + 1].with_frame(refusal), *lines[end:]]


def _turn_goes_on(lines: list[Line]) -> list[Line]:
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
    first = _index(told, lambda line: _is(line, "assistant_message"))
    after = _index(told, lambda line: _is(line, "usage_statistics"))
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


def _listed(lines: list[Line]) -> list[Line]:
    said = lines[_index(lines, lambda line: line.connection == "A2" and _is(line, "assistant_message"))].frame["delta"]

    def edit(frame: Frame) -> None:
        answer, question = frame["messages"]
        answer |= {"id": said["id"], "run_id": said["run_id"], "otid": said["otid"]}
        answer["content"] = [{"type": "text", "text": "".join(SLOW_PIECES)}]
        question["content"] = question["content"][-1:]

    return each("conversation_messages_list_response", edit)(lines)


def _one_id_per_message(lines: list[Line]) -> list[Line]:
    first: dict[str, str] = {}

    def edit(frame: Frame) -> None:
        delta = frame["delta"]
        delta["id"] = first.setdefault(delta["otid"], delta["id"])

    return both(each("assistant_message", edit), each("reasoning_message", edit))(lines)


def _second_question_dropped(lines: list[Line]) -> list[Line]:
    first = _index(lines, lambda line: line.connection == "B" and _is(line, "control_request"))
    second = _index(lines, lambda line: line.connection == "B" and _is(line, "control_request"), first + 1)
    return [*lines[:second], *lines[second + 1 :]]


ALL_STARTED = ("01", "02", "03", "06", "07", "08", "09", "22", "24", "25", "26", "27")
TALKING = tuple(name for name in RECORDINGS if name not in ("10", "22"))
ASKING = ("02", "03", "07", "24", "27")

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "turn-outlives-clients",
        "A turn whose last client leaves goes on to its end (ARCHITECTURE.md section 10, point 8).",
        ("26",),
        _turn_goes_on,
    ),
    Difference(
        "message-ids",
        "All fragments of a message bear its one id, under which it is also stored; the recorded server gives each "
        "fragment an id of its own.",
        TALKING,
        _one_id_per_message,
    ),
    Difference(
        "capabilities",
        "Commands for memory files and a workspace sandbox chosen by the client are not served yet, so they are not "
        "announced; `lodger` names what Lodger can do beyond the protocol.",
        ("01", "24"),
        each("app_server_info_response", _info),
    ),
    Difference(
        "agent-record",
        "An agent also has its times of creation and change; the address of its model is not told.",
        ALL_STARTED,
        each("runtime_start_response", _agent),
    ),
    Difference(
        "model-figures",
        "The recorded server had just been restarted and did not know its model; Lodger's settings name it.",
        ("24",),
        each("runtime_start_response", _model),
    ),
    Difference(
        "device-version",
        "The device status names Lodger's version in a field of its own; `letta_code_version` is null in both.",
        RECORDINGS,
        each("update_device_status", lambda frame: frame["device_status"].update(lodger_version="<lodger_version>")),
    ),
    Difference(
        "question-reason",
        "A question says why it is asked and when it is denied because nobody answered (ARCHITECTURE.md section 3).",
        ASKING,
        both(
            each("control_request", lambda frame: _question(frame["request"])), each("update_device_status", _pending)
        ),
    ),
    Difference(
        "resent-input",
        "A client message id that was accepted once never runs again, also after its turn has ended.",
        ("01",),
        _resent_runs_nothing,
    ),
    Difference(
        "resent-input-later",
        "So the conversation that 01 leaves has two runs and not three.",
        ("10",),
        each("update_loop_status", _without_third_run),
    ),
    Difference(
        "answer-acknowledged-first",
        "An answer is acknowledged before its effect is shown, denied or allowed; the recorded server does so for "
        "allowed ones only.",
        ("03",),
        _answer_first,
    ),
    Difference(
        "started-after-abort",
        "The interrupted results are in the transcript when an abort has ended, so the next message starts its turn "
        "and need not queue.",
        ("06", "07"),
        _started_after_abort,
    ),
    Difference(
        "default-mode",
        "The mode of a conversation for which nobody chose one is `standard` (ARCHITECTURE.md section 3).",
        ("10", "22"),
        each("update_device_status", _mode, lambda frame: frame["runtime"]["conversation_id"] in ("default", "zzz")),
    ),
    Difference(
        "refused-without-stream",
        "A model that refuses the request opens no stream, so none is announced.",
        ("22",),
        drop(_refused_by_model),
    ),
    Difference(
        "error-words",
        "A model's error is told in its own words with its status, not wrapped in JSON; `api_error` would repeat the "
        "`error_message` beside it.",
        ("22",),
        both(
            each("loop_error", _plain_error, _is_model_error),
            each("error_message", _plain_error, _is_model_error),
            each("turn_finished", _plain_error, _is_model_error),
        ),
    ),
    Difference(
        "unserved-answered",
        "A known command that is malformed or not served is answered with its failed response, never with silence.",
        ("22",),
        _malformed_is_answered,
    ),
    Difference(
        "empty-input",
        "An input without a message is refused: it would start a turn about nothing.",
        ("22",),
        _nothing_is_refused,
    ),
    Difference(
        "listed-messages",
        "A listed message has the id under which it was streamed, its run and its `otid`; reminders are not listed, "
        "for they were said to the model and not by the person.",
        ("26",),
        _listed,
    ),
    Difference(
        "question-once",
        "A client that syncs while a question is open is shown it once, not twice.",
        ("27",),
        _second_question_dropped,
    ),
)
