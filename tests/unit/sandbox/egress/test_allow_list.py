"""N1, N3, N7: what an allow-list lets out, and what it cannot mean."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_sandbox.egress.core.allow import (
    AllowList,
    BadAllowList,
    Pass,
    Refused,
    Unlisted,
    entry_for,
    parse_allow_list,
)
from lodger_sandbox.egress.core.hosts import parse_destination


def verdict(entries: list[str], to: str) -> type:
    return type(parse_allow_list(entries).judge(parse_destination(to)))


@pytest.mark.parametrize("to", ["example.org:443", "localhost:80", "1.1.1.1:53"])
def test_n1_an_empty_list_lets_nothing_out(to: str) -> None:
    assert verdict([], to) is Unlisted


@pytest.mark.parametrize(
    "raw",
    [None, "example.org", b"example.org", 7, {}, {"allow": []}, [None], [7], [["example.org"]], [""], ["*"], ["*."],
     ["*.org"], ["a*.example.org"], ["*.*.example.org"], ["https://example.org"], ["example.org/path"],
     ["example.org:"], ["example.org:http"], ["example.org:443:443"], ["user@example.org"],
     ["0.0.0.0/0"], ["[::/0]"], ["10.0.0.1/8"],
     ["[::1"], ["::1"], ["[::1]22"], ["example.org,evil.test"], ["example.org evil.test"], ["127.1"], [".example.org"],
     ["example.org"] * 1001],
)  # fmt: skip
def test_n1_a_list_that_means_nothing_is_an_error_and_never_an_empty_one(raw: object) -> None:
    with pytest.raises(BadAllowList):
        parse_allow_list(raw)


@pytest.mark.parametrize(
    "to",
    ["docs.python.example.evil.test:443", "docs.python.examplee:443", "xdocs.python.example:443",
     "a.docs.python.example:443", "python.example:443", "docs.python.example:22", "docs.python.example:8443"],
)  # fmt: skip
def test_n3_a_listed_name_is_exactly_that_name(to: str) -> None:
    assert verdict(["docs.python.example"], to) is Unlisted


def test_listed_names() -> None:
    assert verdict(["docs.python.example"], "DOCS.Python.example.:443") is Pass
    assert verdict(["docs.python.example"], "docs.python.example:80") is Pass
    assert verdict(["docs.python.example:22"], "docs.python.example:22") is Pass
    assert verdict(["docs.python.example:22"], "docs.python.example:443") is Unlisted
    assert verdict(["*.python.example"], "a.b.python.example:443") is Pass
    assert verdict(["*.python.example"], "python.example:443") is Unlisted
    assert verdict(["*.python.example"], "evilpython.example:443") is Unlisted
    assert verdict(["bücher.example"], "xn--bcher-kva.example:443") is Pass


def test_n7_private_addresses_need_their_own_entry() -> None:
    named = parse_allow_list(["intern.example"])
    assert isinstance(named.judge(parse_destination("intern.example:443")), Pass)
    for private in ("10.0.0.7", "127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.7"):
        assert isinstance(named.judge_address(ip_address(private), 443, frozenset), Refused)
        assert verdict(["intern.example"], f"[{private}]:443" if ":" in private else f"{private}:443") is Refused
    listed = parse_allow_list(["intern.example", "10.0.0.0/24:443", "[fd00::/16]:443"])
    assert listed.judge_address(ip_address("10.0.0.7"), 443, frozenset) is None
    assert listed.judge_address(ip_address("::ffff:10.0.0.7"), 443, frozenset) is None
    assert listed.judge_address(ip_address("fd00::9"), 443, frozenset) is None
    assert isinstance(listed.judge_address(ip_address("10.0.0.7"), 22, frozenset), Refused)
    assert isinstance(listed.judge_address(ip_address("10.0.1.7"), 443, frozenset), Refused)
    assert listed.judge_address(ip_address("1.1.1.1"), 443, frozenset) is None


@pytest.mark.parametrize("to", ["example.org:8080", "1.1.1.1:53", "[2606:2800::1]:443", "a.b.example.org:443"])
def test_always_adds_exactly_what_was_asked(to: str) -> None:
    destination = parse_destination(to)
    entry = entry_for(destination)
    allowed = AllowList((entry,))
    assert isinstance(allowed.judge(destination), Pass)
    assert parse_allow_list([str(entry)]).entries == (entry,)
    assert isinstance(allowed.judge(parse_destination("example.net:443")), Unlisted)


@given(st.lists(st.one_of(st.text(max_size=40), st.none(), st.integers()), max_size=5))
def test_any_list_is_read_or_refused_and_what_is_read_says_itself(raw: list[object]) -> None:
    try:
        allowed = parse_allow_list(raw)
    except BadAllowList:
        return
    assert parse_allow_list([str(entry) for entry in allowed.entries]).entries == allowed.entries
