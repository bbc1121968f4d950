"""The work around programs in a box that listen: ask the person while a turn works there, keep what they allow."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from lodger_daemon.identity import AgentId
from lodger_daemon.ports.contract import PortRules
from lodger_daemon.questions.core.rules import DEFAULT_LIMIT_S
from lodger_daemon.turns import picking
from lodger_daemon.turns.core.events import StatusNote
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_daemon.turns.desk import Desk
from lodger_daemon.turns.side_questions import SideQuestion, ask, desk_for, tell_last
from lodger_tools.box.contract import BoxKey

_REASON: Final = (
    "A program in the box listens at port {ports}. Allowed, you reach it at 127.0.0.1 of this machine, and so do all "
    "its programs and users, until the box ends or you close it."
)


class PortsAsker:
    """Implements `PortAsker` on the conversations in use."""

    def __init__(self, desks_of: Callable[[AgentId], Iterable[Desk]]) -> None:
        self._desks_of = desks_of

    def can_ask(self, box: BoxKey) -> bool:
        return self._desk(box) is not None

    async def ask_about_ports(self, box: BoxKey, ports: Sequence[int], rules: PortRules) -> frozenset[int] | None:
        desk = self._desk(box)
        if desk is None:
            return None
        given = await ask(desk, _question(box, tuple(ports), rules))
        if given is None:
            return None
        allowed = picking.allowed(given, ports, "ports")
        await picking.keep_for_always(
            desk,
            given,
            [port for port in ports if port in allowed],
            lambda wanted: rules.add(box.workspace, wanted),
            lambda port: f"{OwnQuestion.PORTS}({port} in {box.workspace})",
            "open ports",
        )
        return allowed

    def tell(self, box: BoxKey, text: str) -> None:
        desks = tuple(self._desks_of(AgentId(box.agent_id)))
        there = [desk for desk in desks if not desk.stopping and desk.work is not None and desk.work.place.box == box]
        if there:
            there[0].publish(StatusNote(text, "info"))
        else:
            tell_last(box, desks, text)

    def _desk(self, box: BoxKey) -> Desk | None:
        return desk_for(box, self._desks_of(AgentId(box.agent_id)))


def _question(box: BoxKey, ports: tuple[int, ...], rules: PortRules) -> SideQuestion:
    return SideQuestion(
        OwnQuestion.PORTS,
        {"ports": [*ports], "workspace": box.workspace},
        _REASON.format(ports=" and ".join(map(str, ports))),
        DEFAULT_LIMIT_S,
        picking.suggestions(
            ports if rules.may_grow else (), lambda port: f"Always open port {port} of boxes in {box.workspace}"
        ),
    )
