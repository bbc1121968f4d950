"""Driving the turn machine, and what it is told most often."""

from lodger_daemon.identity import MessageId, RunId, ToolCallId, TurnId
from lodger_daemon.models.contract import FinishReason
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Batch, Call, MustAsk, Permitted
from lodger_daemon.turns.core.machine import advance
from lodger_daemon.turns.core.machine_events import MachineEvent
from lodger_daemon.turns.core.states import (
    Active,
    Idle,
    Lease,
    State,
)
from lodger_tools.permissions.core.verdicts import Suggestion
from lodger_tools.toolbox_contract import Scheduling

LEASE = Lease(1)
RUN = RunId("run-1")
TURN = TurnId("turn-1")


class Machine:
    """Drives `advance` and keeps what it asked for."""

    def __init__(self) -> None:
        self.state: State = Idle()
        self.actions: list[do.Action] = []

    def tell(self, *events: MachineEvent) -> list[do.Action]:
        """The actions of the last of these events."""
        last: tuple[do.Action, ...] = ()
        for event in events:
            self.state, last = advance(self.state, event)
            self.actions.extend(last)
        return list(last)

    def published(self) -> list[object]:
        return [action.event for action in self.actions if isinstance(action, do.Publish)]

    def performed(self, kind: type) -> list[object]:
        return [action for action in self.actions if isinstance(action, kind)]

    @property
    def phase(self) -> object:
        assert isinstance(self.state, Active)
        return self.state.phase


def call(name: str, scheduling: Scheduling = Scheduling.BARRIER) -> Call:
    return Call(ToolCallId(name), "Bash", "{}", {"command": name}, scheduling)


def batch(*calls: Call) -> Batch:
    return Batch(RUN, MessageId("message-1"), calls)


def started(max_steps: int = 200) -> Machine:
    machine = Machine()
    machine.tell(told.InputWaits(LEASE, TURN, True, max_steps), told.Prepared(LEASE, RUN, can_ask=True))
    return machine


def completed(
    finish: FinishReason = FinishReason.STOP, calls: Batch | None = None, empty: bool = False
) -> MachineEvent:
    return told.StepCompleted(LEASE, RUN, finish, calls, empty)


def calling(*calls: Call, max_steps: int = 200) -> Machine:
    """A machine that waits for the verdicts on these calls."""
    machine = started(max_steps)
    machine.tell(
        told.StepAdmitted(LEASE, RUN),
        completed(FinishReason.TOOL_CALLS, batch(*calls)),
        told.StepRecorded(LEASE, RUN),
    )
    return machine


def allowed(*calls: Call) -> MachineEvent:
    return told.CallsJudged(LEASE, {c.tool_call_id: Permitted(c.arguments or {}) for c in calls})


def asked(*calls: Call) -> MachineEvent:
    suggestion = Suggestion("save-default", "Bash", "Bash")
    return told.CallsJudged(LEASE, {c.tool_call_id: MustAsk("leaves the box", (suggestion,)) for c in calls})


def running(actions: list[do.Action]) -> list[str]:
    return [action.call.tool_call_id for action in actions if isinstance(action, do.RunCall)]
