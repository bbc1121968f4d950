"""`lodger memory`: what a person asks the daemon about an agent's memory, and has it do."""

import asyncio
import base64
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lodger_cli.memory_outcomes import GOOD, last_sync, meaning
from lodger_cli.places import local_daemon
from lodger_cli.processes import StartError
from lodger_cli.runtime import agent_or_first
from lodger_cli.terminal import Exit, age, fail, failure_code, for_terminal, note, say, say_json, write_out
from lodger_cli.wire import Frame, WireError

SYNC_WAIT_S: Final = 60.0
"""The longest the daemon waits for a sync that a person watches."""
_KEPT: Final = {
    "conflict": "side(s) of conflicts",
    "rescue": "side(s) of replaced histories",
    "pending": "commit(s) that did not fit",
    "writers": "of background writers",
}
_SIDES: Final = {"ours": "this machine's version", "theirs": "the other one"}


def status(agent: str, shared: str, *, as_json: bool) -> None:
    answer = ask_daemon({"type": "lodger_memory_state", **_which(shared)}, agent)
    if as_json:
        say_json(_facts(answer))
        return
    _say_status(answer)


def log(agent: str, shared: str, *, limit: int, path: str, as_json: bool) -> None:
    answer = ask_daemon({"type": "memory_history", "limit": limit, "file_path": path, **_which(shared)}, agent)
    commits: list[dict[str, Any]] = answer["commits"]
    if path and not commits:
        fail(f"nothing in this memory's history changed {path}")
    if as_json:
        say_json(commits)
        return
    for commit in commits:
        when = datetime.fromisoformat(commit["timestamp"]).astimezone(UTC)
        say(for_terminal(f"{commit['sha'][:10]}  {when:%Y-%m-%d %H:%M} UTC  {commit['message'].splitlines()[0]}"))
    if not commits:
        say("Nothing remembered yet.")


def show(agent: str, shared: str, path: str, *, at: str, as_json: bool) -> None:
    answer = ask_daemon({"type": "memory_file_at_ref", "file_path": path, "ref": at, **_which(shared)}, agent)
    if as_json:
        say_json({"path": path, "ref": at, "content": answer["content"]})
    else:
        write_out(_readable(answer["content"]))


def diff(agent: str, shared: str, commit: str, *, as_json: bool) -> None:
    answer = ask_daemon({"type": "memory_commit_diff", "sha": commit, **_which(shared)}, agent)
    if as_json:
        say_json({"commit": commit, "diff": answer["diff"]})
    else:
        write_out(_readable(answer["diff"]))


def sync(agent: str, shared: str, *, fetch: bool, as_json: bool) -> None:
    """Sync now, and end with an error unless both sides are level."""
    frame = {"type": "lodger_memory_sync", "fetch": fetch, "limit_s": SYNC_WAIT_S, **_which(shared)}
    _end(ask_daemon(frame, agent, limit_s=SYNC_WAIT_S + 10), as_json=as_json)


def resolve(agent: str, shared: str, paths: list[str], *, side: str, content_file: str, as_json: bool) -> None:
    """Settle a conflict; without a decision, show what there is to decide."""
    if not side and not content_file:
        state = ask_daemon({"type": "lodger_memory_state", **_which(shared)}, agent)
        _say_choices(state, shared, as_json=as_json)
        return
    if (content_file and (side or len(paths) != 1)) or (side == "both" and paths):
        words = "give one of --ours, --theirs, --both (of a whole history) and --file (for one PATH)"
        fail(words, Exit.USAGE)
    frame: Frame = {"type": "lodger_memory_resolve", "limit_s": SYNC_WAIT_S, **_which(shared)}
    if content_file:
        frame["choices"] = {paths[0]: {"content": base64.b64encode(_content(content_file)).decode()}}
    elif paths:
        frame["choices"] = {path: {"side": side} for path in paths}
    else:
        frame["rest"] = side
    answer = ask_daemon(frame, agent, limit_s=SYNC_WAIT_S + 10)
    if not answer["settled"]:
        fail("there is nothing to settle: `lodger memory status` tells how memory stands")
    _end(answer, as_json=as_json, conflict_is_failure=False)


def _content(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}", Exit.USAGE)


def _end(answer: Frame, *, as_json: bool, conflict_is_failure: bool = True) -> None:
    outcome = answer["sync"]["outcome"]
    if as_json:
        say_json(_facts(answer) | {key: answer[key] for key in ("settled", "left") if key in answer})
    else:
        _say_status(answer)
    if outcome not in GOOD and (conflict_is_failure or outcome != "conflict"):
        raise SystemExit(int(Exit.FAILED))


def _facts(answer: Frame) -> Frame:
    named = {key: answer[key] for key in ("agent_id", "conflict", "mirror", "kept") if key in answer}
    return {**named, **answer["sync"]}


def _say_status(answer: Frame) -> None:
    sync = answer["sync"]
    say(f"Agent      {answer['agent_id']}")
    say(f"Published  {sync['head'] or 'nothing yet'}")
    say(f"Last sync  {last_sync(sync, time.time())}")
    say(f"           {meaning(sync)}")
    say(f"Unsynced   {sync['ahead']} commit(s)")
    if sync.get("detail"):
        say(for_terminal(f"           {sync['detail']}"))
    if mirror := answer.get("mirror"):
        tried = mirror["at"]
        say(f"Mirror     {mirror['head'] or 'nothing yet'}, {age(None if tried is None else time.time() - tried)}")
        if mirror["fault"]:
            say(for_terminal(f"           {mirror['fault']}"))
    if kept := answer.get("kept"):
        _say_kept(kept)
    if answer.get("conflict"):
        note("lodger: `lodger memory resolve` shows what there is to decide")


def _say_kept(kept: Frame) -> None:
    """What was kept so that nothing is lost, and takes room until somebody decides about it."""
    words = [f"{count} {_KEPT.get(kind, kind)}" for kind, count in kept["refs"].items()]
    if words:
        say(f"Kept       {', '.join(words)}: {kept['bytes'] / 1e6:.1f} MB that main has not")
        say("           `lodger memory kept` lists it, `lodger memory writers` what background writers left")
    for place in kept["set_aside"]:
        say(for_terminal(f"Set aside  {place}"))


def _which(shared: str) -> Frame:
    return {"shared": shared} if shared else {}


def _say_choices(answer: Frame, shared: str, *, as_json: bool) -> None:
    conflict = answer["conflict"]
    which = f" --shared {shared}" if shared else ""
    command = f"lodger memory resolve{which}"
    if as_json:
        say_json({"agent_id": answer["agent_id"], "conflict": conflict})
        return
    if conflict is None:
        say("Nothing is in conflict.")
        return
    ours, theirs = conflict["local"][:12], conflict["remote"][:12]
    if conflict["kind"] == "history":
        say(f"The remote's history was replaced. This machine has {ours}, the remote {theirs}; both are kept.")
        say(f"  {command} --theirs   follow the remote; what is here is kept: `lodger memory kept`")
        say(f"  {command} --both     everything of both; where they differ you decide by path")
        say(f"  {command} --ours     the files as they are here, on top of both histories")
        return
    say(f"This machine ({ours}) and another one ({theirs}) changed the same places; both versions are kept:")
    for path in conflict["paths"]:
        say(for_terminal(f"  {path}"))
    say(f"To look:    lodger memory show{which} PATH --at {ours}, and --at {theirs}")
    for option, side in _SIDES.items():
        say(f"To decide:  {command} [PATH…] --{option}   {side}")
    say(f"            {command} PATH --file FILE   what FILE holds")


def _readable(text: str) -> str:
    """For a person's terminal without what would drive it; for a pipe as it is."""
    return for_terminal(text) if sys.stdout.isatty() else text


def ask_daemon(frame: Frame, agent: str, *, limit_s: float = 30.0) -> Frame:
    """The daemon's answer to a command about an agent; ends the program where it has none."""
    try:
        answer = asyncio.run(_request(frame, agent, limit_s))
    except (WireError, StartError) as error:
        fail(str(error), failure_code(error))
    if not answer.get("success"):
        fail(answer.get("error") or "the memory could not be read")
    return answer


async def _request(frame: Frame, agent: str, limit_s: float) -> Frame:
    async with local_daemon(start=True) as client:
        agent_id = await agent_or_first(client, agent)
        return {"agent_id": agent_id, **await client.request({**frame, "agent_id": agent_id}, limit_s)}
