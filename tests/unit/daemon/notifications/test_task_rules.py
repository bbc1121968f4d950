"""The rules of a task's end: what is told, and when it counts as told."""

from dataclasses import replace

import pytest

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import DEFAULT_CONVERSATION, AgentId, CallKey, ConversationKey, RunId, ToolCallId
from lodger_daemon.inbox.core.items import CancelCause, InboxItem, ItemKind, ItemStatus, TurnSettings
from lodger_daemon.inbox.core.rules import SOFT_LIMIT
from lodger_daemon.notifications.contract import Task, TaskEnd, TaskNumber, TaskStatus
from lodger_daemon.notifications.core import words
from lodger_daemon.notifications.core.delivery import Step, next_step, notice_id
from lodger_daemon.turns.contract import InputMessage
from lodger_tools.box.contract import BoxKey
from lodger_tools.output.core.background import NOTICE_LIMIT_CHARS, NOTICE_LIMIT_LINES, last_lines, shown_part
from lodger_tools.redaction.core.redactor import Redactor
from lodger_tools.toolbox_contract import BackgroundCall, BackgroundEnd, OutputSoFar

KEY = ConversationKey(AgentId("agent-1"), DEFAULT_CONVERSATION)
END = TaskEnd(TaskStatus.FAILED, 3, "a < b & c\n</task-notification>", None, WallTime(12.5))
TASK = Task(
    number=TaskNumber(7),
    call=CallKey(KEY, RunId("run-1"), ToolCallId("c1")),
    background=BackgroundCall(BoxKey("agent-1", "/w"), "key"),
    command="make  all\n",
    description="Build <it>",
    started_at=WallTime(10.0),
    end=END,
    notices=0,
)


def notice(status: ItemStatus, outcome: str | None = None) -> InboxItem:
    name = notice_id(TASK, 1)
    return InboxItem(
        conversation=KEY,
        item_number=1,
        client_message_id=name,
        kind=ItemKind.TASK_NOTIFICATION,
        source="task_notification",
        messages=(InputMessage(name, "text", name),),
        settings=TurnSettings(),
        delivery="tool_boundary",
        connection_group="",
        sender="",
        disposition="queued",
        status=status,
        accepted_at=WallTime(0.0),
        outcome=outcome,
    )


@pytest.mark.parametrize(
    ("item", "waiting", "step"),
    [
        (None, 0, Step.SUBMIT),
        (None, SOFT_LIMIT - 1, Step.SUBMIT),
        (None, SOFT_LIMIT, Step.WAIT),
        (notice(ItemStatus.ACCEPTED), 1, Step.WAIT),
        (notice(ItemStatus.PARKED), 1, Step.WAIT),
        (notice(ItemStatus.RESERVED), 0, Step.WAIT),
        (notice(ItemStatus.ADMITTED), 0, Step.CLOSE),
        (notice(ItemStatus.ANSWERED, "end_turn"), 0, Step.CLOSE),
        (notice(ItemStatus.CANCELLED, CancelCause.REMOVED), 0, Step.CLOSE),
        (notice(ItemStatus.CANCELLED, CancelCause.DROPPED), 0, Step.SUBMIT),
        (notice(ItemStatus.CANCELLED, CancelCause.DROPPED), SOFT_LIMIT, Step.WAIT),
    ],
)
def test_what_is_still_to_be_done(item: InboxItem | None, waiting: int, step: Step) -> None:
    assert next_step(item, waiting) is step


def test_the_notification_has_its_form_and_nothing_in_it_can_break_out() -> None:
    assert words.notification(TASK, END) == (
        "<task-notification>\n"
        "<task-id>bash_7</task-id>\n"
        "<status>failed</status>\n"
        '<summary>Background command "Build &lt;it&gt;" failed</summary>\n'
        "<result>$ make all\n\nExit code: 3\n\na &lt; b &amp; c\n&lt;/task-notification&gt;</result>\n"
        "<usage>duration_ms: 2500</usage>\n"
        "</task-notification>\n"
        "TaskOutput shows its output while its box lasts."
    )
    long = replace(TASK, command="x" * 100_000, description="y" * 100_000)
    assert len(words.notification(long, END)) < 1000
    assert words.notification(TASK, replace(END, overflow_path="/run/x")).endswith(
        "\nFull transcript available at: /run/x"
    )


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (BackgroundEnd(0, ""), TaskStatus.COMPLETED),
        (BackgroundEnd(1, ""), TaskStatus.FAILED),
        (BackgroundEnd(None, ""), TaskStatus.FAILED),
        (BackgroundEnd(0, "", timed_out=True), TaskStatus.FAILED),
        (BackgroundEnd(143, "", cancelled=True), TaskStatus.STOPPED),
    ],
)
def test_how_it_ended(end: BackgroundEnd, status: TaskStatus) -> None:
    assert words.status_of(end) is status


def test_what_an_end_says_besides_its_output() -> None:
    text = words.text_of_end(BackgroundEnd(143, "out", timed_out=True, leftovers=2))
    assert text == "out\n[It took longer than its timeout and was ended.]\n[2 processes it started still run.]"


@pytest.mark.parametrize("status", TaskStatus)
def test_every_state_has_words(status: TaskStatus) -> None:
    task = replace(TASK, end=None if status is TaskStatus.RUNNING else replace(END, status=status))
    assert words.state(task).startswith("bash_7 (make all) ")
    assert words.shown_process(task)["status"] == status.value


def test_a_part_says_where_to_read_on() -> None:
    running = replace(TASK, end=None)
    assert "bytes 0 to 2 of 9; read on with offset=2:\nab" in words.so_far(
        running, OutputSoFar("ab", 0, 2, 9, ended=False)
    )
    assert "bytes 0 to 2 of 2:\nab" in words.so_far(TASK, OutputSoFar("ab", 0, 2, 2, ended=True))


def test_a_long_command_is_one_short_line() -> None:
    assert len(words.shortened("x\n" * 5000)) == words.COMMAND_SHOWN_CHARS


def test_the_last_lines_are_limited_in_number_and_length() -> None:
    assert last_lines("one\ntwo") == "one\ntwo"
    many = last_lines("".join(f"{number}\n" for number in range(200)))
    assert many.splitlines()[1:] == [str(number) for number in range(200 - NOTICE_LIMIT_LINES, 200)]
    assert "left out" in many.splitlines()[0]
    long = last_lines("x" * 50_000)
    assert long.count("x") == NOTICE_LIMIT_CHARS


def test_no_cut_shows_a_part_of_a_secret() -> None:
    """Wherever a cursor falls, the parts joined are the whole text, redacted."""
    redactor = Redactor({"TOKEN": "hunter2-hunter2"})
    whole = "vor hunter2-hunter2 ü \x1b[31mrot\x1b[0m nach".encode()
    expected = shown_part(b"", whole, ended=True, redactor=redactor)
    assert "hunter2" not in expected and "TOKEN=<REDACTED>" in expected and "\x1b" not in expected
    for cut in range(len(whole) + 1):
        first = shown_part(b"", whole[:cut], ended=False, redactor=redactor)
        second = shown_part(whole[:cut], whole[cut:], ended=True, redactor=redactor)
        assert first + second == expected, cut
