"""What a running daemon's account of itself means: pure, from its status and the time."""

from collections.abc import Iterator
from typing import Any, Final

from lodger_cli.checks.finding import Finding, Problem, Verdict, as_root, ok
from lodger_cli.terminal import age, span
from lodger_daemon.version import VERSION

Facts = dict[str, Any]

SETTLING_S: Final = 15.0
"""A link that was never up yet is given so long after its first step before anybody is warned."""
CLOCK_LIMIT_S: Final = 30.0
"""The hub tells its time to the second and the way takes up to 15 s; more is a clock that is wrong."""
RECENT_JUMP_S: Final = 24 * 3600.0
_MEMORY: Final = {
    "conflict": (Problem.MEMORY_CONFLICT, "Two machines changed the same lines; the agent is asked to join both."),
    "invalid": (Problem.MEMORY_INVALID, "The agent committed what no memory may hold; it is told what and why."),
    "in_the_way": (Problem.MEMORY_IN_THE_WAY, "Files the agent has not committed are in the way of newer memory."),
    "push_failed": (Problem.MEMORY_UNSYNCED, "It is kept on this machine and sent after the next turn."),
}


def look_at_daemon(facts: Facts, now: float) -> list[Finding]:
    """Every check, in the order a person would want them mended."""
    return [
        _daemon(facts, now),
        *_box(facts, now),
        *_store(facts),
        _hub(facts["uplink"], now),
        *_models(facts, now),
        *_memory(facts, now),
        *_spend(facts.get("spend")),
        *_ssh_agent(facts.get("ssh_agent")),
        _clock(facts["clock"], now),
    ]


def _daemon(facts: Facts, now: float) -> Finding:
    machine = facts["machine"]
    found = f"version {machine['version']}, up for {span(now - machine['started_at'])}"
    if machine["version"] == VERSION:
        return ok("daemon", found)
    advice = f"This command is version {VERSION}. The daemon takes it when it is started anew."
    command = "lodger service restart"
    return Finding("daemon", Verdict.WARNING, found, Problem.DAEMON_OUTDATED, advice, command)


def _box(facts: Facts, now: float) -> list[Finding]:
    """The daemon's own probe: a service may be kept from what a terminal may do."""
    sandbox = facts["sandbox"]
    if sandbox["holds"] is None:
        return []
    found = f"{sandbox['summary']} (looked {_ago(sandbox['at'], now)})"
    if sandbox["holds"]:
        return [ok("daemon's sandbox", found, sandbox["at"])]
    problem = Problem.NO_BOX if sandbox.get("backend") == "none" else Problem.BOX_LEAKS
    advice = (
        "It looks again every minute. Where boxes go on to start for this command only, the daemon's unit forbids them."
    )
    return [Finding("daemon's sandbox", Verdict.WRONG, found, problem, advice, at=sandbox["at"])]


def _store(facts: Facts) -> list[Finding]:
    disk = facts["disk"]
    if not disk["store_full"]:
        return []
    advice = "Free some space; the daemon goes on by itself then."
    found = "the disk is full: new messages are refused"
    return [Finding("store", Verdict.WRONG, found, Problem.DISK_FULL, advice, at=disk["at"])]


def _hub(uplink: Facts, now: float) -> Finding:
    match uplink["state"]:
        case "off":
            return ok("hub", "none configured")
        case "connected":
            return ok(
                "hub", f"connected to {uplink['url']}, heard {_ago(uplink['last_contact'], now)}", uplink["since"]
            )
        case "superseded":
            advice = "End the other one, then start this one anew."
            if uplink["next_attempt_at"] is not None:
                advice = f"End the other one; this one then takes its place again. It looks{_next(uplink, now)}."
            words = uplink["reason"] or "another process has taken this machine's place"
            return Finding(
                "hub", Verdict.WARNING, words, Problem.HUB_SUPERSEDED, advice, "lodger service restart", uplink["since"]
            )
        case state:
            if uplink["last_contact"] is None and not uplink["failures"] and now - uplink["since"] < SETTLING_S:
                return ok("hub", f"{state} {uplink['url']}")
            heard = "not heard since the daemon started"
            if uplink["last_contact"] is not None:
                heard = f"last heard {_ago(uplink['last_contact'], now)}"
            found = f"{uplink['url']} is not connected ({uplink['reason'] or state}), {heard}"
            if uplink["failure"] == "token":
                advice = (
                    "Join again: `lodger pair --machine` on the hub's machine shows the whole command with a new code."
                )
                return Finding(
                    "hub", Verdict.WARNING, found, Problem.HUB_REFUSED, advice, f"lodger join {uplink['url']} CODE",
                    uplink["since"],
                )  # fmt: skip
            return Finding(
                "hub", Verdict.WARNING, found, Problem.HUB_AWAY, f"It tries by itself{_next(uplink, now)}.",
                "lodger logs --part daemon", uplink["since"],
            )  # fmt: skip


def _next(uplink: Facts, now: float) -> str:
    at = uplink["next_attempt_at"]
    return "" if at is None else f" again in {span(max(0.0, at - now))}"


def _models(facts: Facts, now: float) -> list[Finding]:
    model = facts["model"]
    default = ok("model", f"{model['default']} for new agents")
    if model["practice"]:
        advice = "It is offline and rule-based. This connects a real one; other providers: docs/quick-start.md."
        default = Finding(
            "model", Verdict.WARNING, "only the practice model", Problem.PRACTICE_MODEL, advice, "lodger connect openai"
        )
    return [default, *_unserved(facts["agents"]), *_failing(model["used"], now)]


def _unserved(agents: list[Facts]) -> list[Finding]:
    advice = "This lists what can be used; `lodger ask --agent ID --model HANDLE …` changes the agent's model."
    return [
        Finding(
            "model", Verdict.WARNING, f"{agent['name']} has {agent['model']}, which no connected provider serves",
            Problem.MODEL_UNSERVED, advice, "lodger models",
        )
        for agent in agents
        if not agent["model_served"]
    ]  # fmt: skip


def _failing(used: list[Facts], now: float) -> list[Finding]:
    """Models whose latest step failed."""
    findings = []
    for one in used:
        failed_at, succeeded_at = one["failed_at"], one["succeeded_at"]
        if failed_at is None or (succeeded_at is not None and succeeded_at > failed_at):
            continue
        found = f"{one['handle']} failed {_ago(failed_at, now)}: {one['message']} ({one['failure']})"
        provider = one["handle"].partition("/")[0]
        command = {"authentication": f"lodger connect {provider}", "unknown_model": "lodger models"}.get(one["failure"])
        advice = f"Its last answer: {_ago(succeeded_at, now)}."
        findings.append(
            Finding(
                "model", Verdict.WARNING, found, Problem.MODEL_FAILING, advice, command or "lodger logs --part daemon",
                failed_at,
            )
        )  # fmt: skip
    return findings


def _memory(facts: Facts, now: float) -> list[Finding]:
    own = [(agent["name"], agent["id"], "", agent["memory"]) for agent in facts["agents"]]
    shared = [
        (f"{one['agent_id']}, shared memory {one['name']}", one["agent_id"], f" --shared {one['name']}", one)
        for one in facts.get("shared_memories") or []
    ]
    findings = []
    for name, agent_id, option, memory in (*own, *shared):
        if memory["outcome"] not in _MEMORY:
            continue
        problem, advice = _MEMORY[memory["outcome"]]
        found = f"{name}: {memory['outcome']} {_ago(memory['at'], now)}: {memory['detail']}".rstrip(": ")
        command = f"lodger memory status --agent {agent_id}{option}"
        findings.append(Finding("memory", Verdict.WARNING, found, problem, advice, command, memory["at"]))
    return [*findings, *_mirrors(facts, now)]


def _mirrors(facts: Facts, now: float) -> Iterator[Finding]:
    names = {agent["id"]: agent["name"] for agent in facts["agents"]}
    for one in facts.get("memory_mirrors") or []:
        if one["fault"]:
            agent_id = one["agent_id"]
            found = f"{names.get(agent_id, agent_id)}: not mirrored, {_ago(one['at'], now)}: {one['fault']}"
            command = f"lodger memory status --agent {agent_id}"
            advice = "The memory itself is whole; only its copy at the mirror is behind."
            yield Finding("memory", Verdict.WARNING, found, Problem.MEMORY_UNMIRRORED, advice, command, one["at"])


def _spend(spend: Facts | None) -> list[Finding]:
    """Steps without a known price matter where somebody set a limit in money."""
    if not spend or not spend["unpriced_models"]:
        return []
    if not any(limit.get("usd") is not None for limit in spend["limits"].values()):
        return []
    found = f"the price of {', '.join(spend['unpriced_models'])} is not known, so a limit in money cannot be kept"
    advice = "Set a limit in tokens beside it (docs/settings.md, [spend])."
    return [Finding("spend", Verdict.WARNING, found, Problem.SPEND_UNPRICED, advice, at=spend["as_of"])]


def _ssh_agent(agent: Facts | None) -> list[Finding]:
    """Where the settings lend it to boxes; what the daemon was started with counts, not this terminal."""
    match (agent or {}).get("state"):
        case "there":
            return [ok("ssh agent", "lent to boxes")]
        case "not_named":
            found = "network.ssh_agent is set, and where the daemon was started SSH_AUTH_SOCK named no agent"
        case "silent":
            found = f"network.ssh_agent is set, and no agent answers at {(agent or {})['at']}"
        case _:
            return []
    advice = "Boxes have no keys until the daemon is started where SSH_AUTH_SOCK names an agent that runs."
    return [Finding("ssh agent", Verdict.WARNING, found, Problem.SSH_AGENT_AWAY, advice)]


def _clock(clock: Facts, now: float) -> Finding:
    ahead_s = clock["ahead_of_hub_s"]
    if ahead_s is not None and abs(ahead_s) > CLOCK_LIMIT_S:
        found = f"{span(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'} the hub's"
        advice = "One of the two machines has the wrong time; certificates and shown ages depend on it."
        command = as_root("timedatectl set-ntp true")
        return Finding("clock", Verdict.WARNING, found, Problem.CLOCK_WRONG, advice, command, clock["compared_at"])
    words = "as the hub's" if ahead_s is not None else "no other to compare with"
    jumps = [jump for jump in clock["jumps"] if now - jump["at"] < RECENT_JUMP_S]
    if jumps:
        words += "; " + ", ".join(jump_words(jump, now) for jump in jumps)
    return ok("clock", words, clock["compared_at"])


def jump_words(jump: Facts, now: float) -> str:
    """Forward is what a machine's sleep looks like too."""
    way = "forward (or the machine slept)" if jump["by_s"] > 0 else "back"
    return f"jumped {span(abs(jump['by_s']))} {way} {_ago(jump['at'], now)}"


def _ago(at: float | None, now: float) -> str:
    return age(None if at is None else max(0.0, now - at))
