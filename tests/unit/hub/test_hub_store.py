"""What any engine of `HubStore` must do. Another engine joins by a line in `ENGINES`."""

import asyncio
import dataclasses
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from lodger_hub.access.tokens import prepare_tokens
from lodger_hub.errors import StoreFailed
from lodger_hub.store.contract import (
    AuditEntry,
    Device,
    Environment,
    HubStore,
    Mail,
    MailboxFull,
    MailDraft,
    MailKept,
    MailLimits,
    MailState,
    PairingCode,
    Registration,
    SenderGone,
    StoredToken,
    TokenRole,
)
from lodger_hub.store.schema import FIRST
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


def draft(
    message_id: str, at_ms: int = 100, machine: str = "d1", sender: str = "phone", frame: str = "{}"
) -> MailDraft:
    return MailDraft(machine, sender, message_id, f"request-{message_id}", frame, at_ms)


@pytest.fixture
async def ready(store: HubStore) -> HubStore:
    """With a machine, and two devices that may send."""
    await store.register(registration("d1", "c1"), 1)
    await store.register(registration("d2", "c2"), 1)
    await store.add_device(PHONE)
    await store.add_device(Device("tablet", "Tablet", TokenRole.CLIENT, 11, None))
    return store


async def kept(store: HubStore, given: MailDraft, limits: MailLimits | None = None) -> Mail:
    posted = await store.post_mail(given, limits or MailLimits())
    assert isinstance(posted, MailKept), posted
    return posted.mail


async def test_devices_come_in_order_and_take_all_theirs_along(ready: HubStore) -> None:
    await ready.add_device(Device("phone", "another name", TokenRole.MACHINE, 99, None))
    await ready.note_device_seen("phone", 50)
    listed = await ready.devices()
    assert [(one.id, one.name, one.last_seen_at_ms) for one in listed] == [
        ("phone", "Ada's phone", 50),
        ("tablet", "Tablet", None),
    ]
    for number, device in enumerate(("phone", "tablet")):
        await ready.add_token(StoredToken(f"t{number}", TokenRole.CLIENT, bytes([number]) * 32, 1, device))
    await kept(ready, draft("m1"))
    mine = await kept(ready, draft("m2", sender="tablet"))
    assert await ready.remove_device("phone", 7) is True
    assert await ready.remove_device("phone", 8) is False
    assert await ready.revoked_devices() == ["phone"]
    assert [token.id for token in await ready.tokens()] == ["t1"]
    assert await ready.next_mail("d1", 0) == mine
    assert await ready.post_mail(draft("m3"), MailLimits()) == SenderGone()


async def test_a_rotated_token_is_the_only_one(ready: HubStore) -> None:
    for number in range(2):
        await ready.add_token(StoredToken(f"t{number}", TokenRole.CLIENT, bytes([number]) * 32, 1, "phone"))
    new = StoredToken("t9", TokenRole.CLIENT, b"9" * 32, 2, "phone")
    assert await ready.replace_tokens(new) is True
    assert await ready.tokens() == [new]
    assert await ready.replace_tokens(StoredToken("t10", TokenRole.CLIENT, b"8" * 32, 2, "nobody")) is False
    assert await ready.tokens() == [new]


async def test_a_pairing_code_works_once_and_in_time(store: HubStore) -> None:
    def device(number: int) -> tuple[Device, StoredToken]:
        name = f"device-{number}"
        made = Device(name, name, TokenRole.CLIENT, 200, 200)
        return made, StoredToken(f"t{number}", TokenRole.CLIENT, bytes([number]) * 32, 200, name)

    await store.add_pairing(PairingCode(b"a" * 32, TokenRole.MACHINE, 100, 300), keep=2)
    results = await asyncio.gather(*(store.redeem_pairing(b"a" * 32, *device(number), 200) for number in range(5)))
    assert sorted(results, key=str) == [None] * 4 + [TokenRole.MACHINE]
    (made,) = await store.devices()
    (token,) = await store.tokens()
    assert (made.role, token.role, token.device_id) == (TokenRole.MACHINE, TokenRole.MACHINE, made.id)
    await store.add_pairing(PairingCode(b"b" * 32, TokenRole.CLIENT, 100, 300), keep=2)
    assert await store.redeem_pairing(b"b" * 32, *device(7), 300) is None
    for name in (b"c", b"d", b"e"):
        await store.add_pairing(PairingCode(name * 32, TokenRole.CLIENT, 150, 300), keep=2)
    assert await store.redeem_pairing(b"c" * 32, *device(8), 200) is None
    assert await store.redeem_pairing(b"d" * 32, *device(8), 200) is TokenRole.CLIENT


async def test_mail_is_kept_once_per_id_and_in_order(ready: HubStore) -> None:
    first = await kept(ready, draft("m1", frame='{"ü":1}'))
    assert first == Mail(
        seq=first.seq,
        machine_id="d1",
        sender_id="phone",
        client_message_id="m1",
        request_id="request-m1",
        state=MailState.WAITING,
        frame='{"ü":1}',
        size_bytes=8,
        posted_at_ms=100,
        settled_at_ms=None,
        reason=None,
        attempts=0,
    )
    second = await kept(ready, draft("m2", 101))
    assert await kept(ready, draft("m1", 102, frame='{"other":1}')) == first
    # Two devices, or two machines, may use one id.
    other = await kept(ready, draft("m1", 103, sender="tablet"))
    elsewhere = await kept(ready, draft("m1", 104, machine="d2"))
    assert [await ready.next_mail("d1", seq) for seq in (0, first.seq, second.seq, other.seq)] == [
        first,
        second,
        other,
        None,
    ]
    assert await ready.next_mail("d2", 0) == elsewhere
    await ready.settle_mail(first.seq, MailState.DELIVERED, None, 200)
    await ready.settle_mail(first.seq, MailState.REFUSED, "too late", 300)
    settled = dataclasses.replace(first, state=MailState.DELIVERED, frame=None, settled_at_ms=200)
    assert await kept(ready, draft("m1", 301)) == settled
    assert await ready.sent_mail("d1", "phone") == [settled, second]
    assert [await ready.note_mail_attempt(second.seq) for _ in range(2)] == [1, 2]
    assert await ready.take_mail_back("d1", "phone", "m1") is False
    assert await ready.take_mail_back("d1", "tablet", "m2") is False
    assert await ready.take_mail_back("d1", "phone", "m2") is True
    assert await ready.sent_mail("d1", "phone") == [settled]


async def test_a_full_mailbox_says_so_and_a_repeat_is_still_known(ready: HubStore) -> None:
    for limits, words in (
        (MailLimits(per_machine=2), "2 messages wait"),
        (MailLimits(per_machine_bytes=5), "at most"),
        (MailLimits(total_bytes=5), "the hub keeps"),
    ):
        await kept(ready, draft("m1"), limits)
        await kept(ready, draft("m2"), limits)
        refused = await ready.post_mail(draft("m3"), limits)
        assert isinstance(refused, MailboxFull)
        assert words in refused.reason
        assert (await kept(ready, draft("m1"), limits)).client_message_id == "m1"
    await kept(ready, draft("m3", machine="d2"), MailLimits(per_machine=2))


async def test_mail_grows_old_and_is_forgotten(ready: HubStore) -> None:
    limits = MailLimits(wait_ms=1000, memory_ms=500)
    first = await kept(ready, draft("m1", 100))
    await ready.age_mail(1099, limits)
    assert await ready.next_mail("d1", 0) == first
    await ready.age_mail(1100, limits)
    (expired,) = await ready.sent_mail("d1", "phone")
    assert (expired.state, expired.frame, expired.settled_at_ms) == (MailState.EXPIRED, None, 1100)
    assert expired.reason is not None
    await ready.age_mail(1600, limits)
    assert await ready.sent_mail("d1", "phone") == []


async def test_the_last_memory_sync_does_not_move_back(store: HubStore) -> None:
    await store.register(registration("d1", "c1"), 1)
    for at_ms in (500, 400):
        await store.note_memory_sync("c1", at_ms)
    found = await store.by_device("d1")
    assert found is not None
    assert found.memory_synced_at_ms == 500


async def test_a_file_of_the_first_schema_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "hub.db"
    with sqlite3.connect(file) as old:
        old.executescript(FIRST + "PRAGMA user_version = 1;")
        old.execute("INSERT INTO tokens VALUES ('t', 'client', ?, 1)", (b"x" * 32,))
        old.execute("INSERT INTO environments VALUES (1, 'e1', 'c1', 'd1', 'laptop', NULL, '{}', 1, 2, 3, 4)")
    old.close()
    store = await SqliteHubStore.open(file)
    assert await store.by_device("d1") == Environment("e1", "c1", "d1", "laptop", None, {}, 1, 2, 3, 4, None)
    book = await prepare_tokens(store, tmp_path, 5)
    assert len(await store.tokens()) == len(await store.devices()) == 2
    assert book.find(b"x" * 32) is None
    await store.aclose()


async def test_a_file_of_a_newer_hub_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "hub.db") as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(StoreFailed, match="newer hub"):
        await SqliteHubStore.open(tmp_path / "hub.db")
