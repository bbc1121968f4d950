"""Search over all history, with a real database, a real index and real turns."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lodger_daemon.backends.core.transcript import MessageKind
from lodger_daemon.backends.local.history_tool import HistoryTool
from lodger_daemon.backends.local.search import HistorySearch, Wanted
from lodger_daemon.clients.history_search import SearchCommand
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ConversationId, ConversationKey, MessageId
from lodger_daemon.store import conversation_rows, message_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreFull
from lodger_daemon.store.message_rows import NewMessage
from lodger_daemon.turns.contract import ConversationError, NewAgent, StartRuntime
from lodger_tools.catalogue.history_search import HISTORY_TOOL
from lodger_tools.json_value import Json
from lodger_tools.toolbox_contract import Scheduling, ToolDescription, ToolOutcome
from support.turn_parts import House, calls, says


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    one = House(tmp_path)
    await one.start()
    yield one
    await one.close()


@pytest.fixture
async def history(house: House) -> AsyncIterator[HistorySearch]:
    one = HistorySearch(house.folder / "search.db", house.database, house.clock)
    yield one
    await one.aclose()


async def found(history: HistorySearch, query: str, **more: object) -> list[str]:
    page = await history.search(Wanted(query, **more))  # type: ignore[arg-type]  # whatever a test wants
    return [f"{one.kind}: {one.snippet}" for one in page.found]


async def turn(house: House, text: str, number: int) -> None:
    await house.say(text, f"m{number}")
    await house.settled()


async def test_everything_said_is_found_and_nothing_the_daemon_reminded_of(
    house: House, history: HistorySearch
) -> None:
    house.models.play(calls("ls harbour"), says("The harbour master is Ingrid."))
    await turn(house, "Who is at the harbour?", 1)
    assert await found(history, "harbour") == [
        "assistant: The harbour master is Ingrid.",
        "tool: ran ls harbour",
        'assistant: Bash {"command": "ls harbour"}',
        "user: Who is at the harbour?",
    ]
    assert await found(history, "permission") == []
    assert await found(history, "harb* ingr*") == ["assistant: The harbour master is Ingrid."]
    assert await found(history, '"master is"') == ["assistant: The harbour master is Ingrid."]
    assert await found(history, '"is master"') == []
    assert await found(history, "harbour -ingrid -ls") == ["user: Who is at the harbour?"]
    assert await found(history, "harbour", kinds=(MessageKind.USER,)) == ["user: Who is at the harbour?"]


async def test_what_compaction_has_hidden_is_found_all_the_same(house: House, history: HistorySearch) -> None:
    house.models.window = 3_000
    house.models.play(says("aye"))
    await turn(house, "the lighthouse is red", 0)
    for number in range(1, 9):
        house.models.play(says("long answer " * 60))
        await turn(house, f"question {number} " + "words " * 60, number)
    in_context = await house.database.read(lambda c: message_rows.in_context(c, house.key))
    assert "lighthouse" not in str([message.content for message in in_context])
    assert await found(history, "lighthouse") == ["user: the lighthouse is red"]


async def test_pages_follow_each_other_without_gap_or_repetition(house: House, history: HistorySearch) -> None:
    for number in range(7):
        await turn(house, f"tea {number}", number)
    seen: list[str] = []
    before: int | None = None
    for _ in range(10):
        page = await history.search(Wanted("tea", limit=3, before=before))
        seen += [one.snippet for one in page.found]
        before = page.next_before
        if before is None:
            break
    assert seen == [f"tea {number}" for number in reversed(range(7))]


async def test_agents_conversations_and_times_are_told_apart(house: House, history: HistorySearch) -> None:
    await turn(house, "tea here", 1)
    first = house.key
    house.clock.now += 86_400
    started = await house.conversations.start_runtime(StartRuntime(new_agent=NewAgent("Other")))
    house.key = started.key
    house.listen()
    await turn(house, "tea there", 2)
    assert await found(history, "tea") == ["user: tea there", "user: tea here"]
    assert await found(history, "tea", agent_id=first.agent_id) == ["user: tea here"]
    assert await found(history, "tea", conversation_id=house.key.conversation_id) == ["user: tea there"]
    assert await found(history, "tea", agent_id=AgentId("agent-none")) == []
    between = datetime.fromtimestamp(house.clock.wall() - 43_200, UTC).isoformat()
    for field, text in (("until", "tea here"), ("since", "tea there")):
        answered = await SearchCommand(history).answer({"query": "tea", field: between})
        results = answered["results"]
        assert isinstance(results, list)
        assert [one["snippet"] for one in results if isinstance(one, dict)] == [text]


async def test_hidden_conversations_are_looked_through_only_when_wanted(house: House, history: HistorySearch) -> None:
    await turn(house, "tea at four", 1)
    await house.conversations.fork_conversation(house.key, hidden=True)
    assert len(await found(history, "four")) == 1
    assert len(await found(history, "four", hidden=True)) == 2


async def test_a_lost_or_damaged_index_is_made_anew(house: House, history: HistorySearch) -> None:
    await turn(house, "tea", 1)
    path = house.folder / "search.db"
    assert await found(history, "tea") == ["user: tea"]
    await history.aclose()
    for damage in (b"", b"no database at all" * 1_000, None):
        for file in (path, path.with_name("search.db-wal"), path.with_name("search.db-shm")):
            file.unlink(missing_ok=True)
        if damage is not None:
            path.write_bytes(damage)
        again = HistorySearch(path, house.database, house.clock)
        assert await found(again, "tea") == ["user: tea"]
        await again.aclose()


async def test_an_index_damaged_in_its_middle_is_made_anew(house: House, history: HistorySearch) -> None:
    for number in range(20):
        await turn(house, f"tea {number} " + "words of all kinds " * 50, number)
    assert len(await found(history, "tea")) == 20
    await history.aclose()
    path = house.folder / "search.db"
    whole = path.read_bytes()
    for first in range(2, len(whole) // 4096):
        # Seen as it is opened, as it is searched, or as it is added to: that depends on the page.
        path.write_bytes(whole[: 4096 * first] + b"\xff" * (len(whole) - 4096 * first))
        again = HistorySearch(path, house.database, house.clock)
        assert len(await found(again, "tea")) == 20, first
        assert len(await found(again, "kinds")) == 20, first
        await again.aclose()


async def test_a_full_disk_fails_the_search_with_words_and_nothing_else(house: House, history: HistorySearch) -> None:
    await turn(house, "tea", 0)
    assert await found(history, "tea") == ["user: tea"]
    assert history._index is not None
    pages = history._index._connection.execute("PRAGMA page_count").fetchone()[0]
    history._index._connection.execute(f"PRAGMA max_page_count = {pages}")
    house.models.play(says("words of all kinds " * 3_000))
    await turn(house, "more tea", 1)
    with pytest.raises(StoreFull, match="Free some space"):
        await found(history, "tea")
    await turn(house, "tea again", 2)
    history._index._connection.execute("PRAGMA max_page_count = 1000000")
    assert await found(history, "tea") == ["user: tea again", "user: more tea", "user: tea"]


async def test_an_index_of_another_database_is_not_believed(house: House, tmp_path: Path) -> None:
    await turn(house, "tea", 1)
    path = house.folder / "search.db"
    history = HistorySearch(path, house.database, house.clock)
    assert await found(history, "tea") == ["user: tea"]
    await history.aclose()
    (tmp_path / "other").mkdir()
    other = House(tmp_path / "other")
    other._seed = 100
    await other.start()
    for number in range(3):
        await turn(other, "coffee", number)
    moved = HistorySearch(path, other.database, other.clock)
    assert (await found(moved, "tea"), len(await found(moved, "coffee"))) == ([], 3)
    await moved.aclose()
    await other.close()


async def test_a_search_in_other_scripts_finds_words_inside_sentences(house: House, history: HistorySearch) -> None:
    await turn(house, "毎朝お茶を飲みます。", 1)
    await turn(house, "Müller trinkt Tee", 2)
    assert await found(history, "お茶") == ["user: 毎朝お茶を飲みます。"]
    assert await found(history, "muller") == ["user: Müller trinkt Tee"]


async def test_the_wire_command_refuses_with_words(history: HistorySearch) -> None:
    wrong: list[tuple[dict[str, Json], str]] = [
        ({}, "at least one word"),
        ({"query": 7}, "query must be a text"),
        ({"query": "x", "limit": -1}, "limit"),
        ({"query": "x", "before": True}, "before"),
        ({"query": "x", "kinds": ["song"]}, "kinds"),
        ({"query": "x", "since": "soon"}, "no date"),
        ({"query": "x", "conversation_id": "default"}, "name the agent"),
        ({"query": "x", "conversation_id": "\ud83d"}, "conversation_id must be a text"),
    ]
    for command, words in wrong:
        with pytest.raises(ConversationError, match=words):
            await SearchCommand(history).answer(command)


async def test_ten_thousand_messages_are_indexed_beside_commits_that_do_not_wait(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.open()
    database: Database = house.database
    key = ConversationKey(AgentId("agent-1"), ConversationId("default"))

    def fill(connection: object) -> None:
        conversation_rows.ensure(connection, key, WallTime(1.0))  # type: ignore[arg-type]
        for number in range(10_000):
            content: dict[str, Json] = {"content": f"message {number} about harbours and tea " + "words " * 40}
            message = NewMessage(MessageId(f"m{number}"), message_rows.MessageKind.USER, content, WallTime(number))
            message_rows.append(connection, key, message)  # type: ignore[arg-type]

    await database.write(fill)
    history = HistorySearch(tmp_path / "search.db", database, house.clock)
    began = time.monotonic()
    catching_up = asyncio.ensure_future(history.catch_up())
    waits: list[float] = []
    while not catching_up.done():
        start = time.monotonic()
        await database.write(lambda connection: conversation_rows.touch(connection, key, WallTime(2.0)))
        waits.append(time.monotonic() - start)
    assert await catching_up == 10_000
    took = time.monotonic() - began
    start = time.monotonic()
    again = await history.catch_up()
    nothing_new_s = time.monotonic() - start
    print(
        f"indexed in {took:.2f} s beside {len(waits)} commits, slowest {max(waits):.3f} s; again {nothing_new_s:.4f} s"
    )
    assert again == 0
    await history.aclose()
    await house.close()


def agents_tool(house: House, history: HistorySearch) -> HistoryTool:
    return HistoryTool(house.external, history, house.database)


async def asked(house: House, tool: HistoryTool, **arguments: Json) -> ToolOutcome:
    return await tool.call(house.key, "c1", HISTORY_TOOL, arguments)


async def test_an_agent_finds_its_own_words_and_reads_them_whole(house: House, history: HistorySearch) -> None:
    house.models.play(says("The lighthouse is red. " + "It stands on a rock. " * 30))
    await turn(house, "What colour is the lighthouse?", 1)
    tool = agents_tool(house, history)
    found_it = await asked(house, tool, query="red rock")
    assert found_it.status == "success"
    message_id = found_it.text.split("(")[1].split()[0]
    whole = await asked(house, tool, message_id=message_id)
    assert whole.text.endswith("The lighthouse is red. " + "It stands on a rock. " * 29 + "It stands on a rock.")
    first = await asked(house, tool, query="lighthouse", limit=1)
    assert "before=" in first.text
    second = await asked(house, tool, query="lighthouse", limit=1, before=int(first.text.rsplit("=", 1)[1].strip(".")))
    assert "What colour" in second.text
    assert (await asked(house, tool, query="windmill")).text == "Nothing was found."


async def test_an_agent_finds_nothing_of_another_agent(house: House, history: HistorySearch) -> None:
    await turn(house, "a secret garden", 1)
    theirs = await house.database.read(lambda connection: message_rows.page(connection, house.key, 5))
    started = await house.conversations.start_runtime(StartRuntime(new_agent=NewAgent("Other")))
    house.key = started.key
    tool = agents_tool(house, history)
    assert (await asked(house, tool, query="garden")).text == "Nothing was found."
    for message in theirs:
        assert (await asked(house, tool, message_id=message.message_id)).status == "error"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"query": ""}, {"query": "x", "message_id": "m"}, {"query": 7}, {"query": "!"}, {"query": "x", "limit": 51},
     {"query": "x", "before": True}, {"message_id": "\ud83d"}, {"query": "\ud83d"}],
)  # fmt: skip
async def test_bad_arguments_are_told_to_the_model(
    house: House, history: HistorySearch, arguments: dict[str, Json]
) -> None:
    outcome = await asked(house, agents_tool(house, history), **arguments)
    assert (outcome.status, outcome.refused) == ("error", True)


async def test_no_client_can_take_its_name(house: House, history: HistorySearch) -> None:
    house.external.brought = tuple(
        ToolDescription(name, "a client's", {}, Scheduling.BARRIER) for name in (HISTORY_TOOL, "lamp")
    )
    tool = agents_tool(house, history)
    assert [one.name for one in tool.tools(house.key)] == [HISTORY_TOOL, "lamp"]
    await asked(house, tool, query="x")
    await tool.call(house.key, "c2", "lamp", {})
    assert [name for name, _ in house.external.called] == ["lamp"]
