"""Pairing, revoking and rotating, without a network: codes, limits, and what happens at the same time."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_hub.access.core.credentials import digest_of
from lodger_hub.access.core.lockout import Lockout
from lodger_hub.access.core.pairing import (
    ALPHABET,
    CODE_LIFE_S,
    DEVICES_AT_ONCE,
    WRONG_CODES_IN_ALL,
    WRONG_CODES_PER_SOURCE,
    WRONG_LOCK_S,
    WRONG_WINDOW_S,
    code_from,
    device_name,
    distinct_name,
    read_code,
    shown_code,
)
from lodger_hub.access.devices import Devices
from lodger_hub.access.tokens import Principal, TokenBook, own_device_id, prepare_tokens
from lodger_hub.errors import RequestRefused
from lodger_hub.store.contract import Device, TokenRole
from lodger_hub.store.sqlite import SqliteHubStore


def test_codes_are_made_of_what_people_can_read_and_are_read_as_they_type() -> None:
    assert len(set(ALPHABET)) == 32
    assert code_from(bytes(range(250, 256)) + b"\x00\x20") == "TVWXYZ00"
    with pytest.raises(ValueError, match="entropy"):
        code_from(b"1234567")
    assert shown_code("ABCD0123") == "ABCD-0123"
    for typed in ("ABCD0123", "abcd-0123", " ab cd-o1 23", "ABCDO1-23", "abcd-oi23", "abcdol23"):
        assert read_code(typed) == "ABCD0123"
    for typed in ("", "ABCD-012", "ABCD-01234", "ABCD-012U", "ABCD-012é", "ABCD_0123"):
        assert read_code(typed) is None


def test_a_device_name_is_one_visible_line() -> None:
    assert device_name("  Ada's\n\tphone \x1b[2J ") == "Ada's phone [2J"
    assert device_name("x" * 200) == "x" * 64
    assert device_name("<b>Zoë</b>") == "<b>Zoë</b>"
    for empty in ("", "  ", "\x00\u202e\u200b"):
        assert device_name(empty) is None


def test_a_name_that_another_device_has_gets_a_number() -> None:
    assert distinct_name("Phone", ()) == "Phone"
    assert distinct_name("Phone", {"phone", "Phone 2"}) == "Phone"
    assert distinct_name("Phone", {"Phone", "Phone 2"}) == "Phone 3"
    long = "x" * 64
    assert distinct_name(long, {long}) == "x" * 62 + " 2", "and stays within the limit"


def test_the_documented_chance_of_a_guess_holds() -> None:
    """core/pairing.py: at most some 500 tries in the life of a code, at five codes."""
    locks = CODE_LIFE_S / WRONG_LOCK_S
    assert WRONG_CODES_IN_ALL * locks * 5 / 32**8 < 1 / 400_000_000
    assert WRONG_WINDOW_S >= CODE_LIFE_S


class Sockets:
    def __init__(self) -> None:
        self.ended: list[str] = []

    def end_token(self, token_id: str) -> None:
        self.ended.append(token_id)

    def announce_revoked(self, device_id: str) -> None:
        """The machines' part is tested with machines."""


class Desk:
    def __init__(self, store: SqliteHubStore, book: TokenBook, state: Path) -> None:
        self.now = 1000.0
        self.sockets = Sockets()
        self.lockout = Lockout()
        self.store, self.book, self.state = store, book, state
        self.devices = Devices(
            store, book, self.lockout, self.sockets, state, mono=lambda: self.now, wall=lambda: self.now
        )

    def owner(self) -> Principal:
        text = (self.state / "client.token").read_text().strip()
        found = self.book.find(digest_of(text))
        assert found is not None
        return found


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    store = await SqliteHubStore.open(tmp_path / "hub.db")
    yield Desk(store, await prepare_tokens(store, tmp_path, 1), tmp_path)
    await store.aclose()


async def refused(desk: Desk, code: str, source: str = "10.0.0.1", name: str = "phone") -> str:
    with pytest.raises(RequestRefused) as caught:
        await desk.devices.pair(code, name, source)
    return caught.value.code


async def test_a_code_pairs_one_device_as_a_client(desk: Desk) -> None:
    made = await desk.devices.make_code("127.0.0.1")
    assert made.expires_at_ms == 1_000_000 + CODE_LIFE_S * 1000
    paired = await desk.devices.pair(made.code.lower(), "phone", "10.0.0.1")
    principal = desk.book.find(digest_of(paired.token))
    assert principal is not None
    assert (principal.role, principal.device_id, principal.is_owner) == (TokenRole.CLIENT, paired.device.id, False)
    assert await refused(desk, made.code) == "wrong_code"
    # Neither code nor token is in the file as it is.
    content = b"".join(file.read_bytes() for file in desk.state.glob("hub.db*"))
    assert paired.token.encode() not in content
    assert made.code.encode() not in content
    events = [entry.event for entry in await desk.store.audit(10)]
    assert events == ["paired", "pairing_code_made"]


async def test_two_that_pair_at_once_under_one_name_can_be_told_apart(desk: Desk) -> None:
    codes = [await desk.devices.make_code("127.0.0.1") for _ in range(2)]
    pairing = [desk.devices.pair(made.code, "Firefox on Linux", "10.0.0.1") for made in codes]
    named = [paired.device.name for paired in await asyncio.gather(*pairing)]
    assert sorted(named) == ["Firefox on Linux", "Firefox on Linux 2"]
    assert {*named} <= {device.name for device in await desk.devices.list()}


async def test_the_codes_role_is_the_devices(desk: Desk) -> None:
    made = await desk.devices.make_code("127.0.0.1", TokenRole.MACHINE)
    paired = await desk.devices.pair(made.code, "laptop", "10.0.0.1")
    principal = desk.book.find(digest_of(paired.token))
    assert principal is not None
    assert (paired.device.role, principal.role, principal.is_owner) == (TokenRole.MACHINE, TokenRole.MACHINE, False)


async def test_a_code_grows_old(desk: Desk) -> None:
    made = await desk.devices.make_code("127.0.0.1")
    desk.now += CODE_LIFE_S
    assert await refused(desk, made.code) == "wrong_code"


async def test_of_many_who_bring_one_code_at_once_one_is_paired(desk: Desk) -> None:
    made = await desk.devices.make_code("127.0.0.1")
    tries = [desk.devices.pair(made.code, f"phone {number}", f"10.0.0.{number}") for number in range(20)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert len(await desk.devices.list()) == 3


async def test_wrong_codes_lock_a_source_and_all_sources_together(desk: Desk) -> None:
    codes = [await refused(desk, "0000-0000") for _ in range(WRONG_CODES_PER_SOURCE + 2)]
    assert codes == ["wrong_code"] * WRONG_CODES_PER_SOURCE + ["locked_out"] * 2
    made = await desk.devices.make_code("127.0.0.1")
    assert await refused(desk, made.code) == "locked_out"
    for number in range(WRONG_CODES_IN_ALL - WRONG_CODES_PER_SOURCE):
        assert await refused(desk, "no code at all", f"10.0.1.{number}") == "wrong_code"
    assert await refused(desk, made.code, "10.9.9.9") == "locked_out"
    assert [entry.event for entry in await desk.store.audit(10)].count("pairing_locked_out") == 2
    desk.now += WRONG_LOCK_S
    await desk.devices.pair(made.code, "phone", "10.9.9.9")


async def test_guesses_that_arrive_together_are_counted_one_by_one(desk: Desk) -> None:
    tries = [desk.devices.pair(f"{number:08}", "phone", "10.0.0.1") for number in range(100)]
    results = await asyncio.gather(*tries, return_exceptions=True)
    looked_at = [result for result in results if isinstance(result, RequestRefused) and result.code == "wrong_code"]
    assert len(looked_at) == WRONG_CODES_PER_SOURCE


async def test_right_codes_never_lock_anybody_out(desk: Desk) -> None:
    for number in range(WRONG_CODES_IN_ALL + 5):
        made = await desk.devices.make_code("127.0.0.1")
        await desk.devices.pair(made.code, f"phone {number}", "127.0.0.1")


async def test_devices_are_bounded_and_need_a_name(desk: Desk) -> None:
    for number in range(DEVICES_AT_ONCE):
        await desk.store.add_device(Device(f"d{number}", "x", TokenRole.CLIENT, 1, None))
    made = await desk.devices.make_code("127.0.0.1")
    assert await refused(desk, made.code) == "too_many_devices"
    assert await refused(desk, made.code, name=" \n") == "invalid_name"


async def test_revoking_ends_sockets_and_proof_before_the_store_is_asked(desk: Desk) -> None:
    made = await desk.devices.make_code("127.0.0.1")
    paired = await desk.devices.pair(made.code, "phone", "10.0.0.1")
    principal = desk.book.find(digest_of(paired.token))
    assert principal is not None
    desk.lockout.right("10.0.0.1", principal.digest, desk.now)
    revoking = asyncio.ensure_future(desk.devices.revoke(paired.device.id, "127.0.0.1"))
    await asyncio.sleep(0)
    assert desk.sockets.ended == [principal.token_id]
    assert desk.book.find(principal.digest) is None
    await revoking
    for _ in range(10):
        desk.lockout.wrong("10.0.0.1", desk.now)
    assert desk.lockout.wait_s("10.0.0.1", principal.digest, desk.now) > 0
    with pytest.raises(RequestRefused, match="revoked already"):
        await desk.devices.revoke(paired.device.id, "127.0.0.1")


async def test_the_hubs_own_devices_are_rotated_not_revoked(desk: Desk) -> None:
    owner = desk.owner()
    for role in TokenRole:
        with pytest.raises(RequestRefused, match="rotate"):
            await desk.devices.revoke(own_device_id(role), "127.0.0.1")
        before = (desk.state / f"{role.value}.token").read_text()
        assert await desk.devices.rotate(own_device_id(role), owner, "127.0.0.1") is None
        after = (desk.state / f"{role.value}.token").read_text()
        assert desk.book.find(digest_of(before.strip())) is None
        found = desk.book.find(digest_of(after.strip()))
        assert found is not None
        assert found.device_id == own_device_id(role)
    # The next start takes the same tokens up again.
    tokens = await desk.store.tokens()
    await prepare_tokens(desk.store, desk.state, 2)
    assert await desk.store.tokens() == tokens


async def test_a_device_replaces_its_own_token_and_no_others(desk: Desk) -> None:
    phones = []
    for name in ("one", "two"):
        made = await desk.devices.make_code("127.0.0.1")
        phones.append(await desk.devices.pair(made.code, name, "10.0.0.1"))
    mine = desk.book.find(digest_of(phones[0].token))
    assert mine is not None
    with pytest.raises(RequestRefused, match="its own token"):
        await desk.devices.rotate(phones[1].device.id, mine, "10.0.0.1")
    new = await desk.devices.rotate(mine.device_id, mine, "10.0.0.1")
    assert new is not None
    assert desk.book.find(digest_of(phones[0].token)) is None
    assert desk.sockets.ended == [mine.token_id]
    found = desk.book.find(digest_of(new))
    assert found is not None
    assert found == dataclasses.replace(mine, token_id=found.token_id, digest=digest_of(new))


async def test_a_revoked_device_is_not_put_back_by_a_rotation_under_way(desk: Desk) -> None:
    made = await desk.devices.make_code("127.0.0.1")
    paired = await desk.devices.pair(made.code, "phone", "10.0.0.1")
    rotating = asyncio.create_task(desk.devices.rotate(paired.device.id, desk.owner(), "127.0.0.1"))
    while not desk.devices._changing.locked():  # noqa: ASYNC110 - the moment of the race itself
        await asyncio.sleep(0)
    await desk.devices.revoke(paired.device.id, "127.0.0.1")
    new = await rotating
    assert new is not None
    assert desk.book.find(digest_of(new)) is None
    assert not desk.book.has_device(paired.device.id)


async def test_when_a_device_was_last_seen_is_kept_by_the_minute(desk: Desk) -> None:
    made = await desk.devices.make_code("127.0.0.1")
    paired = await desk.devices.pair(made.code, "phone", "10.0.0.1")
    for ahead_s in (100.0, 130.0, 161.0):
        desk.now = 1000.0 + ahead_s
        await desk.devices.note_seen(paired.device.id)
    stored = {device.id: device.last_seen_at_ms for device in await desk.store.devices()}
    assert stored[paired.device.id] == 1_161_000
    assert {device.id: device.last_seen_at_ms for device in await desk.devices.list()} == stored
