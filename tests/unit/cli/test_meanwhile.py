"""Which turns a waiting `lodger ask` tells of: those about ended work, while other work of its own still runs."""

from lodger_cli.meanwhile import Meanwhile
from lodger_cli.turn import TurnResult
from lodger_cli.wire import Frame

RUNTIME: Frame = {"agent_id": "agent-1", "conversation_id": "default"}


def works(*ids: str) -> Frame:
    processes = [{"process_id": one, "kind": "bash"} for one in ids]
    return {"type": "update_device_status", "device_status": {"background_processes": processes}}


def queued(message: str, kind: str) -> Frame:
    return {"type": "update_queue", "queue": [{"client_message_id": message, "kind": kind}]}


def turn(message: str, text: str, stop_reason: str = "end_turn") -> list[Frame]:
    run = f"run-of-{message}"
    return [
        {"type": "update_loop_status", "loop_status": {"client_message_ids_by_run_id": {run: [message]}}},
        {"type": "stream_delta", "delta": {"message_type": "assistant_message", "content": "wait"}},
        {"type": "stream_delta", "delta": {"message_type": "approval_request_message"}},
        {"type": "stream_delta", "delta": {"message_type": "assistant_message", "content": text}},
        {"type": "turn_finished", "run_id": run, "stop_reason": stop_reason, "error": None},
    ]


OWN = turn("cm-1", "started")
NOTICE = queued("notice-1", "task_notification")


def told(*frames: Frame, before: tuple[str, ...] = (), runtime: Frame | None = RUNTIME) -> list[TurnResult]:
    """Of what comes after the own turn, during which two commands began."""
    found: list[TurnResult] = []
    meanwhile = Meanwhile(RUNTIME, found.append)
    for frame in (works(*before), *OWN, works("a", "b", *before)):
        meanwhile.read({**frame, "runtime": RUNTIME})
    meanwhile.begin(frozenset(before))
    for frame in frames:
        meanwhile.read({**frame, "runtime": runtime})
    return found


def test_a_turn_about_ended_work_is_told_of_while_other_work_runs() -> None:
    assert told(works("b"), NOTICE, *turn("notice-1", "a is done")) == [TurnResult("end_turn", "a is done")]
    failed = TurnResult("llm_api_error", "a is")
    assert told(works("b"), NOTICE, *turn("notice-1", "a is", "llm_api_error")) == [failed]


def test_what_is_said_about_the_last_of_it_is_not() -> None:
    assert told(works("b"), works(), NOTICE, *turn("notice-1", "all is done")) == []
    assert told(works("old"), NOTICE, *turn("notice-1", "all is done"), before=("old",)) == []


def test_what_somebody_else_asked_meanwhile_is_not() -> None:
    assert told(works("b"), queued("cm-2", "message"), *turn("cm-2", "an answer for a phone")) == []
    elsewhere = {**RUNTIME, "conversation_id": "other"}
    assert told(works("b"), NOTICE, *turn("notice-1", "of another conversation"), runtime=elsewhere) == []


def test_a_turn_that_ends_before_the_own_one_is_not() -> None:
    found: list[TurnResult] = []
    meanwhile = Meanwhile(RUNTIME, found.append)
    for frame in (works("b"), NOTICE, *turn("notice-1", "a is done"), *OWN):
        meanwhile.read(frame)
    assert found == []
