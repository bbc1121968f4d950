"""What a healthy daemon says of itself, for tests of the words made of it."""

from typing import Any

from lodger_daemon.version import VERSION

NOW = 1_800_000_000.0
Facts = dict[str, Any]


def healthy(**changes: Any) -> Facts:
    facts: Facts = {
        "at": NOW,
        "machine": {"name": "ada", "device_id": "d", "version": VERSION, "pid": 1, "started_at": NOW - 7200},
        "backend": {"kind": "local", "store": "/state/lodger.db", "epoch": 3},
        "uplink": {
            "state": "connected", "url": "https://hub", "since": NOW - 600, "last_contact": NOW - 5,
            "next_attempt_at": None, "reason": None, "failure": None, "failures": 0, "clients": 1,
        },
        "model": {"default": "openai/gpt", "practice": False, "used": []},
        "sandbox": {"holds": True, "summary": "bwrap 1: holds", "at": NOW - 300, "advice": "", "failures": []},
        "boxes": [],
        "questions": {"pending": 0, "open": []},
        "queues": [],
        "disk": {
            "free_bytes": 9 * 1024**3, "store_bytes": 3 * 1024**2, "store_full": False,
            "summary": "9.0 GiB free", "at": NOW, "events_dropped": 0,
        },
        "clock": {"ahead_of_hub_s": 0.4, "compared_at": NOW - 600, "jumps": []},
        "agents": [agent()],
    }  # fmt: skip
    return {**facts, **changes}


def agent(outcome: str = "clean", detail: str = "", *, served: bool = True) -> Facts:
    memory = {"outcome": outcome, "head": "abc", "ahead": 0, "at": NOW - 60, "detail": detail}
    return {"id": "agent-1", "name": "Lodger", "model": "openai/gpt", "model_served": served, "memory": memory}


def used(succeeded_ago_s: float | None, failed_ago_s: float | None, failure: str = "quota") -> Facts:
    return {
        "handle": "openai/gpt",
        "succeeded_at": None if succeeded_ago_s is None else NOW - succeeded_ago_s,
        "failed_at": None if failed_ago_s is None else NOW - failed_ago_s,
        "failure": None if failed_ago_s is None else failure,
        "message": "" if failed_ago_s is None else "no more",
    }
