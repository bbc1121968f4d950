"""What doctor makes of a daemon's account of itself, and that each kind of trouble is explained to people."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from lodger_cli.checks.finding import Finding, Problem, Verdict, as_root
from lodger_cli.checks.machine import git_numbers
from lodger_cli.checks.running import look_at_daemon
from lodger_cli.doctor import doctor_lines
from lodger_cli.status import filled
from lodger_daemon.models.contract import FailureKind
from lodger_daemon.version import VERSION
from support.status_facts import NOW, agent, healthy, used

ROOT = Path(__file__).resolve().parents[3]
HUB = healthy()["uplink"]
AWAY = {
    **HUB, "state": "waiting", "last_contact": NOW - 90, "next_attempt_at": NOW + 8, "failures": 2, "reason": "no way",
}  # fmt: skip


def troubles(**changes: Any) -> list[Finding]:
    findings = look_at_daemon(healthy(**changes), NOW)
    assert [one for one in findings if (one.problem is None) != (one.verdict is Verdict.OK)] == []
    return [one for one in findings if one.problem is not None]


def test_root_is_not_told_to_type_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = {"clock": {"ahead_of_hub_s": 900, "compared_at": NOW, "jumps": []}}
    for user, command in ((0, "timedatectl set-ntp true"), (1000, "sudo timedatectl set-ntp true")):
        monkeypatch.setattr(os, "geteuid", lambda uid=user: uid)
        assert [one.command for one in troubles(**ahead)] == [command]
        assert as_root("timedatectl set-ntp true") == command


def test_a_healthy_daemon_has_no_trouble_and_every_fact_its_age() -> None:
    findings = look_at_daemon(healthy(), NOW)
    assert {one.verdict for one in findings} == {Verdict.OK}
    told = {one.name: one.found for one in findings}
    assert told["daemon"] == f"version {VERSION}, up for 2 h"
    assert told["daemon's sandbox"] == "bwrap 1: holds (looked 5 min ago)"
    assert told["hub"] == "connected to https://hub, heard 5 s ago"
    assert told["clock"] == "as the hub's"


@pytest.mark.parametrize(
    ("changes", "problem", "words", "command"),
    [
        ({"uplink": AWAY}, Problem.HUB_AWAY, "(no way), last heard 2 min ago", "lodger logs --part daemon"),
        ({"uplink": {**AWAY, "failure": "token"}}, Problem.HUB_REFUSED, "(no way)", "lodger join https://hub CODE"),
        ({"uplink": {**AWAY, "failure": "network"}}, Problem.HUB_AWAY, "(no way)", "lodger logs --part daemon"),
        ({"uplink": {**HUB, "state": "superseded"}}, Problem.HUB_SUPERSEDED, "another", "lodger service restart"),
        ({"machine": {**healthy()["machine"], "version": "0.0.1"}}, Problem.DAEMON_OUTDATED, "0.0.1", "lodger service"),
        ({"model": {"default": "practice/practice", "practice": True, "used": []}}, Problem.PRACTICE_MODEL, "",
         "lodger connect"),
        ({"model": {**healthy()["model"], "used": [used(60, 30)]}}, Problem.MODEL_FAILING, "30 s ago: no more", "logs"),
        ({"model": {**healthy()["model"], "used": [used(None, 30, "authentication")]}}, Problem.MODEL_FAILING, "",
         "lodger connect openai"),
        ({"agents": [agent(served=False)]}, Problem.MODEL_UNSERVED, "openai/gpt", "lodger models"),
        ({"agents": [agent("conflict", "in a.md")]}, Problem.MEMORY_CONFLICT, "in a.md", "--agent agent-1"),
        ({"shared_memories": [{**agent("conflict", "in a.md")["memory"], "agent_id": "agent-1", "name": "team"}]},
         Problem.MEMORY_CONFLICT, "agent-1, shared memory team: conflict 1 min ago: in a.md", "--shared team"),
        ({"agents": [agent("push_failed")]}, Problem.MEMORY_UNSYNCED, "push_failed 1 min ago", "memory status"),
        ({"memory_mirrors": [{"agent_id": "agent-1", "head": None, "at": NOW - 60, "fault": "it is full"}]},
         Problem.MEMORY_UNMIRRORED, "not mirrored, 1 min ago: it is full", "memory status --agent agent-1"),
        ({"agents": [agent("invalid")]}, Problem.MEMORY_INVALID, "", "memory status"),
        ({"agents": [agent("in_the_way")]}, Problem.MEMORY_IN_THE_WAY, "", "memory status"),
        ({"disk": {**healthy()["disk"], "store_full": True}}, Problem.DISK_FULL, "refused", ""),
        ({"sandbox": {**healthy()["sandbox"], "holds": False, "summary": "leaks"}}, Problem.BOX_LEAKS, "leaks (", ""),
        ({"sandbox": {**healthy()["sandbox"], "holds": False, "backend": "none"}}, Problem.NO_BOX, "(looked 5 min", ""),
        ({"clock": {"ahead_of_hub_s": -7200.0, "compared_at": NOW, "jumps": []}}, Problem.CLOCK_WRONG, "2 h behind",
         "timedatectl"),
        ({"ssh_agent": {"state": "not_named", "at": ""}}, Problem.SSH_AGENT_AWAY, "SSH_AUTH_SOCK named no agent", ""),
        ({"ssh_agent": {"state": "silent", "at": "/run/a"}}, Problem.SSH_AGENT_AWAY, "no agent answers at /run/a", ""),
    ],
)  # fmt: skip
def test_each_trouble_is_named_with_what_to_type(
    changes: dict[str, Any], problem: Problem, words: str, command: str
) -> None:
    [found] = troubles(**changes)
    assert found.problem is problem
    assert words in found.found
    assert command in found.command
    assert bool(command) == bool(found.command)


def test_the_next_planned_try_of_a_hub_that_is_away_is_told() -> None:
    [found] = troubles(uplink=AWAY)
    assert found.advice == "It tries by itself again in 8 s."


def test_a_machine_that_was_superseded_says_whether_it_looks_for_itself() -> None:
    superseded = {**HUB, "state": "superseded"}
    assert troubles(uplink=superseded)[0].advice == "End the other one, then start this one anew."
    [found] = troubles(uplink={**superseded, "next_attempt_at": NOW + 40})
    assert found.advice == "End the other one; this one then takes its place again. It looks again in 40 s."


def test_a_link_that_is_just_being_made_is_no_trouble() -> None:
    first = {**HUB, "state": "dialling", "since": NOW - 3, "last_contact": None}
    assert troubles(uplink=first) == []
    assert troubles(uplink={**first, "since": NOW - 60})[0].problem is Problem.HUB_AWAY
    assert troubles(uplink={**first, "failures": 1})[0].problem is Problem.HUB_AWAY


def test_a_model_that_answered_since_its_failure_is_no_trouble() -> None:
    assert troubles(model={**healthy()["model"], "used": [used(10, 20)]}) == []


def test_an_unknown_price_is_trouble_only_beside_a_limit_in_money() -> None:
    spend = {"as_of": NOW, "unpriced_models": ["mine/small"], "limits": {"day": {"tokens": 5, "usd": None}}}
    assert troubles(spend=spend) == []
    spend["limits"] = {"day": {"tokens": None, "usd": 2.0}}
    assert [one.problem for one in troubles(spend=spend)] == [Problem.SPEND_UNPRICED]


def test_a_jump_of_the_clock_is_told_for_a_day() -> None:
    jumps = [{"at": NOW - 3600, "by_s": -3600.0}, {"at": NOW - 200_000, "by_s": 50.0}]
    told = look_at_daemon(healthy(clock={"ahead_of_hub_s": None, "compared_at": None, "jumps": jumps}), NOW)[-1]
    assert told.found == "no other to compare with; jumped 1 h back 1 h ago"


def test_a_daemon_of_an_earlier_release_is_understood() -> None:
    old = healthy()
    for key in ("at", "backend", "queues", "clock"):
        del old[key]
    for section, key in (("model", "used"), ("questions", "open"), ("disk", "at"), ("uplink", "next_attempt_at")):
        old[section] = {name: value for name, value in old[section].items() if name != key}
    assert {one.verdict for one in look_at_daemon(filled(old), NOW)} == {Verdict.OK}


def test_what_others_wrote_cannot_move_the_cursor() -> None:
    evil = {**used(None, 1), "message": "\x1b]0;title\x07\x1b[2Jgone\nWRONG    nothing"}
    lines = doctor_lines(troubles(model={**healthy()["model"], "used": [evil]}))
    assert all(line.isprintable() for line in lines), lines


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("git version 2.39.5", (2, 39, 5)), ("git version 2.50.1 (Apple Git-155)", (2, 50, 1)),
     ("git version 2.51.0.windows.1", (2, 51, 0)), ("", ()), ("sh: not found", ())],
)  # fmt: skip
def test_gits_version_is_read(text: str, numbers: tuple[int, ...]) -> None:
    assert git_numbers(text) == numbers


def test_the_page_for_people_explains_each_kind_of_a_models_failure() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert [kind for kind in FailureKind if f"`{kind}`" not in page] == []


def test_the_page_for_people_has_a_section_for_each_trouble_and_for_no_other() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert sorted(re.findall(r"^### `([a-z-]+)`$", page, re.MULTILINE)) == sorted(Problem)


@pytest.mark.parametrize("state", ["there", "not_asked"])
def test_an_agent_that_is_lent_or_not_wanted_is_no_trouble(state: str) -> None:
    assert troubles(ssh_agent={"state": state, "at": "/run/a"}) == []
