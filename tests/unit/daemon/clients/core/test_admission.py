"""Who may come in, how often somebody may be wrong, and whose socket it is."""

from dataclasses import replace
from http import HTTPStatus

import pytest

from lodger_daemon.clients.core.admission import (
    Admission,
    Credential,
    House,
    LetIn,
    ShowHealth,
    ShowInfo,
    TurnAway,
    Visit,
    admit,
    is_loopback,
)
from lodger_daemon.clients.core.lockout import (
    FIRST_LOCK_S,
    FREE_FAILURES,
    LONGEST_LOCK_S,
    SOURCES_KEPT,
    WINDOW_S,
    Lockout,
    Lockouts,
)
from lodger_daemon.clients.core.socket_owner import Endpoint, owner_uid
from lodger_daemon.clock import MonoTime

VISIT = Visit("/ws", True, False, ("127.0.0.1:5",), Credential.ABSENT, same_user=True)
OPEN = House("127.0.0.1", knows_tokens=False, token_required=False, locked=False)
REQUIRED = House("127.0.0.1", knows_tokens=True, token_required=True, locked=False)
OPTIONAL = House("127.0.0.1", knows_tokens=True, token_required=False, locked=False)


def refused(admission: Admission) -> int:
    assert isinstance(admission, TurnAway), admission
    return admission.status.value


@pytest.mark.parametrize(
    ("house", "credential", "same_user", "origin", "expected"),
    [
        (OPEN, Credential.ABSENT, True, False, 101),
        (OPEN, Credential.ABSENT, False, False, 401),
        (OPEN, Credential.ABSENT, True, True, 403),
        (REQUIRED, Credential.ABSENT, True, False, 401),
        (REQUIRED, Credential.WRONG, True, False, 401),
        (REQUIRED, Credential.NOT_BEARER, True, False, 401),
        (REQUIRED, Credential.GOOD, False, False, 101),
        (REQUIRED, Credential.GOOD, False, True, 101),
        (REQUIRED, Credential.ABSENT, True, True, 401),
        (OPTIONAL, Credential.ABSENT, True, False, 101),
        (OPTIONAL, Credential.ABSENT, False, False, 401),
        (OPTIONAL, Credential.ABSENT, True, True, 403),
        (OPTIONAL, Credential.WRONG, True, False, 401),
        (OPTIONAL, Credential.WRONG, True, True, 401),
        (OPTIONAL, Credential.GOOD, False, True, 101),
    ],
)
def test_upgrades(house: House, credential: Credential, same_user: bool, origin: bool, expected: int) -> None:
    visit = replace(VISIT, credential=credential, same_user=same_user, has_origin=origin)
    admission = admit(visit, house)
    assert admission == LetIn() if expected == 101 else refused(admission) == expected


def test_while_locked_only_a_right_credential_comes_in() -> None:
    locked = replace(OPTIONAL, locked=True)
    for credential in (Credential.WRONG, Credential.NOT_BEARER):
        assert refused(admit(replace(VISIT, credential=credential), locked)) == HTTPStatus.TOO_MANY_REQUESTS
    assert admit(replace(VISIT, credential=Credential.GOOD, same_user=False), locked) == LetIn()
    assert admit(VISIT, locked) == LetIn()


@pytest.mark.parametrize(
    ("hosts", "bound", "comes_in"),
    [
        (("localhost:8000",), "127.0.0.1", True),
        (("LOCALHOST",), "127.0.0.1", True),
        (("[::1]:8000",), "127.0.0.1", True),
        (("127.0.0.2",), "127.0.0.1", True),
        (("evil.test:8000",), "127.0.0.1", False),
        (("localhost.evil.test",), "127.0.0.1", False),
        (("192.168.1.5:8000",), "127.0.0.1", False),
        (("192.168.1.5:8000",), "0.0.0.0", True),
        (("evil.test",), "0.0.0.0", False),
        (("home.lan",), "home.lan", True),
        ((), "127.0.0.1", False),
        (("localhost", "evil.test"), "127.0.0.1", False),
        (("[::1",), "127.0.0.1", False),
        (("a" * 300,), "127.0.0.1", False),
    ],
)
def test_the_host_header_names_this_listener(hosts: tuple[str, ...], bound: str, comes_in: bool) -> None:
    admission = admit(replace(VISIT, hosts=hosts), replace(OPEN, bound_host=bound))
    assert (admission == LetIn()) is comes_in


def test_plain_paths() -> None:
    plain = replace(VISIT, is_upgrade=False)
    assert admit(replace(plain, target="/healthz", same_user=False), OPEN) == ShowHealth()
    assert admit(replace(plain, target="/app-server-info"), OPEN) == ShowInfo()
    assert refused(admit(replace(plain, target="/app-server-info", same_user=False), OPEN)) == 401
    assert refused(admit(replace(plain, target="/ws"), OPEN)) == 404
    assert refused(admit(replace(plain, target="/healthz", has_origin=True), OPEN)) == 403
    assert refused(admit(replace(VISIT, target="/ws?channel=stream"), REQUIRED)) == 426
    assert refused(admit(replace(VISIT, target="/elsewhere"), REQUIRED)) == 404


def test_loopback() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost")] == [True] * 3
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "192.168.0.1", "host.lan")] == [False] * 4


def test_lock_outs_grow_and_failures_far_apart_do_not_add_up() -> None:
    now, lockout, durations = 1000.0, Lockout(), []
    for _ in range(8):
        for _ in range(FREE_FAILURES):
            assert not lockout.is_locked(MonoTime(now))
            lockout = lockout.failed(MonoTime(now))
        durations.append(lockout.locked_until - now)
        assert lockout.is_locked(MonoTime(lockout.locked_until - 0.1))
        now = lockout.locked_until
    assert durations == [min(FIRST_LOCK_S * 2**n, LONGEST_LOCK_S) for n in range(8)]
    patient = Lockout()
    for number in range(5 * FREE_FAILURES):
        patient = patient.failed(MonoTime(1000.0 + number * (WINDOW_S / (FREE_FAILURES - 1))))
        assert patient.locks == 0
    assert replace(Lockout(), failures=5).succeeded().failures == 0


def test_w3_sources_are_counted_apart_and_their_number_is_bounded() -> None:
    lockouts, now = Lockouts(), MonoTime(1000.0)
    assert [lockouts.failed("uid 7", now) for _ in range(FREE_FAILURES)][-1] == FIRST_LOCK_S
    assert lockouts.is_locked("uid 7", now)
    assert not lockouts.is_locked("uid 8", now)
    for number in range(3 * SOURCES_KEPT):
        assert lockouts.failed(f"10.0.{number // 256}.{number % 256}", MonoTime(now + 61 + number / 1e4)) is None
    assert len(lockouts._sources) == SOURCES_KEPT
    for _ in range(FREE_FAILURES - 1):
        lockouts.failed("uid 9", MonoTime(5000.0))
    lockouts.succeeded("uid 9")
    assert lockouts.failed("uid 9", MonoTime(5000.0)) is None


TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:C001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1
   2: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000     5        0 3 1 0 20 4 30 10 -1
   3: 0100007F:C002 0100007F:1F90 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0
   garbage
"""
TCP6 = """  sl  local_address                         remote_address                        st tx rx tr when retr uid
   0: 0000000000000000FFFF00000100007F:C003 0000000000000000FFFF00000100007F:1F90 01 0:0 00:0 0  1001 0 4 1
   1: 00000000000000000000000001000000:C004 00000000000000000000000001000000:1F90 01 0:0 00:0 0  1002 0 5 1
"""


@pytest.mark.parametrize(
    ("address", "port", "uid"),
    [
        ("127.0.0.1", 0xC001, 1000),
        ("127.0.0.1", 0xC002, None),
        ("127.0.0.1", 0xC003, 1001),
        ("::1", 0xC004, 1002),
        ("::ffff:127.0.0.1", 0xC001, 1000),
        ("127.0.0.1", 0xC009, None),
    ],
)
def test_the_kernels_tables_name_the_owner(address: str, port: int, uid: int | None) -> None:
    server = "::1" if address == "::1" else "127.0.0.1"
    assert owner_uid((TCP, TCP6), Endpoint(address, port), Endpoint(server, 0x1F90)) == uid


def test_an_ambiguous_owner_is_none() -> None:
    twice = TCP + TCP.splitlines()[2].replace("  1000 ", "  1001 ") + "\n"
    assert owner_uid((twice,), Endpoint("127.0.0.1", 0xC001), Endpoint("127.0.0.1", 0x1F90)) is None
