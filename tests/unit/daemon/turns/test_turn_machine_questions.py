"""The turn machine's rules of questions (BEHAVIOUR.md section I)."""

from lodger_daemon.identity import QuestionId
from lodger_daemon.models.contract import FinishReason
from lodger_daemon.turns.contract import Allow, Deny
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Call
from lodger_daemon.turns.core.states import (
    Asking,
)
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.turn_machine import LEASE, RUN, TURN, Machine, allowed, asked, batch, call, calling, completed, running


def test_questions_are_asked_one_at_a_time() -> None:
    one, two = call("c1"), call("c2")
    machine = calling(one, two)
    machine.tell(asked(one, two))
    assert [a.question_id for a in machine.actions if isinstance(a, do.AskPerson)] == ["perm-c1"]
    machine.tell(told.AnswerGiven(QuestionId("perm-c1"), Deny("no")))
    assert [a.question_id for a in machine.actions if isinstance(a, do.AskPerson)] == ["perm-c1", "perm-c2"]
    actions = machine.tell(told.AnswerGiven(QuestionId("perm-c2"), Allow()))
    assert running(actions) == ["c2"]
    assert [(a.call.tool_call_id, a.text) for a in actions if isinstance(a, do.RefuseCall)] == [("c1", "no")]


def together(*calls: Call) -> Machine:
    """A machine whose client can show several questions; all of these calls were asked about."""
    machine = Machine()
    machine.tell(
        told.InputWaits(LEASE, TURN, True),
        told.Prepared(LEASE, RUN, can_ask=True, ask_together=True),
        told.StepAdmitted(LEASE, RUN),
        completed(FinishReason.TOOL_CALLS, batch(*calls)),
        told.StepRecorded(LEASE, RUN),
        asked(*calls),
    )
    return machine


def test_questions_are_asked_together_where_the_client_can_show_them() -> None:
    one, two, three = call("c1"), call("c2"), call("c3")
    machine = together(one, two, three)
    assert [a.question_id for a in machine.actions if isinstance(a, do.AskPerson)] == ["perm-c1", "perm-c2", "perm-c3"]
    assert running(machine.tell(told.AnswerGiven(QuestionId("perm-c3"), Allow()))) == []
    assert running(machine.tell(told.QuestionLapsed(QuestionId("perm-c1")))) == []
    assert len(machine.performed(do.AskPerson)) == 3
    actions = machine.tell(told.AnswerGiven(QuestionId("perm-c2"), Allow()))
    assert running(actions) == ["c2"]
    assert [a.call.tool_call_id for a in actions if isinstance(a, do.RefuseCall)] == ["c1"]


def test_an_answer_that_comes_while_a_rule_is_saved_or_judged_is_kept() -> None:
    one, two, three = call("c1"), call("c2"), call("c3")
    for moment in ("saving", "judging"):
        machine = together(one, two, three)
        machine.tell(told.AnswerGiven(QuestionId("perm-c1"), Allow(suggestion_ids=("save-default",))))
        if moment == "judging":
            machine.tell(told.RulesSaved(LEASE))
        machine.tell(told.AnswerGiven(QuestionId("perm-c2"), Deny("no")))
        if moment == "saving":
            machine.tell(told.RulesSaved(LEASE))
        actions = machine.tell(allowed(two, three))
        assert [a.text for a in actions if isinstance(a, do.RefuseCall)] == ["no"], moment
        assert running(actions) == ["c1"]


def test_two_answers_that_bring_rules_wait_for_both() -> None:
    one, two = call("c1"), call("c2")
    machine = together(one, two)
    answer = Allow(suggestion_ids=("save-default",))
    machine.tell(told.AnswerGiven(QuestionId("perm-c1"), answer), told.AnswerGiven(QuestionId("perm-c2"), answer))
    assert machine.tell(told.RulesSaved(LEASE)) == []
    assert running(machine.tell(told.RulesSaved(LEASE))) == ["c1"]


def test_an_answer_has_one_effect() -> None:
    one = call("c1")
    machine = calling(one)
    machine.tell(asked(one))
    answer = told.AnswerGiven(QuestionId("perm-c1"), Allow())
    assert running(machine.tell(answer)) == ["c1"]
    assert machine.tell(answer) == []


def test_a_late_answer_does_not_undo_a_cancellation() -> None:
    one = call("c1")
    machine = calling(one)
    machine.tell(asked(one))
    unwind = machine.tell(told.AbortAsked())[-1]
    assert isinstance(unwind, do.Unwind)
    assert unwind.stop_reason is StopReason.CANCELLED
    assert machine.tell(told.AnswerGiven(QuestionId("perm-c1"), Allow())) == []
    machine.tell(told.Unwound(LEASE))
    assert machine.tell(told.AnswerGiven(QuestionId("perm-c1"), Allow())) == []
    assert machine.performed(do.RunCall) == []


def test_a_saved_rule_has_the_rest_judged_again() -> None:
    one, two = call("c1"), call("c2")
    machine = calling(one, two)
    machine.tell(asked(one, two))
    answer = told.AnswerGiven(QuestionId("perm-c1"), Allow(suggestion_ids=("save-default",)))
    assert isinstance(machine.tell(answer)[-1], do.SaveRules)
    judging = machine.tell(told.RulesSaved(LEASE))[-1]
    assert isinstance(judging, do.JudgeCalls)
    assert [c.tool_call_id for c in judging.calls] == ["c2"]
    machine.tell(allowed(two))
    assert len(machine.performed(do.AskPerson)) == 1


def test_changed_input_runs_as_changed() -> None:
    one = call("c1")
    changed = {"command": "safe"}
    machine = calling(one)
    machine.tell(asked(one))
    machine.tell(told.AnswerGiven(QuestionId("perm-c1"), Allow(updated_input=changed)))
    [run] = machine.performed(do.RunCall)
    assert isinstance(run, do.RunCall)
    assert (run.arguments, run.by_person) == (changed, True)


def test_a_question_nobody_answers_is_denied_and_the_turn_goes_on() -> None:
    one = call("c1")
    machine = calling(one)
    machine.tell(asked(one))
    [refusal] = [a for a in machine.tell(told.QuestionLapsed(QuestionId("perm-c1"))) if isinstance(a, do.RefuseCall)]
    assert "Nobody answered" in refusal.text
    assert isinstance(machine.tell(told.CallEnded(LEASE, one.tool_call_id))[-1], do.PrepareStep)


def test_a_client_that_cannot_answer_is_not_asked() -> None:
    one = call("c1")
    machine = Machine()
    machine.tell(
        told.InputWaits(LEASE, TURN, direct=True),
        told.Prepared(LEASE, RUN, can_ask=False),
        told.StepAdmitted(LEASE, RUN),
        completed(FinishReason.TOOL_CALLS, batch(one)),
        told.StepRecorded(LEASE, RUN),
        asked(one),
    )
    assert machine.performed(do.AskPerson) == []
    [refusal] = machine.performed(do.RefuseCall)
    assert isinstance(refusal, do.RefuseCall)
    assert "cannot answer" in refusal.text


def test_the_question_on_screen_belongs_to_the_state() -> None:
    one = call("c1")
    machine = calling(one)
    machine.tell(asked(one))
    assert isinstance(machine.phase, Asking)
    assert machine.tell(told.AnswerGiven(QuestionId("perm-other"), Allow())) == []
