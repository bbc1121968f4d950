"""What `lodger status` says to people."""

from typing import Any

from lodger_cli.status_lines import status_lines
from support.status_facts import NOW, agent, healthy, used


def lines(**changes: Any) -> str:
    return "\n".join(status_lines(healthy(**changes), NOW))


def test_every_fact_of_a_quiet_machine_has_its_age() -> None:
    assert status_lines(healthy(git={"verdict": "warning", "found": "git version 2.39.5"}), NOW) == [
        "Machine    ada, daemon 0.1.0, up for 2 h",
        "Hub        https://hub: connected for 10 min, last heard 5 s ago",
        "Service    none installed",
        "Backend    local, 3.0 MiB in /state/lodger.db",
        "Model      openai/gpt for new agents",
        "           none used since the daemon started",
        "Sandbox    bwrap 1: holds (checked 5 min ago)",
        "Boxes      0 running",
        "Questions  0 waiting for an answer",
        "Turns      none, and nothing waits",
        "Disk       9.0 GiB free (looked 0 s ago)",
        "Clock      0 s ahead of the hub's (compared 10 min ago)",
        "git        git version 2.39.5 (`lodger doctor` says more)",
        "Agent      Lodger (agent-1), openai/gpt",
        "           memory clean 1 min ago, 0 commit(s) unsynced",
    ]


def test_ports_of_boxes_are_shown_where_there_are_any() -> None:
    one = {
        "port": 5173, "state": "open", "since": NOW - 120, "listens": True, "agent_id": "agent-1", "workspace": "/w",
        "local_port": 5173, "url": "http://127.0.0.1:5173", "connections": 2,
    }  # fmt: skip
    told = lines(ports=[one, {**one, "port": 3000, "state": "offered"}, {**one, "listens": False, "shared": True}])
    assert "Ports      2 open, 3 known" in told
    assert "5173 in /w of agent-1: open at http://127.0.0.1:5173, opened 2 min ago, 2 connection(s)\n" in told
    assert "3000 in /w of agent-1: found 2 min ago; `lodger ports open 3000` opens it" in told
    assert "open at http://127.0.0.1:5173 and through the hub, opened" in told
    assert "2 connection(s), nothing listens there now" in told


def test_writers_of_memory_are_shown_while_they_work_or_wait_for_a_decision() -> None:
    one = {
        "agent_id": "agent-1", "writer_id": "reflection-1-a", "kind": "reflection", "state": "running",
        "created_at": NOW - 120, "ended_at": None,
    }  # fmt: skip
    told = lines(memory_writers=[one, {**one, "state": "conflicted", "ended_at": NOW - 60}])
    assert "Writer     reflection of agent-1: running, began 2 min ago\n" in told
    assert told.endswith("conflicted 1 min ago; `lodger memory writers reflection-1-a` says more")


def test_a_hub_that_is_away_shows_why_and_when_it_is_tried_again() -> None:
    uplink = {
        **healthy()["uplink"], "state": "waiting", "since": NOW - 12, "last_contact": None, "failures": 3,
        "next_attempt_at": NOW + 8, "reason": "refused",
    }  # fmt: skip
    assert (
        "https://hub: waiting for 12 s, last heard never, tried again in 8 s, failed 3 time(s) in a row (refused)"
    ) in lines(uplink=uplink)


def test_what_waits_is_shown_with_its_conversation_and_since_when() -> None:
    question = {
        "agent_id": "agent-1", "conversation_id": "conv-2", "tool": "Bash", "reason": "", "asked_at": NOW - 120,
        "expires_at": NOW + 1680,
    }  # fmt: skip
    queue = {
        "agent_id": "agent-1", "conversation_id": "default", "turn_since": NOW - 30, "waiting": 2, "parked": 1,
        "oldest_at": NOW - 20,
    }  # fmt: skip
    told = lines(questions={"pending": 1, "open": [question]}, queues=[queue])
    assert "Bash in conv-2 of agent-1, asked 2 min ago, denied in 28 min if nobody answers" in told
    assert "Turns      1 going on, 3 message(s) waiting" in told
    assert (
        "default of agent-1: a turn since 30 s; 2 waiting and 1 held back until you go on (the first 20 s ago)" in told
    )


def test_background_work_models_and_jumps_are_shown() -> None:
    box = {
        "agent_id": "agent-1", "workspace": "/work", "profile": "agent", "running_calls": 0, "leftovers": 2,
        "idle_s": 61.0,
    }  # fmt: skip
    told = lines(
        boxes=[box, {**box, "leftovers": 0, "background": 1, "idle_s": 0.0}],
        model={**healthy()["model"], "used": [used(60, 3600)]},
        clock={"ahead_of_hub_s": None, "compared_at": None, "jumps": [{"at": NOW - 60, "by_s": 3600.0}]},
        agents=[agent("conflict", "conflict in a.md", served=False)],
    )
    assert "/work of agent-1: 0 call(s), 0 background task(s), 2 process(es) left running, idle for 1 min" in told
    assert "/work of agent-1: 0 call(s), 1 background task(s), 0 process(es) left running\n" in told
    assert "openai/gpt: last answer 1 min ago, last failure 1 h ago (quota: no more)" in told
    assert "no hub's to compare with; jumped 1 h forward (or the machine slept) 1 min ago" in told
    assert "openai/gpt (nobody serves it here)" in told
    assert "           conflict in a.md" in told


def test_spend_is_shown_when_the_daemon_counts_it_and_an_unknown_price_is_not_zero() -> None:
    known = {"tokens": 1200, "usd": 0.0123, "usd_known": 0.0123, "unpriced_steps": 0}
    unknown = {"tokens": 10, "usd": None, "usd_known": 0.0, "unpriced_steps": 2}
    spend = {
        "as_of": NOW - 1, "day": "2026-11-30", "today": unknown, "agents": {"agent-1": known, "agent-gone": unknown},
        "limits": {"day": {"tokens": 5000, "usd": 2.0}}, "unpriced_models": ["mine/small"],
    }  # fmt: skip
    told = lines(spend=spend)
    assert "10 tokens, 0.0000 USD and 2 step(s) of unknown price on 2026-11-30 (counted 1 s ago)" in told
    assert "Lodger: 1200 tokens, 0.0123 USD" in told
    assert "agent-gone: 10 tokens" in told
    assert "Limits: 5000 tokens or 2.00 USD per day" in told
    assert "Spend" not in lines()


def test_a_memory_that_was_not_synced_yet_is_said_to_be_so() -> None:
    never = agent("skipped")
    never["memory"]["at"] = None
    told = lines(agents=[never])
    assert "memory no sync yet, 0 commit(s) unsynced" in told
