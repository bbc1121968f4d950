"""The work around programs in a box that want out: ask the person while a turn works there, keep what they allow.

The machine of the turn does not see these questions: the call that wants out goes on waiting, and so does nothing else.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from lodger_daemon.identity import AgentId, CallKey, QuestionId, ToolCallId
from lodger_daemon.turns.contract import Allow, Answer
from lodger_daemon.turns.core.events import (
    DeviceStateChanged,
    LoopStatus,
    LoopStatusChanged,
    PermissionSuggestion,
    QuestionAsked,
    StatusNote,
)
from lodger_daemon.turns.desk import Desk, TurnWork
from lodger_daemon.turns.question_work import withdraw_questions
from lodger_daemon.turns.services import finish_regardless
from lodger_tools.box.contract import BoxKey
from lodger_tools.json_value import JsonObject

HOSTS_TOOL: Final = "NetworkAccess"
"""What a question about hosts names in place of a tool, so that every client can show and answer it."""
ID_PREFIX: Final = "net-"
LIMIT_S: Final = 29.0
"""A connection waits 30 s in the broker, and one of them goes by before the question is asked."""
_REASON: Final = (
    "A program in the box wants to reach {hosts}, which the list of allowed hosts does not name. What you allow holds "
    "for 10 minutes."
)


class NetworkAsker:
    """Implements `HostAsker` on the conversations in use."""

    def __init__(self, desks_of: Callable[[AgentId], Iterable[Desk]]) -> None:
        self._desks_of = desks_of

    def can_ask(self, box: BoxKey) -> bool:
        return self._desk(box) is not None

    async def ask_about_hosts(self, box: BoxKey, hosts: Sequence[str]) -> frozenset[str] | None:
        desk = self._desk(box)
        return None if desk is None else await ask(desk, tuple(hosts))

    def _desk(self, box: BoxKey) -> Desk | None:
        """Of the conversation that works in this box. Where several share it, nothing tells whose program it is; then
        the first is asked, and so it is when a call was let into a folder of its own."""
        able = [desk for desk in self._desks_of(AgentId(box.agent_id)) if _can_ask(desk)]
        there = [desk for desk in able if desk.work is not None and desk.work.place.box == box]
        return next(iter(there or able), None)


def answered(desk: Desk, question_id: QuestionId, answer: Answer) -> None:
    """The person's answer to a question about hosts is on paper."""
    if not desk.tell_asker(question_id, answer):
        desk.early_answers[question_id] = answer


def _can_ask(desk: Desk) -> bool:
    work = desk.work
    return work is not None and not desk.stopping and work.used_box and work.settings.can_answer_questions


async def ask(desk: Desk, hosts: tuple[str, ...]) -> frozenset[str] | None:
    """Those that a person allows; None when nobody answered. The same question that an earlier daemon asked is shown
    again, and its answer holds."""
    work = desk.work
    if work is None or work.run_id is None:
        return None
    given = _answered_early(desk, work, hosts)
    if given is None:
        asked = await _stored(desk, work, hosts)
        given = await _shown(desk, asked)
    if given is None:
        return None
    allowed = _allowed(given, hosts)
    if isinstance(given, Allow) and given.suggestion_ids:
        wanted = tuple(host for host in hosts if host in allowed and _suggestion_id(host) in given.suggestion_ids)
        # The broker ends its asking as soon as it hears of the new list, which must not cut this short.
        await finish_regardless(_add(desk, wanted))
    return allowed


async def _stored(desk: Desk, work: TurnWork, hosts: tuple[str, ...]) -> QuestionAsked:
    assert work.run_id is not None
    about = _input(hosts)
    for left in desk.services.questions.pending(desk.key):
        if left.tool_name == HOSTS_TOOL and left.input == about and left.question_id not in desk.askers:
            return left
    name = f"{ID_PREFIX}{desk.services.rng.uuid()}"
    allowed_hosts = desk.services.hosts
    suggestions = hosts if allowed_hosts is not None and allowed_hosts.may_grow else ()
    question = QuestionAsked(
        QuestionId(name),
        work.run_id,
        ToolCallId(name),
        HOSTS_TOOL,
        about,
        tuple(PermissionSuggestion(_suggestion_id(host), f"Always let boxes reach {host}") for host in suggestions),
        reason=_REASON.format(hosts=" and ".join(hosts)),
    )
    return await finish_regardless(desk.services.questions.ask(desk.key, question, about, limit_s=LIMIT_S))


async def _shown(desk: Desk, asked: QuestionAsked) -> Answer | None:
    answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
    desk.askers[asked.question_id] = answer
    desk.questions[asked.question_id] = asked
    desk.questions_changed()
    before = desk.loop_status
    desk.publish(asked)
    if before.status is LoopStatus.EXECUTING_CLIENT_SIDE_TOOL:
        desk.publish(LoopStatusChanged(LoopStatus.WAITING_ON_APPROVAL, before.run_id))
    desk.publish(DeviceStateChanged())
    try:
        return await answer
    except asyncio.CancelledError:
        if not desk.stopping:
            await withdraw_questions(desk, frozenset({asked.question_id}))
        raise
    finally:
        desk.askers.pop(asked.question_id, None)
        if not desk.stopping:
            _show_the_rest(desk, before)


def _show_the_rest(desk: Desk, before: LoopStatusChanged) -> None:
    """What went on meanwhile goes on, unless another question is on screen or the turn has moved on."""
    if (
        desk.work is not None
        and not desk.questions
        and desk.loop_status.status is LoopStatus.WAITING_ON_APPROVAL
        and before.status is LoopStatus.EXECUTING_CLIENT_SIDE_TOOL
    ):
        desk.publish(LoopStatusChanged(before.status, before.run_id, before.executing))
    desk.publish(DeviceStateChanged())


def _answered_early(desk: Desk, work: TurnWork, hosts: tuple[str, ...]) -> Answer | None:
    """The person's answer, from a screen of before a restart, was quicker than the broker's asking again."""
    assert work.run_id is not None
    for question_id in tuple(desk.early_answers):
        call = CallKey(desk.key, work.run_id, ToolCallId(question_id))
        question = desk.services.questions.latest(call)
        if question is None:
            del desk.early_answers[question_id]
        elif question.asked.tool_name == HOSTS_TOOL and question.arguments == _input(hosts):
            return desk.early_answers.pop(question_id)
    return None


async def _add(desk: Desk, hosts: tuple[str, ...]) -> None:
    allowed_hosts = desk.services.hosts
    if allowed_hosts is None or not hosts:
        return
    try:
        await allowed_hosts.add(hosts)
    except Exception as error:  # noqa: BLE001 - said just below
        # Whatever keeps the list from growing, the answer that wanted it still holds.
        desk.publish(StatusNote(f"The list of allowed hosts could not be changed: {error}", "warning"))
        return
    for host in hosts:
        await desk.services.questions.rule_saved(desk.key, f"{HOSTS_TOOL}({host})")


def _allowed(given: Answer, hosts: tuple[str, ...]) -> frozenset[str]:
    """A person may take hosts out of the question, and put none in."""
    if not isinstance(given, Allow):
        return frozenset()
    if given.updated_input is None:
        return frozenset(hosts)
    kept = given.updated_input.get("hosts")
    return frozenset(host for host in hosts if isinstance(kept, list) and host in kept)


def _input(hosts: tuple[str, ...]) -> JsonObject:
    return {"hosts": [*hosts]}


def _suggestion_id(host: str) -> str:
    return f"always-{host}"
