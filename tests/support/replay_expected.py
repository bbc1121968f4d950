"""Where Lodger answers otherwise than the recordings, and why: each change here stands in docs/compatibility.md.

A difference rewrites the recording into what is expected of Lodger. One that changes nothing in a recording it names is
out of date, and the test says so.
"""

from dataclasses import dataclass

from support.replay_changes import (
    Change,
    agent,
    answer_first,
    both,
    command_shown_once,
    comment_for_all,
    drop,
    each,
    folded_in,
    folder_error,
    info,
    input_gets_an_id,
    is_frame,
    is_model_error,
    joined,
    listed,
    malformed_is_answered,
    mode,
    model,
    nothing_is_refused,
    one_id_per_message,
    own_tool_words,
    pending,
    pending_path,
    plain_error,
    question,
    refused_by_model,
    resent_runs_nothing,
    second_question_dropped,
    started_after_abort,
    turn_goes_on,
    unknown_tool,
    whole_path,
    without_third_run,
)
from support.replay_cleaned import clean
from support.replay_recording import Line

RECORDINGS = (
    "01",
    "02",
    "03",
    "05",
    "06",
    "07",
    "08",
    "09",
    "10",
    "14",
    "18",
    "22",
    "23",
    "24",
    "25",
    "26",
    "27",
    "29",
    "30",
    "31",
)
CONTAINED = ("31",)
"""Played without the setting that asks for every command: acceptEdits runs a command there."""
PRELUDES = {"10": "01"}
"""10 looks at the conversation that 01 left."""

FLOATING = ("Approval request is no longer pending",)
"""Refusals that answer a client while a turn runs: when they come among its events is chance in both programs."""


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


ALL_STARTED = tuple(name for name in RECORDINGS if name != "10")
TALKING = tuple(name for name in RECORDINGS if name not in ("10", "14", "22"))
ASKING = ("02", "03", "07", "24", "27", "29", "30", "31")

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "turn-outlives-clients",
        "A turn whose last client leaves goes on to its end (ARCHITECTURE.md section 10, point 8).",
        ("26",),
        turn_goes_on,
    ),
    Difference(
        "message-ids",
        "All fragments of a message bear its one id, under which it is also stored; the recorded server gives each "
        "fragment an id of its own.",
        TALKING,
        one_id_per_message,
    ),
    Difference(
        "capabilities",
        "A workspace sandbox chosen by the client is not served yet, so it is not announced; `lodger` names what "
        "Lodger can do beyond the protocol.",
        ("01", "24"),
        each("app_server_info_response", info),
    ),
    Difference(
        "agent-record",
        "An agent also has its times of creation and change; the address of its model is not told.",
        ALL_STARTED,
        each("runtime_start_response", agent),
    ),
    Difference(
        "model-figures",
        "The recorded server had just been restarted and did not know its model; Lodger's settings name it.",
        ("24", "29"),
        each("runtime_start_response", model),
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
        both(each("control_request", lambda frame: question(frame["request"])), each("update_device_status", pending)),
    ),
    Difference(
        "resent-input",
        "A client message id that was accepted once never runs again, also after its turn has ended.",
        ("01",),
        resent_runs_nothing,
    ),
    Difference(
        "resent-input-later",
        "So the conversation that 01 leaves has two runs and not three.",
        ("10",),
        each("update_loop_status", without_third_run),
    ),
    Difference(
        "answer-acknowledged-first",
        "An answer is acknowledged before its effect is shown, denied or allowed; the recorded server does so for "
        "allowed ones only.",
        ("03", "30"),
        answer_first,
    ),
    Difference(
        "approval-comment",
        "What a person says as they allow a call stands in the call's result, for the model and for clients; the "
        "recorded server tells the model alone.",
        ("30",),
        comment_for_all,
    ),
    Difference(
        "tool-words",
        "The words of a tool's result are Lodger's own.",
        ("31",),
        own_tool_words,
    ),
    Difference(
        "command-shown-once",
        "That a command is at work is shown once.",
        ("14",),
        command_shown_once,
    ),
    Difference(
        "missing-folder",
        "A working folder that does not exist is told as an error, as one that is a file is; a device status with the "
        "folder that holds follows, so a client can roll back.",
        ("14",),
        folder_error,
    ),
    Difference(
        "unknown-tool",
        "A call of a tool that is not there is refused before anything starts, so no start of it is shown.",
        ("18",),
        unknown_tool,
    ),
    Difference(
        "preview-path",
        "The preview of a write names the whole path and not the file alone.",
        ("31",),
        both(
            each("control_request", lambda frame: whole_path(frame["request"])),
            each("update_device_status", pending_path),
        ),
    ),
    Difference(
        "no-file-ops",
        "`file_ops` is not sent yet when a tool writes a file.",
        ("31",),
        drop(lambda line: is_frame(line, "file_ops")),
    ),
    Difference(
        "input-without-id",
        "An input without a client message id gets one, so that its run can be told apart.",
        ("23",),
        input_gets_an_id,
    ),
    Difference(
        "folded-in-before-sending",
        "Input that is folded into a running turn leaves the queue before the request goes out, and the new step's "
        "stream is not shown under the run before it.",
        ("29",),
        folded_in,
    ),
    Difference(
        "joined-input",
        "Messages that became one name all of them, so that a client that has shown each can take the others away.",
        ("09",),
        each("user_message", joined),
    ),
    Difference(
        "started-after-abort",
        "The interrupted results are in the transcript when an abort has ended, so the next message starts its turn "
        "and need not queue.",
        ("06", "07"),
        started_after_abort,
    ),
    Difference(
        "default-mode",
        "The mode of a conversation for which nobody chose one is `standard` (ARCHITECTURE.md section 3).",
        ("10", "22"),
        each("update_device_status", mode, lambda frame: frame["runtime"]["conversation_id"] in ("default", "zzz")),
    ),
    Difference(
        "refused-without-stream",
        "A model that refuses the request opens no stream, so none is announced.",
        ("22",),
        drop(refused_by_model),
    ),
    Difference(
        "error-words",
        "A model's error is told in its own words with its status, not wrapped in JSON; `api_error` would repeat the "
        "`error_message` beside it.",
        ("22",),
        both(
            each("loop_error", plain_error, is_model_error),
            each("error_message", plain_error, is_model_error),
            each("turn_finished", plain_error, is_model_error),
        ),
    ),
    Difference(
        "unserved-answered",
        "A known command that is malformed or not served is answered with its failed response, never with silence.",
        ("22",),
        malformed_is_answered,
    ),
    Difference(
        "empty-input",
        "An input without a message is refused: it would start a turn about nothing.",
        ("22",),
        nothing_is_refused,
    ),
    Difference(
        "listed-messages",
        "A listed message has the id under which it was streamed, its run and its `otid`; reminders are not listed, "
        "for they were said to the model and not by the person.",
        ("26",),
        listed,
    ),
    Difference(
        "question-once",
        "A client that syncs while a question is open is shown it once, not twice.",
        ("27",),
        second_question_dropped,
    ),
)
