"""Every promise, looked at when a run has come to rest."""

import json
from typing import TYPE_CHECKING, Any

from lodger_daemon.identity import ConversationKey
from lodger_daemon.turns import event_codec
from lodger_daemon.turns.core.events import (
    AssistantText,
    ConversationEvent,
    DeviceStateChanged,
    LoopStatusChanged,
    NumberedEvent,
    QuestionAsked,
    QueueChanged,
    ToolReturned,
    TurnFinished,
)
from lodger_daemon.turns.core.words import EFFECT_UNKNOWN, INTERRUPTED

if TYPE_CHECKING:
    from simulation.client import Client
    from simulation.run_seed import Run


def unrest(run: "Run") -> str:
    """What still moves; empty at rest."""
    daemon = run.daemon
    if daemon is None or not daemon.ready:
        return "no daemon is up"
    for client in run.clients:
        if client.unanswered:
            return f"{client.name} waits for an answer to {sorted(client.unanswered)}"
        for kept in client.kept.values():
            if not kept.started:
                return f"{client.name} has not started"
    look = run.world.look
    rows = look("SELECT client_message_id, status FROM inbox WHERE status NOT IN ('answered', 'cancelled')")
    if rows:
        return f"the inbox holds {rows}"
    if rows := look("SELECT turn_id FROM turns WHERE status = 'active'"):
        return f"turns go on: {rows}"
    if rows := look("SELECT question_id FROM questions WHERE status = 'open'"):
        return f"questions are open: {rows}"
    return ""


def check_all(run: "Run") -> None:
    events = stored_events(run)
    messages_once(run)
    results_once(run, events)
    effects(run)
    journal_and_transcript(run)
    questions_once(run)
    nothing_destroyed(run)
    whole_calls(run)
    answers_as_shown(run, events)
    for client in run.clients:
        no_gap(run, client, events)


def messages_once(run: "Run") -> None:
    """R1: what was acknowledged is there, and ran once; nobody but a person removed it."""
    world = run.world
    rows = {row[0]: row for row in world.look("SELECT client_message_id, status, outcome, turn_id FROM inbox")}
    admitted: dict[str, int] = {}
    for (content,) in world.look("SELECT content FROM messages WHERE kind = 'user'"):
        for message_id in json.loads(content).get("client_message_ids", ()):
            admitted[message_id] = admitted.get(message_id, 0) + 1
    for message_id in run.sent:
        row = rows.get(message_id)
        if row is None:
            world.fail("R1 nothing is lost", f"{message_id} was taken and is not in the inbox")
            continue
        if row[1] == "cancelled" and row[2] != "removed":
            world.fail("the queue keeps what a person wrote", f"{message_id} ended as {row[2]}")
        if (
            row[1] == "answered"
            and row[2] == "end_turn"
            and message_id.replace("cm-", "message ") not in run.provider.heard
        ):
            world.fail("R1 nothing is lost", f"{message_id} was answered and no request held it")
        wanted = 1 if row[1] == "answered" else 0
        if admitted.get(message_id, 0) != wanted:
            world.fail(
                "R1 each runs once",
                f"{message_id} is {row[1]} and {admitted.get(message_id, 0)} times in the transcript",
            )


def results_once(run: "Run", events: list[NumberedEvent]) -> None:
    """R2: the end of every turn that anybody saw is an event, once, and whoever resumes has it."""
    world = run.world
    owed = {row[0] for row in world.look("SELECT delivery_id FROM outbox WHERE kind = 'turn_finished'")}
    told: dict[str, int] = {}
    for numbered in events:
        if isinstance(numbered.event, TurnFinished):
            told[numbered.event.turn_id] = told.get(numbered.event.turn_id, 0) + 1
    for turn_id in owed | set(told):
        if told.get(turn_id, 0) != 1:
            world.fail("R2 one end for a turn", f"{turn_id} ended {told.get(turn_id, 0)} times in the events")


def effects(run: "Run") -> None:
    """R3: no command had its effect twice."""
    seen: set[str] = set()
    for effect in run.boxes.ledger:
        if effect.command in seen:
            run.world.fail("R3 no effect twice", f"{effect.command} happened again as {effect.call_key}")
        seen.add(effect.command)


def journal_and_transcript(run: "Run") -> None:
    """R4: what a result says of an effect is true, or says that it is unknown."""
    world = run.world
    happened = {effect.call_key for effect in run.boxes.ledger}
    results: dict[tuple[str, str], list[Any]] = {}
    for run_id, call_id, content in world.look(
        "SELECT run_id, tool_call_id, content FROM messages WHERE kind = 'tool'"
    ):
        results.setdefault((run_id, call_id), []).append(json.loads(content))
    for name, told in results.items():
        if len(told) != 1:
            world.fail("one result", f"{name} has {len(told)} results")
    for key, process in run.boxes.processes.items():
        run_id, call_id = key.rsplit("/", 2)[1:]
        told = results.get((run_id, call_id), [])
        if process.only_reads and (not told or process.outcome is not None):
            # Its step may have been lost with it; it had no effect to be true about.
            continue
        if not told:
            world.fail("R4 every started call has a result", f"{key} has none")
            continue
        text, did = told[0]["text"], key in happened
        if "no effect" in text or (told[0]["status"] == "success" and not did):
            world.fail("R4 the truth about effects", f"{key} happened: {did}, and the model is told {text!r}")
        if process.outcome is None and told[0]["status"] == "success":
            world.fail("R4 the truth about effects", f"{key} has no outcome, and the model is told {text!r}")
        if process.outcome is None and EFFECT_UNKNOWN not in text and INTERRUPTED not in text:
            world.fail("R4 unknown is told as unknown", f"nobody knows how {key} ended, and the model is told {text!r}")
    if rows := world.look("SELECT run_id FROM journal WHERE status = 'started'"):
        world.fail("R4 the journal is closed", f"{rows} are still started")


def questions_once(run: "Run") -> None:
    """A question has one effect, however often and from wherever it is answered."""
    world = run.world
    settled: dict[tuple[str, str], int] = {}
    rows = world.look(
        "SELECT v.conversation_id, q.question_id FROM questions q JOIN conversations v ON v.number = q.conversation "
        "WHERE q.status IN ('allowed', 'denied')"
    )
    for name in rows:
        settled[(name[0], name[1])] = settled.get((name[0], name[1]), 0) + 1
    for name, times in run.around.answers_taken.items():
        if times > settled.get(name, 0):
            world.fail("one effect per question", f"{name}: {times} answers accepted, {settled.get(name, 0)} settled")


def nothing_destroyed(run: "Run") -> None:
    """The transcript only grows: what was ever in it is there."""
    world = run.world
    for conversation, count, last in world.look(
        "SELECT conversation, COUNT(*), MAX(sequence) FROM messages GROUP BY conversation"
    ):
        if count != last:
            world.fail("append-only", f"conversation {conversation} has {count} messages and counted {last}")


def whole_calls(run: "Run") -> None:
    """What the model sees holds every call with its result: neither is cut off from the other."""
    world = run.world
    rows = world.look(
        "SELECT i.conversation, m.kind, m.run_id, m.tool_call_id, m.content FROM in_context i "
        "JOIN messages m ON m.number = i.message ORDER BY i.conversation, i.position"
    )
    called: set[tuple[int, str, str]] = set()
    for conversation, kind, run_id, call_id, content in rows:
        if kind == "assistant":
            calls = {(conversation, run_id, call["id"]) for call in json.loads(content).get("tool_calls", ())}
            called |= calls
        elif kind == "tool":
            if (conversation, run_id, call_id) not in called:
                world.fail("whole calls", f"the result of {call_id} in {run_id} is kept without its call")
            called.discard((conversation, run_id, call_id))
    if called:
        world.fail("whole calls", f"{called} have no result in what the model sees")


def answers_as_shown(run: "Run", events: list[NumberedEvent]) -> None:
    """R2: whoever resumes has seen each answer of the transcript in full."""
    world = run.world
    shown: dict[str, str] = {}
    results: set[tuple[str, str]] = set()
    for numbered in events:
        match numbered.event:
            case AssistantText(message_id=message_id, text=text):
                shown[message_id] = shown.get(message_id, "") + text
            case ToolReturned(run_id=run_id, tool_call_id=call_id):
                results.add((run_id, call_id))
            case _:
                pass
    for message_id, content in world.look("SELECT message_id, content FROM messages WHERE kind = 'assistant'"):
        text = json.loads(content)["text"]
        if shown.get(message_id, "") != text:
            seen = shown.get(message_id, "")
            world.fail(
                "R2 results are delivered", f"{message_id} says {text!r:.200} and clients were shown {seen!r:.200}"
            )
    for run_id, call_id in world.look("SELECT run_id, tool_call_id FROM journal WHERE status = 'finished'"):
        if (run_id, call_id) not in results:
            world.fail("R2 results are delivered", f"the result of {call_id} in {run_id} is in no event")


def no_gap(run: "Run", client: "Client", events: list[NumberedEvent]) -> None:
    """A client that resumes from its cursor has seen every event that is kept, and the end of every turn."""
    for numbered in events:
        kept = client.kept.get(numbered.conversation.conversation_id)
        if kept is None or kept.first_cursor is None or numbered.number <= kept.first_cursor:
            continue
        if is_state(numbered.event) or numbered.number in kept.seen:
            continue
        if client.batches and isinstance(numbered.event, AssistantText):
            continue
        run.world.fail("no gap", f"{client.name} never saw event {numbered.number}: {numbered.event}")


def stored_events(run: "Run") -> list[NumberedEvent]:
    events: list[NumberedEvent] = []
    rows = run.world.look(
        "SELECT v.agent_id, v.conversation_id, e.number, e.at, e.kind, e.payload FROM events e "
        "JOIN conversations v ON v.number = e.conversation ORDER BY v.number, e.number"
    )
    for agent_id, conversation_id, number, at, kind, payload in rows:
        key = ConversationKey(agent_id, conversation_id)
        events.extend(event_codec.decode(key, event_codec.EventRow(number, at, kind, json.loads(payload))))
    return events


def is_state(event: ConversationEvent) -> bool:
    """A snapshot tells it anew, so it is not shown again."""
    match event:
        case QueueChanged(removed=removed):
            return not removed
        case LoopStatusChanged() | DeviceStateChanged() | QuestionAsked():
            return True
        case _:
            return False
