"""The sequences of PROTOCOL.md section 6, over real turns and a real database."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.clients.connection import STALL_S
from lodger_daemon.clients.errors import ClientCut
from lodger_daemon.models.contract import TextChunk
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_protocol.envelope import WireModel
from lodger_protocol.frames import parse_frame
from lodger_protocol.limits import BUFFERED_BYTES_LIMIT, QUEUED_FRAMES_LIMIT
from lodger_tools.json_value import JsonObject
from support.turn_parts import House, calls, says
from support.wire_client import Frame, WireClient, WireHouse


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[WireHouse]:
    house = House(tmp_path)
    wire = WireHouse(house)
    await house.start()
    wire.serve()
    yield wire
    await wire.router.aclose()
    await house.close()


def start(wire: WireHouse, **fields: object) -> Frame:
    agent = str(wire.house.key.agent_id)
    return {"type": "runtime_start", "request_id": "rs", "agent_id": agent, "conversation_id": "default", **fields}


def runtime(wire: WireHouse) -> Frame:
    return {"agent_id": str(wire.house.key.agent_id), "conversation_id": "default"}


def message(wire: WireHouse, text: str, client_id: str, **fields: object) -> Frame:
    payload = {
        "kind": "create_message",
        "messages": [{"role": "user", "content": text, "client_message_id": client_id}],
        **fields,
    }
    return {"type": "input", "request_id": f"in-{client_id}", "runtime": runtime(wire), "payload": payload}


async def finished(client: WireClient, count: int = 1) -> None:
    await client.until(lambda: len(client.of("turn_finished")) >= count)


async def test_start_answers_first_and_then_shows_the_state(wire: WireHouse) -> None:
    client = wire.client()
    response = await client.ask(start(wire))
    await client.until(lambda: len(client.frames) == 5)
    assert client.outline() == [
        "runtime_start_response",
        "device idle 0",
        "WAITING_ON_INPUT",
        "update_queue",
        "update_subagent_state",
    ]
    assert response["success"]
    assert response["runtime"] == runtime(wire)
    assert response["created"] == {"agent": False, "conversation": False}
    assert [frame.get("event_seq") for frame in client.frames] == [None, 1, 2, 3, 4]
    for frame in client.frames[1:]:
        assert frame["idempotency_key"].startswith(f"{frame['type']}:{frame['event_seq']}:")
        assert frame["runtime"] == runtime(wire)


async def test_start_may_show_the_state_first(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire, wait_for_replay=True))
    assert client.outline()[-1] == "runtime_start_response"
    assert len(client.frames) == 5


async def test_a_turn_in_its_order(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire, wait_for_replay=True))
    client.forget()
    wire.house.models.play(says("Hello ", "there"))
    accepted = await client.ask(message(wire, "Hi", "cm-1"))
    assert (accepted["accepted"], accepted["disposition"]) == (True, "started")
    await finished(client)
    await wire.house.settled()
    outline = client.outline()
    assert outline[0] == "input_accepted"
    tail = [word for word in outline if not word.startswith("device")]
    assert tail[1] == "SENDING_API_REQUEST"
    ends = tail[tail.index("assistant_message") :]
    assert ends == [
        "assistant_message",
        "assistant_message",
        "usage_statistics",
        "stop_reason",
        "WAITING_ON_INPUT",
        "turn_finished",
    ]
    first, second = client.deltas("assistant_message")
    assert first["otid"] == second["otid"]
    assert [first["content"], second["content"]] == [
        [{"type": "text", "text": "Hello "}],
        [{"type": "text", "text": "there"}],
    ]
    sequence = [frame["event_seq"] for frame in client.frames if "event_seq" in frame]
    assert sequence == list(range(sequence[0], sequence[0] + len(sequence)))


async def test_a_client_is_told_a_run_when_its_stream_names_it(wire: WireHouse) -> None:
    """And shown the run's figures under an id of their own: by the answer's id they would take its place."""
    client = wire.client()
    await client.ask(start(wire))
    wire.house.models.play(says("Hello"))
    await client.ask(message(wire, "Hi", "cm-1"))
    await finished(client)
    loops = [frame["loop_status"] for frame in client.of("update_loop_status")]
    opened, named = [loop for loop in loops if loop["status"] == "PROCESSING_API_RESPONSE"]
    assert (opened["active_run_ids"], opened.get("client_message_ids_by_run_id")) == ([], None)
    assert named["client_message_ids_by_run_id"] == {named["active_run_ids"][0]: ["cm-1"]}
    assert client.deltas("usage_statistics")[0]["id"] != client.deltas("assistant_message")[0]["id"]


async def test_messages_are_listed_with_their_conversation(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire))
    wire.house.models.play(says("Hello"))
    await client.ask(message(wire, "Hi", "cm-1"))
    await finished(client)
    query = {"agent_id": str(wire.house.key.agent_id)}
    page = {"type": "conversation_messages_list", "request_id": "p", "conversation_id": "default", "query": query}
    listed = (await client.ask(page))["messages"]
    shown = [(one["role"], one["content"], one["conversation_id"], one["date"][-1]) for one in listed]
    assert shown == [
        ("assistant", [{"type": "text", "text": "Hello"}], "default", "Z"),
        ("user", [{"type": "text", "text": "Hi"}], "default", "Z"),
    ]


async def test_pages_of_one_message_lose_no_part_of_an_answer(wire: WireHouse) -> None:
    """An answer is shown as several messages; the next page starts at the next whole answer."""
    client = wire.client()
    await client.ask(start(wire))
    wire.house.models.play([TextChunk("I look."), *calls("ls")], says("done"))
    await client.say(message(wire, "Look", "cm-1"))
    await finished(client)
    page = {"type": "conversation_messages_list", "request_id": "all", "conversation_id": "default"}
    query = {"agent_id": str(wire.house.key.agent_id)}
    everything = (await client.ask({**page, "query": query}))["messages"]
    paged, before = [], {}
    for number in range(len(everything)):
        answer = await client.ask({**page, "request_id": f"p{number}", "query": {**query, "limit": 1, **before}})
        paged += answer["messages"]
        if not answer["has_more"]:
            break
        before = {"before": answer["next_before"]}
    assert [one["message_type"] for one in everything] == [
        "assistant_message",
        "tool_return_message",
        "approval_request_message",
        "assistant_message",
        "user_message",
    ]
    assert paged == everything


async def test_every_frame_of_a_turn_is_a_known_frame(wire: WireHouse) -> None:
    import json

    client = wire.client()
    await client.ask(start(wire))
    wire.house.models.play(calls("echo hi"), says("done"))
    await client.say(message(wire, "Run", "cm-1"))
    await finished(client)
    for frame in client.frames:
        assert isinstance(parse_frame(json.dumps(frame).encode()), WireModel), frame


async def test_a_resent_message_runs_once(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire))
    wire.house.models.play(says("one"))
    await client.ask(message(wire, "Hi", "cm-1"))
    await finished(client)
    again = await client.ask({**message(wire, "Hi", "cm-1"), "request_id": "again"})
    assert (again["accepted"], again["disposition"]) == (True, "started")
    assert len(client.of("turn_finished")) == 1


async def test_broken_inputs_are_told_in_the_conversation(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire))
    bad = {"type": "input", "request_id": "x", "runtime": runtime(wire)}
    await client.say({**bad, "payload": {"kind": "create_message"}})
    await client.say({**bad, "payload": {"kind": "bogus"}})
    await client.say(
        {**bad, "payload": {"kind": "approval_response", "request_id": "p", "decision": {"behavior": "deny"}}}
    )
    approval = {"kind": "create_message", "messages": [{"type": "approval", "approvals": []}]}
    refused = await client.ask({**bad, "request_id": "x5", "payload": approval})
    assert (refused["accepted"], refused["error"]) == (False, "Approval payloads require approval_response")
    assert [delta["message"] for delta in client.deltas("loop_error")] == [
        "Protocol violation: input.kind=create_message requires payload.messages[]",
        "Unsupported input payload kind: bogus",
        "Protocol violation: input.kind=approval_response requires payload.request_id and either payload.decision or "
        "payload.error",
        "Protocol violation: approval payloads are not allowed in input.kind=create_message. "
        "Use input.kind=approval_response.",
    ]
    assert not any(delta["is_terminal"] for delta in client.deltas("loop_error"))
    assert [frame["request_id"] for frame in client.of("input_accepted")] == ["x5"]
    late = {"kind": "approval_response", "request_id": "perm-none", "decision": {"behavior": "allow"}}
    answer = await client.ask({**bad, "request_id": "x6", "payload": late})
    assert (answer["accepted"], answer["error"]) == (False, "Approval request is no longer pending")


async def test_what_start_refuses(wire: WireHouse) -> None:
    client = wire.client()
    agent = str(wire.house.key.agent_id)
    cases: list[tuple[Frame, str]] = [
        ({}, "runtime_start requires exactly one of agent_id or create_agent"),
        ({"agent_id": "agent-none"}, "Agent agent-none not found"),
        ({"agent_id": agent, "conversation_id": "conv-none"}, "Conversation conv-none not found"),
        (
            {"agent_id": agent, "conversation_id": "c", "create_conversation": {}},
            "runtime_start conversation_id cannot be combined with create_conversation",
        ),
        ({"agent_id": agent, "mode": "bogus"}, "Unsupported permission mode: bogus"),
    ]
    known = (await client.ask({"type": "agent_retrieve", "request_id": "k", "agent_id": agent}))["agent"]
    for number, (fields, error) in enumerate(cases):
        answer = await client.ask({"type": "runtime_start", "request_id": f"r{number}", **fields})
        assert answer == {
            "type": "runtime_start_response",
            "request_id": f"r{number}",
            "success": False,
            "runtime": None,
            # An agent that was found is shown, although its conversation was not.
            "agent": known if error.startswith("Conversation") else None,
            "conversation": None,
            "created": {"agent": False, "conversation": False},
            "error": error,
        }


async def test_a_created_agent_and_its_new_conversation(wire: WireHouse) -> None:
    client = wire.client()
    spec = {"body": {"name": "Ada", "description": "d", "model": "practice/practice", "tags": ["t"]}}
    answer = await client.ask({"type": "runtime_start", "request_id": "r", "create_agent": spec, "mode": "strict"})
    assert answer["created"] == {"agent": True, "conversation": True}
    assert answer["agent"]["name"] == "Ada"
    await client.until(lambda: bool(client.of("update_device_status")))
    assert client.of("update_device_status")[0]["device_status"]["current_permission_mode"] == "strict"


async def test_two_subscribers_see_the_same_and_a_third_nothing(wire: WireHouse) -> None:
    first, second, third = wire.client(), wire.client(), wire.client()
    await first.ask(start(wire))
    await second.ask({"type": "sync", "request_id": "s", "runtime": runtime(wire)})
    await third.ask({"type": "app_server_info", "request_id": "i"})
    wire.house.models.play(says("Hello"))
    await first.say(message(wire, "Hi", "cm-1"))
    await finished(first)
    await finished(second)
    assert first.deltas("assistant_message") == second.deltas("assistant_message")
    assert first.of("turn_finished")[0]["event_seq"] == second.of("turn_finished")[0]["event_seq"]
    assert len(third.frames) == 1


async def test_sync_of_an_unknown_pair_is_idle(wire: WireHouse) -> None:
    client = wire.client()
    scope = {"agent_id": "agent-unknown", "conversation_id": "conv-unknown"}
    assert await client.ask({"type": "sync", "request_id": "s", "runtime": scope}) == {
        "type": "sync_response",
        "request_id": "s",
        "runtime": scope,
        "success": True,
    }
    assert "WAITING_ON_INPUT" in client.outline()


async def test_an_unchanged_device_status_is_sent_only_when_forced(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire, wait_for_replay=True))
    sync = {"type": "sync", "runtime": runtime(wire)}
    await client.ask({**sync, "request_id": "s1"})
    assert len(client.of("update_device_status")) == 1
    await client.ask({**sync, "request_id": "s2", "force_device_status": True})
    assert len(client.of("update_device_status")) == 2


async def test_device_state_can_be_changed_and_is_always_shown(wire: WireHouse, tmp_path: Path) -> None:
    client = wire.client()
    await client.ask(start(wire, wait_for_replay=True))
    client.forget()
    change = {"type": "change_device_state", "runtime": runtime(wire)}
    await client.say({**change, "payload": {"mode": "strict"}})
    await client.until(lambda: client.outline()[-1:] == ["WAITING_ON_INPUT"])
    assert client.outline()[0] == "EXECUTING_COMMAND"
    assert client.of("update_device_status")[-1]["device_status"]["current_permission_mode"] == "strict"
    client.forget()
    await client.say({**change, "payload": {"cwd": "no-such-folder"}})
    await client.until(lambda: client.outline()[-1:] == ["WAITING_ON_INPUT"])
    assert client.of("update_device_status")[-1]["device_status"]["current_working_directory"] == str(tmp_path)
    assert len(client.deltas("loop_error")) == 1


async def test_the_rest_of_the_commands_answer(wire: WireHouse) -> None:
    client = wire.client()
    agent = str(wire.house.key.agent_id)
    await client.ask(start(wire))
    listed = await client.ask({"type": "agent_list", "request_id": "1"})
    assert [one["id"] for one in listed["agents"]] == [agent]
    conversations = await client.ask({"type": "conversation_list", "request_id": "2", "query": {"agent_id": agent}})
    assert [one["id"] for one in conversations["conversations"]] == ["default"]
    models = await client.ask({"type": "list_models", "request_id": "3"})
    assert models["success"]
    unknown = {"type": "execute_command", "command_id": "toolset", "request_id": "4", "runtime": runtime(wire)}
    assert (await client.ask(unknown))["output"] == "Unknown command: toolset"
    await client.ask({**unknown, "command_id": "reload", "request_id": "5"})
    assert wire.facts.reloads == 1
    assert client.deltas("slash_command_end")[0]["output"] == "Settings read again"
    absent = await client.ask({"type": "read_file", "request_id": "6", "path": "/etc/passwd"})
    assert (absent["success"], absent["content"]) == (False, None)
    channels = await client.ask({"type": "channels_list", "request_id": "7"})
    assert channels == {"type": "channels_list_response", "request_id": "7", "success": True, "channels": []}
    page = {"type": "conversation_messages_list", "request_id": "8", "conversation_id": "default"}
    assert "query.agent_id" in (await client.ask(page))["error"]
    await client.say({"type": "no_such_command", "request_id": "9"})
    await client.say({"type": "ping"})
    malformed = await client.ask({"type": "agent_retrieve", "request_id": "10"})
    assert malformed["error"].startswith("Malformed agent_retrieve: agent_id")
    idle = await client.ask({"type": "abort_message", "request_id": "11", "runtime": runtime(wire)})
    assert (idle["aborted"], idle["success"]) == (False, True)
    gone = {"type": "remove_queue_item", "request_id": "12", "runtime": runtime(wire), "item_id": "q-999"}
    assert not (await client.ask(gone))["success"]


async def test_provider_keys_are_set_on_this_machine_only(wire: WireHouse) -> None:
    far = wire.client(local=False)
    fields = {"apiKey": "secret"}
    command = {"type": "connect_provider", "request_id": "1", "target": "local", "provider_id": "p", "fields": fields}
    refused = await far.ask(command)
    assert not refused["success"]
    assert "lodger connect" in refused["error"]


async def test_a_tool_of_a_client_is_called_and_dies_with_it(wire: WireHouse) -> None:
    client = wire.client()
    tool = {"name": "lookup_weather", "description": "Look up weather", "parameters": {"type": "object"}}
    await client.ask(start(wire, external_tools=[{"tools": [tool]}]))
    assert [one.name for one in wire.tools.tools(wire.house.key)] == ["lookup_weather"]
    call = asyncio.create_task(wire.tools.call(wire.house.key, "call-1", "lookup_weather", {"city": "Paris"}))
    await client.until(lambda: bool(client.of("external_tool_call_request")))
    request = client.of("external_tool_call_request")[0]
    assert (request["tool_call_id"], request["input"]) == ("call-1", {"city": "Paris"})
    stranger = wire.client()
    answer = {"type": "external_tool_call_response", "request_id": request["request_id"]}
    await stranger.say({**answer, "error": "not mine"})
    await client.say({**answer, "result": {"content": [{"type": "text", "text": "Sunny"}]}})
    outcome = await call
    assert (outcome.status, outcome.text) == ("success", "Sunny")
    waiting = asyncio.create_task(wire.tools.call(wire.house.key, "call-2", "lookup_weather", {}))
    await client.until(lambda: len(client.of("external_tool_call_request")) == 2)
    await client.connection.close()
    assert (await waiting).text == "External tool execution error: Listener connection closed"
    assert wire.tools.tools(wire.house.key) == ()


@pytest.mark.parametrize("name", OwnQuestion)
async def test_no_tool_of_a_client_is_named_like_a_question_of_the_daemons_own(wire: WireHouse, name: str) -> None:
    """Allowing a call of `SpendLimit` would raise the limit that its arguments name."""
    client = wire.client()
    groups = [{"tools": [{"name": name, "description": "x", "parameters": {"type": "object"}}]}]
    refused = await client.ask(start(wire, external_tools=groups))
    assert not refused["success"]
    assert name in refused["error"]
    await client.ask(start(wire))
    update = {"runtimes": [runtime(wire)], "external_tools": groups}
    refused = await client.ask({"type": "runtime_external_tools_update", "request_id": "u", "updates": [update]})
    assert not refused["success"]
    assert wire.tools.tools(wire.house.key) == ()


async def test_a_returning_client_gets_what_it_missed(wire: WireHouse) -> None:
    client = wire.client()
    info = {"name": "page", "capabilities": {"resume": True}}
    await client.ask(start(wire, client_info=info))
    wire.house.models.play(says("Hello ", "there"))
    await client.say(message(wire, "Hi", "cm-1"))
    await finished(client)
    await wire.house.settled()
    seen = [frame["lodger_event"] for frame in client.frames if "lodger_event" in frame]
    assert seen == sorted(set(seen))
    cursor = client.of("stream_delta")[0]["lodger_event"]
    await client.connection.close()
    returned = wire.client()
    answer = await returned.ask(start(wire, client_info=info, after_event=cursor, wait_for_replay=True))
    again = [frame for frame in returned.of("stream_delta") if "lodger_event" in frame]
    wanted = [frame for frame in client.of("stream_delta") if frame["lodger_event"] > cursor]
    assert [frame["delta"] for frame in again] == [frame["delta"] for frame in wanted]
    assert len(returned.of("turn_finished")) == 1
    assert answer["lodger_last_event"] >= max(seen)
    plain = wire.client()
    await plain.ask(start(wire, after_event=cursor, wait_for_replay=True))
    assert not plain.of("stream_delta")
    assert not any("lodger_event" in frame for frame in plain.frames)


async def test_waiting_fragments_are_merged_for_those_who_asked(wire: WireHouse) -> None:
    plain, merged = wire.client(), wire.client()
    await plain.ask(start(wire))
    await merged.ask(start(wire, client_info={"name": "page", "capabilities": ["batch_deltas"]}, wait_for_replay=True))
    merged.gate.clear()
    wire.house.models.play(says(*"abcdef"))
    await plain.say(message(wire, "Hi", "cm-1"))
    await finished(plain)
    merged.gate.set()
    await finished(merged)

    def text(client: WireClient) -> str:
        return "".join(delta["content"][0]["text"] for delta in client.deltas("assistant_message"))

    assert text(plain) == text(merged) == "abcdef"
    assert len(plain.deltas("assistant_message")) == 6
    assert len(merged.deltas("assistant_message")) == 1


async def test_a_client_that_reads_nothing_is_cut_and_others_go_on(wire: WireHouse) -> None:
    slow, quick = wire.client(open_gate=False), wire.client()
    await quick.ask(start(wire))
    info = {"type": "app_server_info", "request_id": "i"}
    await slow.say(info)
    await asyncio.sleep(0)
    for _ in range(QUEUED_FRAMES_LIMIT + 10):
        await slow.say(info)
    assert not slow.was_cut
    wire.house.clock.advance(STALL_S + 0.1)
    await slow.say(info)
    assert slow.was_cut
    with pytest.raises(ClientCut):
        await slow.say({"type": "ping"})
    assert (await quick.ask({"type": "app_server_info", "request_id": "still"}))["success"]


async def test_a_burst_within_one_turn_of_the_loop_reaches_a_client_that_reads(wire: WireHouse) -> None:
    client = wire.client()
    await client.ask(start(wire))
    wire.house.models.play(says(*["x"] * (3 * QUEUED_FRAMES_LIMIT)))
    await client.say(message(wire, "Hi", "cm-1"))
    await finished(client)
    assert len(client.deltas("assistant_message")) == 3 * QUEUED_FRAMES_LIMIT


async def test_one_large_answer_at_a_time_may_wait(wire: WireHouse) -> None:
    slow = wire.client(open_gate=False)
    large: JsonObject = {"type": "read_file_response", "content": "x" * (2 * BUFFERED_BYTES_LIMIT)}
    asked = [asyncio.create_task(slow.connection.respond_large({**large, "request_id": str(n)})) for n in range(3)]
    # The first is on its way and the second waits, beside as much else as may wait.
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    slow.connection.respond_bytes(b'"' + b"x" * (BUFFERED_BYTES_LIMIT - 2) + b'"')
    assert not slow.was_cut
    slow.gate.set()
    await slow.until(lambda: len(slow.frames) == 4)
    assert [frame["request_id"] for frame in slow.frames if isinstance(frame, dict)] == ["0", "1", "2"]
    assert not slow.was_cut


async def test_more_bytes_than_may_wait_cut_at_once(wire: WireHouse) -> None:
    slow = wire.client(open_gate=False)
    slow.connection.respond_bytes(b"x" * (BUFFERED_BYTES_LIMIT + 1))
    assert slow.was_cut
