"""Random walks: whatever comes, in whatever order and however often, the machine keeps its promises."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_daemon.identity import MessageId, QuestionId, RunId, ToolCallId, TurnId
from lodger_daemon.models.contract import FailureKind, FinishReason
from lodger_daemon.spend.contract import LimitReached, SpendScope, SpendUnit
from lodger_daemon.turns.contract import Allow, Deny
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core import spend_phase
from lodger_daemon.turns.core.calls import Batch, Call, CallProgress, MustAsk, Permitted, Refused
from lodger_daemon.turns.core.machine import advance
from lodger_daemon.turns.core.machine_events import MachineEvent
from lodger_daemon.turns.core.states import (
    Active,
    Asking,
    AskingAboutSpend,
    Cancelling,
    Compacting,
    Executing,
    Finishing,
    Idle,
    Judging,
    Lease,
    Preparing,
    Recording,
    RetryWait,
    SavingRule,
    State,
    Stepping,
)
from lodger_tools.toolbox_contract import Scheduling

LIMIT = LimitReached(SpendScope.DAY, SpendUnit.TOKENS, "2026-11-30", 12, 10, 22, "12 of 10 tokens")
CALL_IDS = ("c1", "c2", "c3")
VERDICTS: tuple[CallProgress, ...] = (Permitted({}), MustAsk("why"), Refused("no"))


def batch(run_id: RunId, shape: list[Scheduling]) -> Batch:
    calls = (Call(ToolCallId(CALL_IDS[i]), "Bash", "{}", {}, scheduling) for i, scheduling in enumerate(shape))
    return Batch(run_id, MessageId("m"), tuple(calls))


ODD = (
    *(
        "begin",
        "prepared",
        "nothing",
        "large",
        "admitted",
        "said",
        "called",
        "failed",
        "recorded",
        "waited",
        "compacted",
    ),
    *("judged", "answered", "lapsed", "saved", "ended", "broke", "closed", "unwound", "abort"),
    *("command", "command_ended", "spend", "about_spend"),
)
NATURAL: dict[type, tuple[str, ...]] = {
    Idle: ("begin",),
    Cancelling: ("unwound",),
    Preparing: ("prepared",),
    Stepping: ("called", "called", "said", "failed"),
    RetryWait: ("waited",),
    Compacting: ("compacted",),
    Recording: ("recorded",),
    Judging: ("judged",),
    Asking: ("answered", "answered", "lapsed"),
    AskingAboutSpend: ("about_spend",),
    SavingRule: ("saved", "answered"),
    Executing: ("ended",),
    Finishing: ("closed",),
}
KINDS = st.one_of(st.just("natural"), st.just("natural"), st.just("natural"), st.sampled_from(ODD))
WALKS = st.lists(st.tuples(KINDS, st.integers(0, 3), st.integers(0, 5)), max_size=60)


def natural(state: State, choice: int) -> str:
    """What would come next if all went its usual way."""
    kinds = NATURAL.get(type(state.phase) if isinstance(state, Active) else type(state), ("command_ended",))
    return kinds[choice % len(kinds)]


def event_for(kind: str, back: int, choice: int, state: State, leases: int, run_id: RunId) -> MachineEvent:
    """`back` 0 or 1 speaks for the present lease, more for an older one."""
    if kind == "natural":
        kind, back = natural(state, choice), 0
    lease = Lease(leases - 1 - max(0, back - 1))
    call_id = ToolCallId(CALL_IDS[choice % 3])
    verdicts = {ToolCallId(c): VERDICTS[(choice + i) % 3] for i, c in enumerate(CALL_IDS)}
    answers = (Allow(), Deny(""), Allow(suggestion_ids=("s",)), Allow(updated_input={"x": 1}))
    shape = [Scheduling.PARALLEL if (choice >> i) & 1 else Scheduling.BARRIER for i in range(1 + choice % 3)]
    match kind:
        case "begin":
            return told.InputWaits(Lease(leases), TurnId(f"turn-{leases}"), bool(choice % 2), 3)
        case "prepared":
            return told.Prepared(lease, run_id, bool(choice % 3), ask_together=choice > 3)
        case "nothing":
            return told.NothingWaits(lease)
        case "large":
            return told.TooLarge(lease, "no room")
        case "admitted":
            return told.StepAdmitted(lease, run_id)
        case "said":
            return told.StepCompleted(lease, run_id, FinishReason.STOP, None, choice % 2 == 0)
        case "called":
            return told.StepCompleted(lease, run_id, FinishReason.TOOL_CALLS, batch(run_id, shape), False)
        case "failed":
            return told.StepFailed(lease, run_id, list(FailureKind)[choice], "x", None, None, 0.5)
        case "recorded":
            return told.StepRecorded(lease, run_id)
        case "waited":
            return told.WaitEnded(lease)
        case "compacted":
            return told.Compacted(lease, bool(choice % 2))
        case "judged":
            known = state.phase.batch.calls if isinstance(state, Active) and hasattr(state.phase, "batch") else ()
            return told.CallsJudged(lease, {c.tool_call_id: verdicts[c.tool_call_id] for c in known})
        case "answered":
            return told.AnswerGiven(QuestionId(f"perm-{call_id}"), answers[choice % 4])
        case "lapsed":
            return told.QuestionLapsed(QuestionId(f"perm-{call_id}"))
        case "spend":
            return told.SpendStopped(lease, run_id, LIMIT, bool(choice % 3))
        case "about_spend":
            question_id = spend_phase.question_id_of(run_id, LIMIT)
            if isinstance(state, Active) and isinstance(state.phase, AskingAboutSpend) and choice % 5:
                question_id = state.phase.question_id
            return (
                told.AnswerGiven(question_id, answers[choice % 2]) if choice % 3 else told.QuestionLapsed(question_id)
            )
        case "saved":
            return told.RulesSaved(lease)
        case "ended":
            return told.CallEnded(lease, call_id)
        case "broke":
            return told.WorkFailed(lease, "broken")
        case "closed":
            return told.TurnClosed(lease)
        case "unwound":
            return told.Unwound(lease)
        case "abort":
            return told.AbortAsked()
        case "command":
            return told.CommandBegun(Lease(leases), "compact")
        case _:
            return told.CommandEnded(lease)


@settings(max_examples=400, deadline=None)
@given(WALKS)
def test_any_walk_keeps_the_promises(walk: list[tuple[str, int, int]]) -> None:
    state: State = Idle()
    leases, runs = 1, 1
    finished: Counter[str] = Counter()
    ends_written: Counter[int] = Counter()
    started: Counter[tuple[int, str, str]] = Counter()
    for kind, back, choice in walk:
        before = state
        state, actions = advance(state, event_for(kind, back, choice, state, leases, RunId(f"run-{runs}")))
        if isinstance(before, Idle) and not isinstance(state, Idle):
            leases += 1
        for action in actions:
            match action:
                case do.Publish(seen.TurnFinished(turn_id=turn_id)):
                    finished[turn_id] += 1
                case do.CloseTurn(lease=lease) | do.Unwind(lease=lease):
                    ends_written[lease] += 1
                case do.RunCall(lease=lease, batch=calls, call=call):
                    assert not isinstance(state, Cancelling)
                    started[(lease, calls.run_id, call.tool_call_id)] += 1
                case do.PrepareStep():
                    runs += 1
                case _:
                    pass
        if isinstance(before, Cancelling) and isinstance(state, Active):
            raise AssertionError("a cancelled turn came back")
    assert all(count == 1 for count in (*finished.values(), *started.values()))
    assert all(count == 1 for count in ends_written.values())
