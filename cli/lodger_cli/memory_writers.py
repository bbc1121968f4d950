"""`lodger memory writers`: who writes in an agent's memory beside its conversations, and what became of it."""

import time
from typing import Final

from lodger_cli.memory import ask_daemon
from lodger_cli.terminal import age, fail, for_terminal, note, say, say_json
from lodger_cli.wire import Frame

ACTION_LIMIT_S: Final = 120.0
"""A merge asks the remote first, which may take half a minute."""
_KEPT: Final = frozenset({"conflicted", "rescued"})


def writers(agent: str, writer_id: str, action: str, *, as_json: bool) -> None:
    frame: Frame = {"type": "lodger_memory_writers"}
    if action:
        frame |= {"action": action, "writer_id": writer_id}
    answer = ask_daemon(frame, agent, limit_s=ACTION_LIMIT_S if action else 30.0)
    found = [one for one in answer["writers"] if writer_id in ("", one["writer_id"])]
    if writer_id and not found:
        fail(f"nobody wrote as {writer_id}: `lodger memory writers` lists who did")
    if as_json:
        say_json(found)
        return
    for one in found:
        _say_one(one)
    if not found:
        say("Nobody has written in the background.")
    if any(one["state"] in _KEPT and one["tip"] for one in found):
        note("lodger: `lodger memory diff TIP` shows what is kept of one; --merge or --drop ends that")


def _say_one(one: Frame) -> None:
    say(f"{one['writer_id']}  {one['state']}, began {age(time.time() - one['created_at'])}")
    for label, text in (
        ("why", one["reason"]),
        ("report", (one["report"].splitlines() or [""])[0]),
        ("paths", ", ".join(one["paths"])),
        ("tip", one["tip"] or "" if one["state"] in _KEPT else ""),
    ):
        if text:
            say(for_terminal(f"  {label}: {text}"))
