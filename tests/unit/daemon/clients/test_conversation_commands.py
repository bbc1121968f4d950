"""Commands that make and change conversations (PROTOCOL.md 4.8, capture 15), over real turns and a real database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.identity import ConversationId, ConversationKey
from lodger_daemon.models.contract import AssistantMessage, ToolMessage, UserMessage
from lodger_tools.validator.tree import Layout
from support.turn_parts import Gate, House, calls, message, says
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


class Asking:
    """A client and its next request id."""

    def __init__(self, wire: WireHouse) -> None:
        self.client: WireClient = wire.client()
        self.agent = str(wire.house.key.agent_id)
        self.count = 0

    async def ask(self, command: str, **fields: object) -> Frame:
        self.count += 1
        return await self.client.ask({"type": command, "request_id": f"{command}-{self.count}", **fields})

    async def made(self, **body: object) -> Frame:
        answer = await self.ask("conversation_create", body={"agent_id": self.agent, **body})
        assert answer["success"], answer
        conversation: Frame = answer["conversation"]
        return conversation


async def said(wire: WireHouse, conversation_id: str, text: str) -> ConversationKey:
    """One turn in that conversation."""
    key = ConversationKey(wire.house.key.agent_id, ConversationId(conversation_id))
    await wire.house.conversations.submit(key, message(text, f"cm-{text}"))
    await wire.house.conversations.settled(key)
    return key


async def test_as_recorded(wire: WireHouse) -> None:
    """Capture 15: made, found, renamed, forked, recompiled."""
    asking = Asking(wire)
    made = await asking.made()
    assert {name: made[name] for name in ("agent_id", "archived", "archived_at", "last_message_at", "summary")} == {
        "agent_id": asking.agent,
        "archived": False,
        "archived_at": None,
        "last_message_at": None,
        "summary": None,
    }
    assert made["in_context_message_ids"] == []
    found = await asking.ask("conversation_retrieve", conversation_id=made["id"])
    assert found["conversation"] == made
    renamed = await asking.ask("conversation_update", conversation_id=made["id"], body={"summary": "Renamed"})
    assert renamed["conversation"] == {
        **made,
        "summary": "Renamed",
        "updated_at": renamed["conversation"]["updated_at"],
    }
    assert set(renamed) == {"type", "request_id", "success", "conversation"}
    missing = await asking.ask("conversation_update", conversation_id="conv-none", body={"summary": "x"})
    assert (missing["success"], missing["conversation"], missing["error"]) == (
        False,
        None,
        "Conversation conv-none not found",
    )
    prompt = await asking.ask("conversation_recompile", conversation_id=made["id"])
    assert "The person likes tea." in prompt["result"]
    assert (await asking.ask("agent_list", query={"limit": 1, "unknown": True}))["agents"][0]["id"] == asking.agent


async def test_what_a_conversation_can_be_given(wire: WireHouse) -> None:
    asking = Asking(wire)
    body = {"summary": "Trip", "tags": ["a", "b"], "model": "test/other", "hidden": True, "isolated": 7}
    made = await asking.made(**body)
    assert (made["summary"], made["tags"], made["model"]) == ("Trip", ["a", "b"], "test/other")
    archived = await asking.ask("conversation_update", conversation_id=made["id"], body={"archived": True})
    assert archived["conversation"]["archived"]
    assert archived["conversation"]["archived_at"] is not None
    back = await asking.ask("conversation_update", conversation_id=made["id"], body={"archived": False, "model": None})
    assert (back["conversation"]["archived"], "model" in back["conversation"]) == (False, False)


@pytest.mark.parametrize(
    "body",
    [
        {"summary": 7},
        {"summary": "x" * 2001},
        {"tags": "a"},
        {"tags": [1]},
        {"tags": ["a"] * 101},
        {"archived": "yes"},
        {"hidden": 1},
        {"model": {}},
    ],
)
async def test_nothing_is_changed_by_a_wrong_value(wire: WireHouse, body: Frame) -> None:
    asking = Asking(wire)
    made = await asking.made()
    refused = await asking.ask("conversation_update", conversation_id=made["id"], body={**body, "hidden": True} | body)
    assert not refused["success"]
    assert (await asking.ask("conversation_retrieve", conversation_id=made["id"]))["conversation"] == made
    assert not (await asking.ask("conversation_create", body={"agent_id": asking.agent, **body}))["success"]


async def test_who_is_meant_must_be_clear(wire: WireHouse) -> None:
    asking = Asking(wire)
    assert "Name the agent" in (await asking.ask("conversation_create", body={}))["error"]
    assert "not found" in (await asking.ask("conversation_create", body={"agent_id": "agent-none"}))["error"]
    assert "once per agent" in (await asking.ask("conversation_fork", conversation_id="default"))["error"]
    mine = await asking.ask("conversation_fork", conversation_id="default", body={"agent_id": asking.agent})
    assert mine["success"]
    made = await asking.made()
    other = await asking.ask("conversation_fork", conversation_id=made["id"], body={"agent_id": "agent-other"})
    assert not other["success"]
    malformed = await asking.ask("conversation_create", body=7)
    assert (malformed["success"], malformed["conversation"]) == (False, None)


async def test_a_changed_model_is_that_of_the_next_turn(wire: WireHouse) -> None:
    asking = Asking(wire)
    made = await asking.made()
    await said(wire, made["id"], "one")
    await asking.ask("conversation_update", conversation_id=made["id"], body={"model": "test/other"})
    await said(wire, made["id"], "two")
    assert [request.handle for request in wire.house.models.requests] == ["test/model", "test/other"]


async def test_a_fork_goes_its_own_way(wire: WireHouse) -> None:
    asking = Asking(wire)
    wire.house.models.play(calls("ls"), says("it is there"), says("in the fork"), says("in the first"))
    made = await asking.made(summary="Trip", tags=["t"])
    await wire.house.conversations.change_state(
        ConversationKey(wire.house.key.agent_id, ConversationId(made["id"])), None, str(wire.house.folder)
    )
    await said(wire, made["id"], "look")
    answer = await asking.ask("conversation_fork", conversation_id=made["id"], body={"hidden": True})
    fork = answer["conversation"]
    assert list(fork) == ["id"]
    assert fork["id"] != made["id"]
    first = await asking.ask("conversation_messages_list", conversation_id=made["id"], query={"order": "asc"})
    copied = await asking.ask("conversation_messages_list", conversation_id=fork["id"], query={"order": "asc"})
    assert [_said(one) for one in copied["messages"]] == [_said(one) for one in first["messages"]]
    assert not {one["id"] for one in copied["messages"]} & {one["id"] for one in first["messages"]}

    await said(wire, fork["id"], "more")
    seen = wire.house.models.requests[-1].messages
    assert [type(one) for one in seen[1:]] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
        UserMessage,
    ]
    await said(wire, made["id"], "else")
    after = await asking.ask("conversation_messages_list", conversation_id=made["id"], query={"order": "asc"})
    assert [one for one in after["messages"] if one.get("content") == [{"type": "text", "text": "in the fork"}]] == []
    listed = await asking.ask("conversation_retrieve", conversation_id=fork["id"])
    assert (listed["conversation"]["summary"], listed["conversation"]["tags"]) == ("Trip", ["t"])
    snapshot = await wire.house.conversations.snapshot(
        ConversationKey(wire.house.key.agent_id, ConversationId(fork["id"]))
    )
    assert snapshot.cwd == str(wire.house.folder)


async def test_hidden_conversations_are_listed_on_request(wire: WireHouse) -> None:
    asking = Asking(wire)
    seen, hidden = await asking.made(), await asking.made(hidden=True)

    async def listed(**query: object) -> set[str]:
        answer = await asking.ask("conversation_list", query={"agent_id": asking.agent, **query})
        return {one["id"] for one in answer["conversations"]}

    assert await listed() == {"default", seen["id"]}
    assert await listed(include_hidden=True) == {"default", seen["id"], hidden["id"]}


def _said(stored: Frame) -> Frame:
    own = {"id", "conversation_id"}
    return {name: value for name, value in stored.items() if name not in own}


async def test_a_fork_up_to_a_message(wire: WireHouse) -> None:
    asking = Asking(wire)
    wire.house.models.play(says("one"), says("two"))
    made = await asking.made()
    await said(wire, made["id"], "first")
    await said(wire, made["id"], "second")
    listed = await asking.ask("conversation_messages_list", conversation_id=made["id"], query={"order": "asc"})
    body = {"message_id": listed["messages"][1]["id"]}
    fork = (await asking.ask("conversation_fork", conversation_id=made["id"], body=body))["conversation"]
    copied = await asking.ask("conversation_messages_list", conversation_id=fork["id"], query={"order": "asc"})
    assert [_said(one) for one in copied["messages"]] == [_said(one) for one in listed["messages"][:2]]
    retrieved = await asking.ask("conversation_retrieve", conversation_id=fork["id"])
    assert len(retrieved["conversation"]["in_context_message_ids"]) == 2
    other = await asking.made()
    for source, message_id in ((other["id"], body["message_id"]), (made["id"], "message-none")):
        refused = await asking.ask("conversation_fork", conversation_id=source, body={"message_id": message_id})
        assert "has no message" in refused["error"]
    count = len((await asking.ask("conversation_list", query={"agent_id": asking.agent}))["conversations"])
    assert count == 4  # the default one, two that were made and one fork: a refused fork leaves nothing


async def test_a_fork_of_a_running_turn_can_be_talked_to(wire: WireHouse) -> None:
    asking = Asking(wire)
    gate = wire.house.toolbox.gates["wait"] = Gate()
    wire.house.models.play(calls("wait"), says("in the fork"))
    made = await asking.made()
    key = ConversationKey(wire.house.key.agent_id, ConversationId(made["id"]))
    await wire.house.conversations.submit(key, message("go", "cm-go"))
    await gate.reached.wait()
    fork = (await asking.ask("conversation_fork", conversation_id=made["id"]))["conversation"]
    await said(wire, fork["id"], "and you?")
    results = [one for one in wire.house.models.requests[-1].messages if isinstance(one, ToolMessage)]
    assert [one.is_error for one in results] == [True]
    gate.opened.set()
    await wire.house.conversations.settled(key)


async def test_compaction(wire: WireHouse) -> None:
    asking = Asking(wire)
    made = await asking.made()
    nothing = await asking.ask("conversation_compact", conversation_id=made["id"])
    assert (nothing["success"], nothing["compaction"]) == (False, None)
    assert "nothing to shorten" in nothing["error"]
    wire.house.models.play(*(says("long " * 400) for _ in range(12)))
    for turn in range(12):
        await said(wire, made["id"], f"{turn} " + "words " * 400)
    before = (await asking.ask("conversation_retrieve", conversation_id=made["id"]))["conversation"]
    wire.house.models.play(says("We talked at length."))
    wire.house.models.window = 8_000
    wire.house.clock.advance(3600)
    answer = await asking.ask("conversation_compact", conversation_id=made["id"])
    after = (await asking.ask("conversation_retrieve", conversation_id=made["id"]))["conversation"]
    assert answer["success"], answer
    assert "We talked at length." in answer["compaction"]["summary"]
    assert (answer["compaction"]["num_messages_before"], answer["compaction"]["num_messages_after"]) == (
        len(before["in_context_message_ids"]),
        len(after["in_context_message_ids"]),
    )
    # A fork before the summary is what was said, and one at the end begins with the summary.
    whole = (await asking.ask("conversation_fork", conversation_id=made["id"]))["conversation"]
    kept = (await asking.ask("conversation_retrieve", conversation_id=whole["id"]))["conversation"]
    assert len(kept["in_context_message_ids"]) == len(after["in_context_message_ids"])
    body = {"message_id": before["in_context_message_ids"][-1]}
    early = (await asking.ask("conversation_fork", conversation_id=made["id"], body=body))["conversation"]
    spoken = (await asking.ask("conversation_retrieve", conversation_id=early["id"]))["conversation"]
    assert len(spoken["in_context_message_ids"]) == len(before["in_context_message_ids"])


async def test_a_recompiled_prompt_is_that_of_the_next_request(wire: WireHouse) -> None:
    asking = Asking(wire)
    made = await asking.made()
    await said(wire, made["id"], "one")
    wire.house.memory.text = "The person likes coffee."
    wire.house.memory.head = "commit-2"
    wire.house.memory.layout = Layout.V1
    answer = await asking.ask("conversation_recompile", conversation_id=made["id"])
    assert "coffee" in answer["result"]
    assert "core files stand below system/" in answer["result"]
    await wire.house.restart()
    await said(wire, made["id"], "two")
    assert wire.house.models.requests[-1].messages[0].text == answer["result"]  # type: ignore[union-attr]


async def test_a_deleted_agent_is_gone_for_every_client(wire: WireHouse) -> None:
    """As in capture 15. What was said with it stays stored: the transcript is append-only."""
    asking = Asking(wire)
    made = await asking.made(summary="Trip")
    key = await said(wire, made["id"], "hello")
    hidden = await asking.ask("agent_update", agent_id=asking.agent, body={"hidden": True})
    assert hidden["agent"]["hidden"] is True
    deleted = await asking.ask("agent_delete", agent_id=asking.agent)
    assert deleted == {
        "type": "agent_delete_response",
        "request_id": deleted["request_id"],
        "success": True,
        "agent_id": asking.agent,
    }
    assert (await asking.ask("agent_list"))["agents"] == []
    assert (await asking.ask("conversation_list"))["conversations"] == []
    for command, named in (
        ("agent_retrieve", {"agent_id": asking.agent}),
        ("agent_update", {"agent_id": asking.agent, "body": {"name": "back"}}),
        ("agent_delete", {"agent_id": asking.agent}),
        ("conversation_retrieve", {"conversation_id": made["id"]}),
    ):
        answer = await asking.ask(command, **named)
        assert not answer["success"], command
    opened = await asking.ask("runtime_start", agent_id=asking.agent, conversation_id=made["id"])
    assert "not found" in opened["error"]
    assert "no agent" in str(await wire.house.conversations.submit(key, message("anybody?", "cm-late")))


async def test_an_agent_at_work_is_not_deleted(wire: WireHouse) -> None:
    asking = Asking(wire)
    gate = wire.house.toolbox.gates["wait"] = Gate()
    wire.house.models.play(calls("wait"), says("done"))
    await wire.house.conversations.submit(wire.house.key, message("work", "cm-work"))
    await gate.reached.wait()
    refused = await asking.ask("agent_delete", agent_id=asking.agent)
    assert not refused["success"] and "Stop its turns" in refused["error"]
    assert refused["agent_id"] == asking.agent
    gate.opened.set()
    await wire.house.conversations.settled(wire.house.key)
    assert (await asking.ask("agent_delete", agent_id=asking.agent))["success"]
