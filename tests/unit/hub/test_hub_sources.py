"""Where a caller comes from, behind proxies that are trusted and behind those that are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_hub.access.core.sources import LOOPBACK, Source, networks, source_of_call

PROXIES = (*LOOPBACK, *networks(["10.0.0.0/24"]))


@pytest.mark.parametrize(
    ("peer", "forwarded", "source"),
    [
        ("203.0.113.7", ["198.51.100.1"], Source("203.0.113.7")),
        ("127.0.0.1", [], Source("127.0.0.1")),
        ("127.0.0.1", ["198.51.100.1"], Source("198.51.100.1", "127.0.0.1")),
        ("::1", ["198.51.100.1"], Source("198.51.100.1", "::1")),
        # What stands in front was written by the caller.
        ("127.0.0.1", ["6.6.6.6, 198.51.100.1"], Source("198.51.100.1", "127.0.0.1")),
        ("127.0.0.1", ["6.6.6.6", "198.51.100.1"], Source("198.51.100.1", "127.0.0.1")),
        ("127.0.0.1", ["6.6.6.6, 198.51.100.1, 10.0.0.5"], Source("198.51.100.1", "127.0.0.1")),
        ("127.0.0.1", ["127.0.0.1, 10.0.0.5"], Source("127.0.0.1", "127.0.0.1")),
        ("127.0.0.1", ["198.51.100.1, nonsense"], Source("127.0.0.1")),
        ("127.0.0.1", ["198.51.100.1,"], Source("127.0.0.1")),
        ("127.0.0.1", ["9" * 5000], Source("127.0.0.1")),
        ("127.0.0.1", ["198.51.100.1:4711"], Source("198.51.100.1", "127.0.0.1")),
        ("127.0.0.1", ["[2001:db8:1:2:3::4]:4711"], Source("2001:db8:1:2::/64", "127.0.0.1")),
        ("127.0.0.1", ["2001:db8:1:2:3::4"], Source("2001:db8:1:2::/64", "127.0.0.1")),
        ("::ffff:127.0.0.1", ["198.51.100.1"], Source("198.51.100.1", "::ffff:127.0.0.1")),
        ("2001:db8::9", ["198.51.100.1"], Source("2001:db8::/64")),
        ("fe80::1%eth0", [], Source("fe80::/64")),
        ("", ["198.51.100.1"], Source("unknown")),
    ],
)
def test_a_source_is_the_last_address_that_no_proxy_of_ours_has(
    peer: str, forwarded: list[str], source: Source
) -> None:
    assert source_of_call(peer, forwarded, PROXIES) == source


def test_without_trusted_proxies_nobodys_word_counts() -> None:
    assert source_of_call("127.0.0.1", ["198.51.100.1"], ()) == Source("127.0.0.1")


@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=4))
def test_any_header_gives_a_source(peer: str, forwarded: list[str]) -> None:
    assert source_of_call(peer, forwarded, PROXIES).address


@given(st.lists(st.sampled_from(["1.2.3.4", "10.0.0.7", "x", "", "::1"]), max_size=5).map(", ".join))
def test_what_a_caller_writes_in_front_changes_nothing(invented: str) -> None:
    forwarded = [f"{invented}, 198.51.100.1" if invented else "198.51.100.1"]
    assert source_of_call("127.0.0.1", forwarded, PROXIES) == Source("198.51.100.1", "127.0.0.1")


def test_a_network_that_is_none_is_told() -> None:
    with pytest.raises(ValueError, match=r"a trusted proxy is an address or a network such as 10\.0\.0\.0/24"):
        networks(["10.0.0.300"])
