"""The facts of `lodger status` for a person: pure, from the facts and the time."""

from typing import Any, Final

from lodger_cli.checks.running import jump_words
from lodger_cli.memory_outcomes import last_sync
from lodger_cli.terminal import age, span

Facts = dict[str, Any]
_INDENT: Final = " " * 11


def status_lines(facts: Facts, now: float) -> list[str]:
    machine = facts["machine"]
    return [
        f"Machine    {machine['name']}, daemon {machine['version']}, up for {span(now - machine['started_at'])}",
        f"Hub        {_uplink(facts['uplink'], now)}",
        f"Service    {facts['service']['found'] if facts.get('service') else 'none installed'}",
        *_backend(facts),
        *_model(facts["model"], now),
        f"Sandbox    {facts['sandbox']['summary']} (checked {_ago(facts['sandbox'].get('at'), now)})",
        *_boxes(facts["boxes"]),
        *_ports(facts.get("ports") or [], now),
        *_questions(facts["questions"], now),
        *_queues(facts["queues"], now),
        f"Disk       {facts['disk']['summary']} (looked {_ago(facts['disk']['at'], now)})",
        f"Clock      {_clock(facts['clock'], now)}",
        *([f"git        {facts['git']['found']}{_doubt(facts['git'])}"] if facts.get("git") else []),
        *_spend(facts, now),
        *(line for agent in facts["agents"] for line in _agent(agent, now)),
        *(line for one in facts.get("shared_memories") or [] for line in _shared_memory(one, now)),
        *(_memory_writer(one, now) for one in facts.get("memory_writers") or []),
    ]


def _uplink(uplink: Facts, now: float) -> str:
    if uplink["state"] == "off":
        return "none configured"
    text = f"{uplink['url']}: {uplink['state']}"
    if uplink["since"] is not None:
        text += f" for {span(now - uplink['since'])}"
    text += f", last heard {_ago(uplink['last_contact'], now)}"
    if uplink["next_attempt_at"] is not None:
        text += f", tried again in {span(max(0.0, uplink['next_attempt_at'] - now))}"
    if uplink["failures"]:
        text += f", failed {uplink['failures']} time(s) in a row"
    return text + (f" ({uplink['reason']})" if uplink["reason"] else "")


def _backend(facts: Facts) -> list[str]:
    backend, size_bytes = facts["backend"], facts["disk"]["store_bytes"]
    if backend is None or size_bytes is None:
        return []
    return [f"Backend    {backend['kind']}, {size_bytes / 1024**2:.1f} MiB in {backend['store']}"]


def _model(model: Facts, now: float) -> list[str]:
    practice = " (practice model: offline, rule-based)" if model["practice"] else ""
    lines = [f"Model      {model['default']}{practice} for new agents"]
    for one in model["used"]:
        text = f"{_INDENT}{one['handle']}: last answer {_ago(one['succeeded_at'], now)}"
        if one["failed_at"] is not None:
            text += f", last failure {_ago(one['failed_at'], now)} ({one['failure']}: {one['message']})"
        lines.append(text)
    return lines if model["used"] else [*lines, f"{_INDENT}none used since the daemon started"]


def _boxes(boxes: list[Facts]) -> list[str]:
    return [f"Boxes      {len(boxes)} running", *(_INDENT + _box(box) for box in boxes)]


def _box(box: Facts) -> str:
    calls, tasks = box["running_calls"], box.get("background", 0)
    text = f"{box['workspace']} of {box['agent_id']}: {calls} call(s), {tasks} background task(s), "
    text += f"{box['leftovers']} process(es) left running"
    return text if calls or tasks else f"{text}, idle for {span(box['idle_s'])}"


def _ports(ports: list[Facts], now: float) -> list[str]:
    """Nothing where nothing listens."""
    if not ports:
        return []
    opened = sum(one["state"] == "open" for one in ports)
    return [f"Ports      {opened} open, {len(ports)} known", *(_INDENT + port_words(one, now) for one in ports)]


def port_words(one: Facts, now: float) -> str:
    where = f"{one['port']} in {one['workspace']} of {one['agent_id']}"
    ago = _ago(one["since"], now)
    match one["state"]:
        case "open":
            gone = "" if one["listens"] else ", nothing listens there now"
            through = " and through the hub" if one.get("shared") else ""
            return f"{where}: open at {one['url']}{through}, opened {ago}, {one['connections']} connection(s){gone}"
        case "denied":
            return f"{where}: closed {ago}; `lodger ports open {one['port']}` opens it"
        case _:
            return f"{where}: found {ago}; `lodger ports open {one['port']}` opens it"


def _questions(questions: Facts, now: float) -> list[str]:
    return [
        f"Questions  {questions['pending']} waiting for an answer",
        *(
            f"{_INDENT}{one['tool']} in {one['conversation_id']} of {one['agent_id']}, asked "
            f"{_ago(one['asked_at'], now)}, denied in {span(max(0.0, one['expires_at'] - now))} if nobody answers"
            for one in questions["open"]
        ),
    ]


def _queues(queues: list[Facts], now: float) -> list[str]:
    if not queues:
        return ["Turns      none, and nothing waits"]
    turns = sum(one["turn_since"] is not None for one in queues)
    waiting = sum(one["waiting"] + one["parked"] for one in queues)
    return [
        f"Turns      {turns} going on, {waiting} message(s) waiting",
        *(_INDENT + _queue(one, now) for one in queues),
    ]


def _queue(one: Facts, now: float) -> str:
    parts = [f"{one['conversation_id']} of {one['agent_id']}:"]
    if one["turn_since"] is not None:
        parts.append(f"a turn since {span(now - one['turn_since'])};")
    parts.append(f"{one['waiting']} waiting")
    if one["parked"]:
        parts.append(f"and {one['parked']} held back until you go on")
    if one["oldest_at"] is not None:
        parts.append(f"(the first {_ago(one['oldest_at'], now)})")
    return " ".join(parts)


def _clock(clock: Facts, now: float) -> str:
    ahead_s = clock["ahead_of_hub_s"]
    if ahead_s is None:
        text = "no hub's to compare with"
    else:
        way = "ahead of" if ahead_s > 0 else "behind"
        text = f"{span(abs(ahead_s))} {way} the hub's (compared {_ago(clock['compared_at'], now)})"
    return "; ".join([text, *(jump_words(jump, now) for jump in clock["jumps"])])


def _spend(facts: Facts, now: float) -> list[str]:
    spend = facts.get("spend")
    if not spend:
        return []
    names = {agent["id"]: agent["name"] for agent in facts["agents"]}
    lines = [f"Spend      {_spent(spend['today'])} on {spend['day']} (counted {_ago(spend['as_of'], now)})"]
    lines += [f"{_INDENT}{names.get(agent, agent)}: {_spent(spent)}" for agent, spent in spend["agents"].items()]
    limits = [f"{_limit(limit)} per {scope}" for scope, limit in spend["limits"].items()]
    return [*lines, f"{_INDENT}Limits: {', '.join(limits) or 'none'}"]


def _spent(spent: Facts) -> str:
    if spent["usd"] is not None:
        return f"{spent['tokens']} tokens, {spent['usd']:.4f} USD"
    return (
        f"{spent['tokens']} tokens, {spent['usd_known']:.4f} USD and {spent['unpriced_steps']} step(s) of unknown price"
    )


def _limit(limit: Facts) -> str:
    parts = [f"{limit['tokens']} tokens"] if limit["tokens"] is not None else []
    return " or ".join([*parts, *([f"{limit['usd']:.2f} USD"] if limit["usd"] is not None else [])])


def _agent(agent: Facts, now: float) -> list[str]:
    memory = agent["memory"]
    served = "" if agent["model_served"] else " (nobody serves it here)"
    lines = [
        f"Agent      {agent['name']} ({agent['id']}), {agent['model']}{served}",
        f"{_INDENT}memory {last_sync(memory, now)}, {memory['ahead']} commit(s) unsynced",
    ]
    return [*lines, *([f"{_INDENT}{memory['detail']}"] if memory["detail"] else [])]


def _shared_memory(one: Facts, now: float) -> list[str]:
    how = f"{last_sync(one, now)}, {one['ahead']} commit(s) unsynced"
    lines = [f"Shared     {one['name']} of {one['agent_id']} ({one['permissions']}): {how}"]
    return [*lines, *([f"{_INDENT}{one['detail']}"] if one["detail"] else [])]


def _memory_writer(one: Facts, now: float) -> str:
    text = f"Writer     {one['kind']} of {one['agent_id']}: "
    if one["ended_at"] is None:
        return text + f"{one['state']}, began {_ago(one['created_at'], now)}"
    return text + f"{one['state']} {_ago(one['ended_at'], now)}; `lodger memory writers {one['writer_id']}` says more"


def _doubt(git: Facts) -> str:
    return "" if git["verdict"] == "ok" else " (`lodger doctor` says more)"


def _ago(at: float | None, now: float) -> str:
    return age(None if at is None else max(0.0, now - at))
