"""The work around programs in a box that want out: ask the person while a turn works there, keep what they allow."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from lodger_daemon.identity import AgentId
from lodger_daemon.network.contract import WorkInBox
from lodger_daemon.turns import picking
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_daemon.turns.desk import Desk
from lodger_daemon.turns.side_questions import SideQuestion, ask, desk_for, tell_last
from lodger_tools.box.contract import BoxKey

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

    def tell(self, box: BoxKey, text: str) -> bool:
        desks = tuple(self._desks_of(AgentId(box.agent_id)))
        if any(_work_of(desk, box) is not None for desk in desks):
            return False
        return tell_last(box, desks, text)

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
    allowed = picking.allowed(given, hosts, "hosts")
    if allowed_hosts := desk.services.hosts:
        # The broker ends its asking as soon as it hears of the new list, which must not cut this short.
        await picking.keep_for_always(
            desk,
            given,
            [host for host in hosts if host in allowed],
            allowed_hosts.add,
            lambda host: f"{OwnQuestion.HOSTS}({host})",
            "allowed hosts",
        )
    return allowed


def _question(desk: Desk, hosts: tuple[str, ...]) -> SideQuestion:
    allowed_hosts = desk.services.hosts
    always = hosts if allowed_hosts is not None and allowed_hosts.may_grow else ()
    return SideQuestion(
        OwnQuestion.HOSTS,
        {"hosts": [*hosts]},
        _REASON.format(hosts=" and ".join(hosts)),
        LIMIT_S,
        picking.suggestions(always, lambda host: f"Always let boxes reach {host}"),
    )
