"""The kernel's tables of what listens, as this machine's own kernel writes them."""

import socket
from pathlib import Path

import pytest

from lodger_sandbox.ports.core.listeners import listening_ports


def tables() -> tuple[bytes, bytes]:
    return Path("/proc/self/net/tcp").read_bytes(), Path("/proc/self/net/tcp6").read_bytes()


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"])
def test_what_listens_on_loopback_or_everywhere_is_found(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as one:
        if address.startswith("::ffff"):
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        one.bind((address, 0))
        port = one.getsockname()[1]
        assert port not in listening_ports(*tables())
        one.listen()
        assert port in listening_ports(*tables())
        with socket.create_connection(one.getsockname()[:2]) as client:
            assert client.getsockname()[1] not in listening_ports(*tables())


def test_what_listens_at_another_address_is_not() -> None:
    with socket.create_server(("127.0.0.2", 0)) as one:
        assert one.getsockname()[1] not in listening_ports(*tables())


def test_a_table_that_is_cut_off_loses_its_last_line_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0)):
        head, *lines = tables()[0].splitlines(keepends=True)
    # Only what listens: a busy machine's table of connections is long, and the work is that length squared.
    whole = head + b"".join([line for line in lines if line.split()[3] == b"0A"][:20])
    found = listening_ports(whole)
    assert found
    for end in range(len(whole)):
        assert listening_ports(whole[:end]) <= found


@pytest.mark.parametrize("table", [b"", b"\n", b"head\n 0: xx:yy 0:0 0A\n", b"head\n 0: 0100007F 0:0 0A\n"])
def test_what_is_no_table_names_no_port(table: bytes) -> None:
    assert listening_ports(table) == frozenset()
