"""What must come before what: acknowledgements, answers, replays, inputs of one conversation."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.clients import connection
from lodger_daemon.clients.connection import FRAMES_PER_LIMIT, WRITE_BYTES
from lodger_daemon.identity import ConversationKey, MessageId, RunId
from lodger_daemon.store import event_rows
from lodger_daemon.turns.contract import ConversationSnapshot, Receipt, Submission
from lodger_daemon.turns.core.events import AssistantText, LoopStatus, LoopStatusChanged, NumberedEvent
from support.turn_parts import Gate, House, calls, says
from support.wire_client import Frame, WireClient, WireHouse


class Held:
    """The real service, with doors that a test holds shut."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.submitting: dict[str, Gate] = {}
        self.snapshots: Gate | None = None
        self.submitted: list[str] = []
        self.sinks: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._house.conversations, name)

    async def submit(self, key: ConversationKey, submission: Submission) -> Receipt:
        text = str(submission.messages[0].content)
        if text in self.submitting:
            await self.submitting[text].wait()
        self.submitted.append(text)
        return await self._house.conversations.submit(key, submission)

    async def snapshot(self, key: ConversationKey, *, with_queue: bool = True) -> ConversationSnapshot:
        taken = await self._house.conversations.snapshot(key)
        if self.snapshots is not None:
            await self.snapshots.wait()
        return taken

    def subscribe(self, key: ConversationKey, sink: Any) -> Any:
        self.sinks.append(sink)
        return self._house.conversations.subscribe(key, sink)


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[WireHouse]:
    house = House(tmp_path)
    wire = WireHouse(house)
    await house.start()
    wire.serve(Held(house))  # type: ignore[arg-type]  # it is the real service behind doors
    yield wire
    await wire.router.aclose()
    await house.close()


def doors(wire: WireHouse) -> Held:
    held = wire.router.services.conversations
    assert isinstance(held, Held)
    return held


def runtime(wire: WireHouse) -> Frame:
    return {"agent_id": str(wire.house.key.agent_id), "conversation_id": "default"}


def start(wire: WireHouse, **fields: object) -> Frame:
    agent = str(wire.house.key.agent_id)
    return {
        "type": "runtime_start",
        "request_id": "rs",
        "agent_id": agent,
        "conversation_id": "default",
        "wait_for_replay": True,
        **fields,
    }


def message(wire: WireHouse, text: str) -> Frame:
    messages = [{"role": "user", "content": text, "client_message_id": f"cm-{text}"}]
    payload = {"kind": "create_message", "messages": messages}
    return {"type": "input", "request_id": f"in-{text}", "runtime": runtime(wire), "payload": payload}


def answer(wire: WireHouse, request_id: str, decision: Frame) -> Frame:
    payload = {"kind": "approval_response", "request_id": "perm-c1", "decision": decision}
    return {"type": "input", "request_id": request_id, "runtime": runtime(wire), "payload": payload}


async def finished(client: WireClient, count: int = 1) -> None:
    await client.until(lambda: len(client.of("turn_finished")) >= count)


async def test_nothing_is_acknowledged_before_it_is_stored(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire))
    door = doors(wire).submitting["one"] = Gate()
    await client.say(message(wire, "one"))
    await door.reached.wait()
    await client.ask({"type": "app_server_info", "request_id": "i"})
    assert not client.of("input_accepted")
    door.opened.set()
    await client.until(lambda: bool(client.of("input_accepted")))


async def test_an_acknowledgement_does_not_wait_for_what_its_turn_shows(wire: WireHouse) -> None:
    """It leaves alone: what would go along with it would have to be made first."""
    client = wire.client()
    await client.ask(start(wire))
    await client.ask(message(wire, "one"))
    await finished(client)
    place = client.outline().index("input_accepted")
    assert {place, place + 1} <= {*itertools.accumulate(client.sends)}


async def test_inputs_of_one_conversation_keep_their_order(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire))
    door = doors(wire).submitting["one"] = Gate()
    await client.say(message(wire, "one"))
    await client.say(message(wire, "two"))
    await client.say({"type": "abort_message", "request_id": "a", "runtime": runtime(wire)})
    await door.reached.wait()
    # Whatever else a client asks overtakes a slow input.
    await client.ask({"type": "list_models", "request_id": "m"})
    assert doors(wire).submitted == []
    door.opened.set()
    await client.until(lambda: bool(client.of("abort_message_response")))
    assert doors(wire).submitted == ["one", "two"]
    assert [frame["request_id"] for frame in client.of("input_accepted")] == ["in-one", "in-two"]


async def test_events_during_a_replay_come_once_and_in_their_place(wire: WireHouse) -> None:
    client = wire.client()
    door = doors(wire).snapshots = Gate()
    asked = asyncio.create_task(client.ask(start(wire)))
    await door.reached.wait()
    key = wire.house.key
    last = (await wire.house.conversations.snapshot(key)).last_event_number
    at = wire.house.clock.wall()
    (sink,) = doors(wire).sinks
    sink(NumberedEvent(key, last, at, LoopStatusChanged(LoopStatus.RETRYING_API_REQUEST)))
    sink(NumberedEvent(key, last, at, AssistantText(RunId("r"), MessageId("m1"), "o", "before")))
    sink(NumberedEvent(key, last + 1, at, LoopStatusChanged(LoopStatus.SENDING_API_REQUEST)))
    sink(NumberedEvent(key, last + 2, at, AssistantText(RunId("r"), MessageId("m2"), "o", "after")))
    assert client.frames == []
    door.opened.set()
    await asked
    assert client.outline() == [
        "assistant_message",
        "device idle 0",
        "WAITING_ON_INPUT",
        "update_queue",
        "update_subagent_state",
        "SENDING_API_REQUEST",
        "assistant_message",
        "runtime_start_response",
    ]
    assert [delta["content"][0]["text"] for delta in client.deltas("assistant_message")] == ["before", "after"]


async def test_states_of_the_past_are_not_replayed(wire: WireHouse) -> None:
    info = {"name": "page", "capabilities": {"resume": True}}
    first = wire.client()
    await first.ask(start(wire, client_info=info))
    wire.house.models.play(calls("ask me"), says("done"))
    await first.say(message(wire, "go"))
    await first.until(lambda: bool(first.of("control_request")))
    await first.ask(answer(wire, "yes", {"behavior": "allow"}))
    await finished(first)
    await wire.house.settled()
    returned = wire.client()
    await returned.ask(start(wire, client_info=info, after_event=0))
    assert not returned.of("control_request")
    assert [word for word in returned.outline() if word.isupper()] == ["WAITING_ON_INPUT"]
    assert len(returned.of("turn_finished")) == 1


async def test_a_question_in_its_order(wire: WireHouse) -> None:
    """PROTOCOL.md 6.1"""
    client = wire.client()
    await client.ask(start(wire))
    client.forget()
    wire.house.models.play(calls("ask me"), says("done"))
    await client.ask(message(wire, "go"))
    await client.until(lambda: "device busy 1" in client.outline())
    words = [word for word in client.outline() if not word.startswith("device busy 0")]
    asked = words[words.index("approval_request_message") :]
    assert asked == [
        "approval_request_message",
        "usage_statistics",
        "stop_reason",
        "WAITING_ON_APPROVAL",
        "control_request",
        "WAITING_ON_APPROVAL",
        "device busy 1",
    ]
    request = client.of("control_request")[0]
    assert request["request_id"] == "perm-c1"
    assert request["request"]["tool_name"] == "Bash"
    client.forget()
    accepted = await client.ask(answer(wire, "yes", {"behavior": "allow"}))
    assert accepted == {"type": "input_accepted", "request_id": "yes", "runtime": runtime(wire), "accepted": True}
    before = client.outline()[: client.outline().index("input_accepted")]
    assert before == ["WAITING_ON_APPROVAL", "device busy 0"]
    await finished(client)
    assert client.outline().count("WAITING_ON_APPROVAL") == 1
    late = await client.ask(answer(wire, "late", {"behavior": "deny", "message": "no"}))
    assert late["error"] == "Approval request is no longer pending"


async def test_an_abort_takes_the_question_off_the_screen_at_once(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire))
    wire.house.models.play(calls("ask me"))
    await client.say(message(wire, "go"))
    await client.until(lambda: "device busy 1" in client.outline())
    client.forget()
    await client.ask({"type": "abort_message", "request_id": "a", "runtime": runtime(wire)})
    await finished(client)
    assert {word for word in client.outline() if word.startswith("device")} == {"device idle 0"}


async def test_a_pending_question_is_shown_first_to_whoever_comes(wire: WireHouse) -> None:
    """PROTOCOL.md 6.5"""
    first, second = wire.client(), wire.client()
    await first.ask(start(wire))
    wire.house.models.play(calls("ask me"), says("done"))
    await first.say(message(wire, "go"))
    await first.until(lambda: bool(first.of("control_request")))
    await second.ask({"type": "sync", "request_id": "s", "runtime": runtime(wire), "recover_approvals": False})
    assert second.outline() == [
        "control_request",
        "device busy 1",
        "WAITING_ON_APPROVAL",
        "update_queue",
        "update_subagent_state",
        "sync_response",
    ]
    await first.connection.close()
    assert (await second.ask(answer(wire, "no", {"behavior": "deny", "message": "not now"})))["accepted"]
    await finished(second)
    assert second.deltas("client_tool_end")[0]["status"] == "error"


async def test_an_abort_is_answered_at_once(wire: WireHouse) -> None:
    """PROTOCOL.md 6.2"""
    client = wire.client()
    await client.ask(start(wire))
    gate = Gate()
    wire.house.models.play([*says("Hello")[:1], gate])
    await client.ask(message(wire, "go"))
    await client.until(lambda: bool(client.deltas("assistant_message")))
    client.forget()
    response = await client.ask({"type": "abort_message", "request_id": "a", "runtime": runtime(wire), "run_id": None})
    assert (response["aborted"], response["success"]) == (True, True)
    await finished(client)
    words = client.outline()
    assert words[:3] == ["WAITING_ON_INPUT", "device idle 0", "status"]
    assert client.of("turn_finished")[0]["stop_reason"] == "cancelled"


async def test_a_queued_message_is_removed(wire: WireHouse) -> None:
    """PROTOCOL.md 4.1, in the order of the recordings: the response, a plain snapshot, the transition."""
    client = wire.client()
    await client.ask(start(wire))
    gate = Gate()
    wire.house.models.play([gate, *says("Hello")])
    await client.ask(message(wire, "one"))
    await gate.reached.wait()
    assert (await client.ask(message(wire, "two")))["disposition"] == "queued"
    await client.until(lambda: any(frame["queue"] for frame in client.of("update_queue")))
    item = next(frame["queue"][0] for frame in client.of("update_queue") if frame["queue"])
    client.forget()
    removal = {"type": "remove_queue_item", "request_id": "r", "runtime": runtime(wire), "item_id": item["id"]}
    assert (await client.ask(removal))["success"]
    await client.until(lambda: len(client.of("update_queue")) == 2)
    assert client.outline() == ["remove_queue_item_response", "update_queue", "update_queue"]
    assert [frame["removed"] for frame in client.of("update_queue")] == [
        [],
        [{"client_message_id": "cm-two", "disposition": "cancelled"}],
    ]
    gate.opened.set()
    await finished(client)


async def test_an_abort_parks_the_queue_for_every_client_until_it_is_resumed(wire: WireHouse) -> None:
    """PROTOCOL.md 10.1: `paused` on queue items, `resume_queue`."""
    client = wire.client()
    await client.ask(start(wire))
    gate = Gate()
    wire.house.models.play([*says("Hello")[:1], gate], says("two then"))
    await client.ask(message(wire, "one"))
    await client.until(lambda: bool(client.deltas("assistant_message")))
    assert (await client.ask(message(wire, "two")))["disposition"] == "queued"
    client.forget()
    await client.ask({"type": "abort_message", "request_id": "a", "runtime": runtime(wire)})
    await finished(client)
    assert [item.get("paused") for item in client.of("update_queue")[-1]["queue"]] == [True]
    late = wire.client()
    await late.ask(start(wire))
    assert [item.get("paused") for item in late.of("update_queue")[-1]["queue"]] == [True]
    client.forget()
    response = await client.ask({"type": "resume_queue", "request_id": "r", "runtime": runtime(wire)})
    assert (response["resumed"], response["success"]) == (1, True)
    await finished(client)
    assert client.of("turn_finished")[0]["stop_reason"] == "end_turn"
    assert client.of("update_queue")[-1]["queue"] == []
    again = await client.ask({"type": "resume_queue", "request_id": "s", "runtime": runtime(wire)})
    assert (again["resumed"], again["success"]) == (0, True)


@pytest.mark.parametrize("cursor", [0, 10**9], ids=["too old", "of another database"])
async def test_a_client_whose_cursor_leads_nowhere_is_told_before_it_is_shown_anything(
    wire: WireHouse, cursor: int
) -> None:
    info = {"name": "page", "capabilities": ["resume"]}
    client = wire.client()
    await client.ask(start(wire, client_info=info))
    wire.house.models.play(says("Hello"))
    await client.ask(message(wire, "one"))
    await finished(client)
    last = client.of("turn_finished")[0]["lodger_event"]
    key = wire.house.key
    await wire.house.conversations.events_after(key, 0)
    await wire.house.database.write(lambda c: event_rows.keep_newest(c, key, 3))
    point = await wire.house.conversations.resume_point(key, cursor)
    returned = wire.client()
    answer = await returned.ask(start(wire, client_info=info, after_event=cursor))
    assert returned.outline()[0] == "lodger_resync"
    [told] = returned.of("lodger_resync")
    assert told["after_event"] == point
    assert (0 < point <= last) if cursor == 0 else point == answer["lodger_last_event"]
    plain = wire.client()
    await plain.ask(start(wire, after_event=cursor))
    assert not plain.of("lodger_resync")


async def test_a_client_without_a_person_says_so(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire, client_info={"name": "ask", "capabilities": ["no_questions"]}))
    wire.house.models.play(calls("ask me"), says("done"))
    await client.ask(message(wire, "go"))
    await finished(client)
    assert not client.of("control_request")


async def test_a_legacy_message_runs_without_an_acknowledgement(wire: WireHouse) -> None:
    client = wire.client()
    frame = {"type": "message", "agentId": runtime(wire)["agent_id"], "messages": [{"role": "user", "content": "hi"}]}
    await client.say(frame)
    await finished(client)
    assert not client.of("input_accepted")


async def test_what_tells_of_a_steps_work_leaves_with_whatever_else_there_is_to_tell(
    wire: WireHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "GATHER_S", 3600.0)
    client = wire.client()
    await client.ask(start(wire))
    wire.house.models.play(calls("one"), says("done"))
    await client.ask(message(wire, "go"))
    await finished(client)
    types = [frame.get("delta", {}).get("message_type") for frame in client.frames]
    writes = [number for number, count in enumerate(client.sends) for _ in range(count)]
    order = ["client_tool_start", "client_tool_end", "tool_return_message", "assistant_message"]
    assert [one for one in types if one in order] == order
    assert writes[types.index("client_tool_start")] == writes[types.index("tool_return_message")]


async def test_what_gathers_leaves_by_itself_when_nothing_else_comes(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire))
    gate = wire.house.toolbox.gates["one"] = Gate()
    wire.house.models.play(calls("one"), says("done"))
    await client.ask(message(wire, "go"))
    await client.until(
        lambda: any(f["delta"]["message_type"] == "client_tool_start" for f in client.of("stream_delta"))
    )
    gate.opened.set()
    await finished(client)


async def test_what_waits_leaves_together_up_to_a_number_and_a_size(wire: WireHouse) -> None:
    client = wire.client()
    for number in range(2 * FRAMES_PER_LIMIT + 3):
        client.connection.respond_bytes(b'{"n":%d}' % number)
    await client.until(lambda: len(client.frames) == 2 * FRAMES_PER_LIMIT + 3)
    assert client.sends == [FRAMES_PER_LIMIT, FRAMES_PER_LIMIT, 3]
    assert [frame["n"] for frame in client.frames] == [*range(2 * FRAMES_PER_LIMIT + 3)]
    client.sends.clear()
    for _ in range(4):
        client.connection.respond_bytes(b'{"text":"%s"}' % (b"x" * (WRITE_BYTES // 2)))
    await client.until(lambda: len(client.sends) == 2)
    assert client.sends == [2, 2]
