"""The name server of a box: names get addresses of the box's own, and nobody is asked."""

import socket
import struct
from ipaddress import IPv4Address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lodger_sandbox.egress.core.dns import NAMES_LIMIT, NameBook, answer
from lodger_sandbox.egress.core.hosts import Name

A, AAAA = 1, 28


def query(*labels: bytes, kind: int = A, flags: int = 0x0100, questions: int = 1) -> bytes:
    name = b"".join(bytes((len(label),)) + label for label in labels) + b"\0"
    return struct.pack("!HHHHHH", 7, flags, questions, 0, 0, 0) + name + struct.pack("!HH", kind, 1)


def code(reply: bytes | None) -> int:
    assert reply is not None
    number, flags = struct.unpack_from("!HH", reply)
    assert (number, flags & 0x8000) == (7, 0x8000)
    return int(flags & 15)


def address(reply: bytes | None) -> IPv4Address | None:
    assert reply is not None
    return IPv4Address(reply[-4:]) if struct.unpack_from("!H", reply, 6)[0] else None


def test_a_name_has_one_address_however_it_is_written() -> None:
    names = NameBook()
    first = address(answer(query(b"Example", b"ORG"), names))
    assert first == IPv4Address("127.64.0.1")
    assert address(answer(query(b"example", b"org"), names)) == first
    assert address(answer(query(b"other", b"org"), names)) == IPv4Address("127.64.0.2")
    assert names.name_of(first) == Name("example.org")
    assert names.name_of(IPv4Address("127.64.0.3")) is None


def test_other_kinds_of_record_are_there_and_empty() -> None:
    names = NameBook()
    for kind in (AAAA, 16, 255):
        reply = answer(query(b"example", b"org", kind=kind), names)
        assert (code(reply), address(reply)) == (0, None)
    assert names.name_of(IPv4Address("127.64.0.1")) is None


@pytest.mark.parametrize(
    "labels", [(b"1",), (b"127", b"1"), (b"10", b"0", b"0", b"1"), (b"a.b", b"org"), (b"a\0", b"org")]
)
def test_what_is_no_name_of_a_host_does_not_exist(labels: tuple[bytes, ...]) -> None:
    assert code(answer(query(*labels), NameBook())) == 3


def test_there_is_an_end_to_names() -> None:
    names = NameBook()
    for number in range(NAMES_LIMIT):
        assert names.address_of(Name(f"n{number}.test")) is not None
    assert code(answer(query(b"more", b"test"), names)) == 2
    assert address(answer(query(b"n0", b"test"), names)) == IPv4Address("127.64.0.1")


@given(st.binary(max_size=600))
@example(query(b"a")[:-1])
@example(query(b"a", flags=0x8100))
@example(query(b"a", questions=2))
@example(query(b"a")[:12] + b"\xc0\x0c\0\1\0\1")
@example(query(b"a")[:12])
def test_any_bytes_get_no_answer_or_one(data: bytes) -> None:
    names = NameBook()
    reply = answer(data, names)
    assert reply is None or len(reply) <= len(data) + 16
    if reply is not None:
        assert reply[:2] == data[:2]
        given_to = names.name_of(IPv4Address("127.64.0.1"))
        # The address says the very name that the question has.
        assert (
            given_to is None
            or given_to.text.encode() in data.lower().replace(b"\x00", b".")
            or b"." in given_to.text.encode()
        )


def test_a_resolver_of_the_system_takes_it() -> None:
    assert socket.inet_aton("127.64.0.1") in (answer(query(b"example", b"org"), NameBook()) or b"")
