"""What any engine of `HubStore` must do. Another engine joins by a line in `ENGINES`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from lodger_hub.errors import StoreFailed
from lodger_hub.store.contract import AuditEntry, Device, Environment, HubStore, Registration, StoredToken, TokenRole
from lodger_hub.store.sqlite import SqliteHubStore

Open = Callable[[], Awaitable[HubStore]]


def sqlite_engine(folder: Path) -> Open:
    return lambda: SqliteHubStore.open(folder / "hub.db")


ENGINES = {"sqlite": sqlite_engine}


@pytest.fixture(params=list(ENGINES))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return ENGINES[request.param](tmp_path)


@pytest.fixture
async def store(opened: Open) -> AsyncIterator[HubStore]:
    store = await opened()
    yield store
    await store.aclose()


PHONE = Device("phone", "Ada's phone", TokenRole.CLIENT, 10, None)


def registration(device: str, connection: str, name: str = "laptop") -> Registration:
    return Registration(device, name, "server-1", {"os": "linux", "deep": {"a": [1, None]}}, connection)


async def test_a_registration_is_returned_as_it_came(store: HubStore) -> None:
    made = await store.register(registration("d1", "c1"), 100)
    expected = Environment(
        id=made.id,
        connection_id="c1",
        device_id="d1",
        connection_name="laptop",
        listener_instance_id="server-1",
        metadata={"os": "linux", "deep": {"a": [1, None]}},
        first_seen_at_ms=100,
        last_seen_at_ms=100,
        connected_at_ms=None,
        last_heartbeat_at_ms=None,
    )
    assert made == expected
    assert await store.by_connection("c1") == await store.by_device("d1") == expected


async def test_a_device_that_registers_again_keeps_its_id_and_loses_its_connection(store: HubStore) -> None:
    first = await store.register(registration("d1", "c1"), 100)
    await store.note_contact("c1", 150, connected=True)
    second = await store.register(registration("d1", "c2", "renamed"), 200)
    assert (second.id, second.connection_id, second.connection_name) == (first.id, "c2", "renamed")
    assert (second.first_seen_at_ms, second.last_seen_at_ms, second.connected_at_ms) == (100, 200, 150)
    assert await store.by_connection("c1") is None
    await store.note_contact("c1", 999)
    assert await store.by_device("d1") == second


async def test_contact_moves_the_heartbeat(store: HubStore) -> None:
    await store.register(registration("d1", "c1"), 100)
    await store.note_contact("c1", 200, connected=True)
    await store.note_contact("c1", 300)
    found = await store.by_connection("c1")
    assert found is not None
    assert (found.connected_at_ms, found.last_heartbeat_at_ms, found.last_seen_at_ms) == (200, 300, 300)


async def test_pages_follow_the_first_registration(store: HubStore) -> None:
    made = [await store.register(registration(f"d{n}", f"c{n}"), n) for n in range(5)]
    await store.register(registration("d0", "c0-again"), 99)
    pages = [await store.environments(2, None)]
    pages += [await store.environments(2, made[1].id), await store.environments(2, made[3].id)]
    assert [[one.device_id for one in page] for page in pages] == [["d0", "d1"], ["d2", "d3"], ["d4"]]
    assert await store.environments(5, "unknown") == []


async def test_tokens_and_audit(store: HubStore) -> None:
    tokens = [StoredToken(f"t{n}", role, bytes([n]) * 32, n, "phone") for n, role in enumerate(TokenRole)]
    await store.add_device(PHONE)
    for token in tokens:
        await store.add_token(token)
    assert await store.tokens() == tokens
    await store.revoke_tokens(["t0", "unknown"])
    assert await store.tokens() == tokens[1:]
    entries = [AuditEntry(n, "locked_out", "here") for n in range(3)]
    for entry in entries:
        await store.record(entry)
    assert await store.audit(2) == [entries[2], entries[1]]


async def test_everything_is_there_after_a_new_start(opened: Open) -> None:
    store = await opened()
    made = await store.register(registration("d1", "c1"), 100)
    await store.add_device(PHONE)
    await store.add_token(StoredToken("t", TokenRole.CLIENT, b"x" * 32, 1, "phone"))
    await store.aclose()
    with pytest.raises(StoreFailed):
        await store.tokens()
    again = await opened()
    assert await again.by_device("d1") == made
    assert len(await again.tokens()) == 1
    await again.aclose()


async def test_a_file_that_is_no_store_is_named(tmp_path: Path) -> None:
    file = tmp_path / "hub.db"
    file.write_bytes(b"not a database, whatever its name says" * 50)
    with pytest.raises(StoreFailed, match=r"hub\.db"):
        await SqliteHubStore.open(file)
