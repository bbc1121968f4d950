"""The work around a verdict: what the rules are told of a call, and what comes of their word."""

from dataclasses import replace

from lodger_daemon.identity import CallKey, QuestionId, RunId, ToolCallId
from lodger_daemon.store.question_rows import StoredQuestion
from lodger_daemon.turns.call_place import arguments_to_run, place_of_call
from lodger_daemon.turns.contract import Allow, Answer, Deny
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.call_phases import question_id_of
from lodger_daemon.turns.core.calls import Call, CallProgress, MustAsk
from lodger_daemon.turns.core.events import DeviceStateChanged
from lodger_daemon.turns.desk import Desk, TurnWork
from lodger_daemon.turns.judging import as_progress
from lodger_daemon.turns.question_work import progress_of_question, withdraw_questions
from lodger_daemon.turns.side_questions import is_beside
from lodger_daemon.turns.step_work import check_input, is_external
from lodger_tools.box.contract import PinnedFile
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.verdicts import CallToJudge, Denied, Verdict
from lodger_tools.toolbox_contract import ToolRequest


async def judge_calls(desk: Desk, action: do.JudgeCalls) -> None:
    work = desk.work_of(action.lease)
    progress: dict[ToolCallId, CallProgress] = {}
    for call in action.calls:
        assert call.arguments is not None
        request = tool_request(desk, work, action.batch.run_id, call.tool_call_id, call.tool_name, call.arguments)
        verdict = await judge_now(desk, work, call.arguments, request)
        desk.work_of(action.lease)
        judged = as_progress(verdict, call.arguments)
        progress[call.tool_call_id] = await _settled_otherwise(desk, action, call, judged)
        desk.work_of(action.lease)
    desk.feed(told.CallsJudged(action.lease, progress))


async def judge_now(desk: Desk, work: TurnWork, arguments: JsonObject, request: ToolRequest) -> Verdict:
    """What the rules say of these arguments now, with the links in a path followed where a rule looks at paths."""
    judge = desk.services.judge
    to_judge = call_to_judge(desk, work, request.tool_name, arguments)
    if judge.looks_at_paths(request.tool_name):
        to_judge = replace(to_judge, real_path=await desk.services.toolbox.real_path(request))
    return judge.judge(to_judge, desk.live.mode(desk.services.options))


async def look_at_answer(
    desk: Desk, question: StoredQuestion, answer: Answer
) -> tuple[Answer, tuple[PinnedFile, ...] | None]:
    """What becomes of an answer that changes the input, and the files that input would run.

    A person may allow what the rules would ask about, but not what they deny or no tool can use.
    """
    work = desk.work
    if is_beside(question.asked.question_id):
        return answer, None
    if not isinstance(answer, Allow) or answer.updated_input is None or work is None:
        return answer, None
    asked = question.asked
    checked = check_input(desk, asked.tool_name, answer.updated_input)
    if isinstance(checked, str):
        return Deny(checked), None
    request = tool_request(desk, work, asked.run_id, asked.tool_call_id, asked.tool_name, checked)
    verdict = await judge_now(desk, work, checked, request)
    if isinstance(verdict, Denied):
        return Deny(verdict.reason), None
    pinned = () if is_external(desk, asked.tool_name) else await desk.services.toolbox.pin(request)
    return replace(answer, updated_input=checked), pinned


def call_to_judge(desk: Desk, work: TurnWork, tool_name: str, arguments: JsonObject) -> CallToJudge:
    return CallToJudge(
        tool_name=tool_name,
        arguments=arguments,
        cwd=work.place.cwd,
        workspace=work.place.box.workspace,
        memory_directory=desk.services.memory_directory(desk.key.agent_id),
    )


def tool_request(
    desk: Desk, work: TurnWork, run_id: RunId, tool_call_id: ToolCallId, tool_name: str, arguments: JsonObject
) -> ToolRequest:
    key, home = desk.key, desk.services.options.home
    judged = call_to_judge(desk, work, tool_name, arguments)
    place = place_of_call(work.place, judged, home)
    return ToolRequest(
        call_key=str(CallKey(key, run_id, tool_call_id)),
        tool_name=tool_name,
        arguments=arguments_to_run(judged, home),
        box=place.box,
        cwd=place.cwd,
        environment={
            "AGENT_ID": key.agent_id,
            "CONVERSATION_ID": key.conversation_id,
            "MEMORY_DIR": desk.services.memory_directory(key.agent_id),
        },
    )


def _was_left_open(desk: Desk, question_id: QuestionId) -> bool:
    """Whether an earlier daemon asked, and wider rules or a wider mode have made an answer needless since. A turn
    cannot end while a question of its conversation is open."""
    book = desk.services.questions
    return book.count() > 0 and book.open_question(desk.key, question_id) is not None


async def _settled_otherwise(desk: Desk, action: do.JudgeCalls, call: Call, judged: CallProgress) -> CallProgress:
    """The verdict; but when a rule takes the place of an open question and a person was quicker, their word."""
    if isinstance(judged, MustAsk):
        return judged
    question_id = question_id_of(call.tool_call_id)
    if not isinstance(call.progress, MustAsk) and not _was_left_open(desk, question_id):
        return judged
    if question_id in await withdraw_questions(desk, frozenset({question_id})):
        desk.publish(DeviceStateChanged())
        return judged
    question = desk.services.questions.latest(CallKey(desk.key, action.batch.run_id, call.tool_call_id))
    return (progress_of_question(question) if question is not None else None) or judged
