"""The work around programs in a box that want out: ask the person while a turn works there, keep what they allow."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from lodger_daemon.identity import AgentId
from lodger_daemon.network.contract import WorkInBox
from lodger_daemon.turns.contract import Allow, Answer
from lodger_daemon.turns.core.events import PermissionSuggestion, StatusNote
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_daemon.turns.desk import Desk
from lodger_daemon.turns.services import finish_regardless
from lodger_daemon.turns.side_questions import SideQuestion, ask, desk_for
from lodger_tools.box.contract import BoxKey
from lodger_tools.json_value import JsonObject

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
        return desk_for(box, self._desks_of(AgentId(box.agent_id))) is not None

    def work_in(self, box: BoxKey) -> tuple[WorkInBox, ...]:
        """The turns that work in a box now; for the audit log."""
        return tuple(filter(None, (_work_of(desk, box) for desk in self._desks_of(AgentId(box.agent_id)))))

    async def ask_about_hosts(self, box: BoxKey, hosts: Sequence[str]) -> frozenset[str] | None:
        desk = desk_for(box, self._desks_of(AgentId(box.agent_id)))
        return None if desk is None else await _ask(desk, tuple(hosts))


def _work_of(desk: Desk, box: BoxKey) -> WorkInBox | None:
    work = desk.work
    if work is None:
        return None
    calls = tuple(call for call, where in work.boxes.items() if where == box)
    if not calls and not (work.used_box and work.place.box == box):
        return None
    return WorkInBox(desk.key, work.turn_id, work.run_id, calls)


async def _ask(desk: Desk, hosts: tuple[str, ...]) -> frozenset[str] | None:
    """Those that a person allows; None when nobody answered."""
    given = await ask(desk, _question(desk, hosts))
    if given is None:
        return None
    allowed = _allowed(given, hosts)
    if isinstance(given, Allow) and given.suggestion_ids:
        wanted = tuple(host for host in hosts if host in allowed and _suggestion_id(host) in given.suggestion_ids)
        # The broker ends its asking as soon as it hears of the new list, which must not cut this short.
        await finish_regardless(_add(desk, wanted))
    return allowed


def _question(desk: Desk, hosts: tuple[str, ...]) -> SideQuestion:
    allowed_hosts = desk.services.hosts
    suggestions = hosts if allowed_hosts is not None and allowed_hosts.may_grow else ()
    return SideQuestion(
        OwnQuestion.HOSTS,
        _input(hosts),
        _REASON.format(hosts=" and ".join(hosts)),
        LIMIT_S,
        tuple(PermissionSuggestion(_suggestion_id(host), f"Always let boxes reach {host}") for host in suggestions),
    )


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
        await desk.services.questions.rule_saved(desk.key, f"{OwnQuestion.HOSTS}({host})")


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
