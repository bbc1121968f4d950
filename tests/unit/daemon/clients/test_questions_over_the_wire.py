"""Questions as several clients see them at once: together or one by one, one effect from wherever it comes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.store import audit_rows
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


def runtime(wire: WireHouse, conversation: str = "default") -> Frame:
    return {"agent_id": str(wire.house.key.agent_id), "conversation_id": conversation}


async def joined(wire: WireHouse, name: str, *capabilities: str) -> WireClient:
    client = wire.client()
    info = {"name": name, "capabilities": [*capabilities]}
    started = await client.ask({"type": "runtime_start", "request_id": "rs", **runtime(wire), "client_info": info})
    assert started["success"]
    client.forget()
    return client


async def says_go(client: WireClient, wire: WireHouse, **fields: object) -> None:
    message = {"role": "user", "content": "go", "client_message_id": "m1"}
    payload = {"kind": "create_message", "messages": [message], **fields}
    await client.say({"type": "input", "request_id": "in", "runtime": runtime(wire), "payload": payload})


def answer(wire: WireHouse, question: str, number: int, conversation: str = "default", **decision: object) -> Frame:
    payload = {"kind": "approval_response", "request_id": question, "decision": {"behavior": "allow", **decision}}
    return {"type": "input", "request_id": f"a{number}", "runtime": runtime(wire, conversation), "payload": payload}


def pending(client: WireClient) -> list[str]:
    requests = client.of("update_device_status")[-1]["device_status"]["pending_control_requests"]
    return [request["request_id"] for request in requests]


async def until_asked(client: WireClient, count: int) -> list[str]:
    await client.until(lambda: len(client.of("control_request")) >= count)
    return [frame["request_id"] for frame in client.of("control_request")]


async def until_finished(client: WireClient) -> None:
    await client.until(lambda: bool(client.of("turn_finished")))


async def test_all_questions_come_at_once_where_they_can_be_shown_and_one_by_one_elsewhere(wire: WireHouse) -> None:
    page = await joined(wire, "page", "batch_questions")
    wire.house.models.play(calls("ask a", "ask b"), says("done"), calls("ask c", "ask d"), says("done"))
    await says_go(page, wire)
    assert await until_asked(page, 2) == ["perm-c1", "perm-c2"]
    await page.until(lambda: pending(page) == ["perm-c1", "perm-c2"])
    assert (await page.ask(answer(wire, "perm-c2", 1)))["accepted"]
    assert (await page.ask(answer(wire, "perm-c1", 2)))["accepted"]
    await until_finished(page)
    assert wire.house.toolbox.ran == ["ask a", "ask b"]

    plain = await joined(wire, "plain")
    message = {"role": "user", "content": "go", "client_message_id": "m2"}
    payload = {"kind": "create_message", "messages": [message]}
    await plain.say({"type": "input", "request_id": "in2", "runtime": runtime(wire), "payload": payload})
    assert await until_asked(plain, 1) == ["perm-c1"]
    assert (await plain.ask(answer(wire, "perm-c1", 3)))["accepted"]
    assert await until_asked(plain, 2) == ["perm-c1", "perm-c2"]
    assert (await plain.ask(answer(wire, "perm-c2", 4)))["accepted"]
    await until_finished(plain)


async def test_of_two_clients_that_answer_at_once_one_has_the_effect(wire: WireHouse) -> None:
    one, two = await joined(wire, "laptop"), await joined(wire, "phone")
    wire.house.models.play(calls("ask a"), says("done"))
    await says_go(one, wire)
    for client in (one, two):
        assert await until_asked(client, 1) == ["perm-c1"]
    deny = answer(wire, "perm-c1", 2)
    deny["payload"]["decision"] = {"behavior": "deny", "message": "no"}
    first, second = await asyncio.gather(one.ask(answer(wire, "perm-c1", 1)), two.ask(deny))
    assert [first["accepted"], second["accepted"]] == [True, False]
    assert second["error"] == "Approval request is no longer pending"
    for client in (one, two):
        await until_finished(client)
    assert wire.house.toolbox.ran == ["ask a"]
    rows = await wire.house.database.read(audit_rows.newest)
    assert [row.actor for row in rows if row.action == "question.allowed"] == ["laptop"]


async def test_answers_to_what_is_not_asked_change_nothing(wire: WireHouse) -> None:
    client = await joined(wire, "laptop")
    wire.house.models.play(calls("ask a"), says("done"))
    await says_go(client, wire)
    await until_asked(client, 1)
    other = await wire.house.conversations.create_conversation(wire.house.key.agent_id, {})
    wrong = [
        answer(wire, "perm-c9", 1),
        answer(wire, "perm-c1", 2, conversation=other.key.conversation_id),
        answer(wire, "c1", 3),
    ]
    for frame in wrong:
        refused = await client.ask(frame)
        assert (refused["accepted"], refused["error"]) == (False, "Approval request is no longer pending")
    assert wire.house.toolbox.ran == []
    assert (await client.ask(answer(wire, "perm-c1", 4)))["accepted"]
    await until_finished(client)
    assert not (await client.ask(answer(wire, "perm-c1", 5)))["accepted"], "late"
    assert wire.house.toolbox.ran == ["ask a"]


async def test_the_last_client_leaves_and_the_questions_wait_for_the_next(wire: WireHouse) -> None:
    first = await joined(wire, "laptop", "batch_questions")
    wire.house.models.play(calls("ask a", "ask b"), says("done"))
    await says_go(first, wire)
    await until_asked(first, 2)
    await first.connection.close()
    second = wire.client()
    await second.ask({"type": "runtime_start", "request_id": "rs", **runtime(wire)})
    assert await until_asked(second, 2) == ["perm-c1", "perm-c2"], "also a plain client is shown what is open"
    for number, question in enumerate(("perm-c1", "perm-c2")):
        assert (await second.ask(answer(wire, question, number)))["accepted"]
    await until_finished(second)
    assert wire.house.toolbox.ran == ["ask a", "ask b"]


async def test_a_client_may_wish_for_fewer_steps(wire: WireHouse) -> None:
    client = await joined(wire, "laptop")
    wire.house.models.play(calls("one"), calls("two"), says("done"))
    await says_go(client, wire, max_steps=1)
    await until_finished(client)
    assert client.of("turn_finished")[0]["stop_reason"] == "max_steps"
    assert wire.house.toolbox.ran == ["one"]
