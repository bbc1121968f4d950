"""One spelling for each host; everything that could be read in two ways is refused."""

from ipaddress import IPv4Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_sandbox.egress.core.addresses import folded, is_public
from lodger_sandbox.egress.core.hosts import BadHost, Destination, Literal, Name, parse_destination, parse_host


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a_b.example.org", "a_b.example.org"),
        ("localhost", "localhost"),
        ("93.184.216.34", "93.184.216.34"),
        ("[2606:2800::1]", "[2606:2800::1]"),
        ("2606:2800:0:0::1", "[2606:2800::1]"),
        ("[::ffff:10.0.0.1]", "10.0.0.1"),
        ("[2002:a00:1::]", "10.0.0.1"),
        ("[64:ff9b::7f00:1]", "127.0.0.1"),
        ("[::7f00:1]", "127.0.0.1"),
    ],
)
def test_one_spelling(text: str, canonical: str) -> None:
    assert str(parse_host(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0x7f000001",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.256",
        "1.2.3",
        "example.org..",
        ".example.org",
        "example..org",
        "-a.example.org",
        "a-.example.org",
        "user@example.org",
        "example.org\0.evil.test",
        "example.org\n",
        " example.org",
        "example.org/path",
        "exam ple.org",
        "exam%70le.org",
        "fe80::1%eth0",
        "[fe80::1%25eth0]",
        "[example.org]",
        "[::1",
        "bücher.example",
        "\uff45xample.org",
        "a" * 64 + ".org",
        ".".join(["a" * 60] * 5),
        "example.0rg",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(BadHost):
        parse_host(text)


@pytest.mark.parametrize("text", ["example.org", ":443", "example.org:", "example.org:0", "example.org:65536",
                                  "example.org:0443", "example.org:+443", "example.org:44 3", "::1:443",
                                  "a:b:443"])  # fmt: skip
def test_destination_needs_host_and_port(text: str) -> None:
    with pytest.raises(BadHost):
        parse_destination(text)


def test_destination() -> None:
    assert parse_destination("Example.org:443") == Destination(Name("example.org"), 443)
    assert parse_destination("[::1]:22") == Destination(Literal(ip_address("::1")), 22)


@given(st.text(max_size=300))
def test_any_text_is_a_canonical_host_or_refused(text: str) -> None:
    try:
        host = parse_host(text)
    except BadHost:
        return
    assert parse_host(str(host)) == host
    assert str(host) == str(host).lower()


@given(st.ip_addresses(v=4))
def test_every_clothing_of_an_address_is_the_address(address: IPv4Address) -> None:
    number = int(address)
    for text in (f"::ffff:{address}", f"64:ff9b::{number >> 16:x}:{number & 0xFFFF:x}",
                 f"2002:{number >> 16:x}:{number & 0xFFFF:x}::"):  # fmt: skip
        assert folded(ip_address(text)) == address
        assert is_public(ip_address(text)) == is_public(address)


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1", "127.8.8.8", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
     "100.100.100.200", "0.0.0.0", "255.255.255.255", "224.0.0.1", "192.0.0.192", "168.63.129.16", "::1", "::",
     "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "240.0.0.1", "::ffff:169.254.169.254"],
)  # fmt: skip
def test_not_of_the_open_network(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", ["93.184.216.34", "1.1.1.1", "2606:2800::1", "64:ff9b::101:101"])
def test_of_the_open_network(text: str) -> None:
    assert is_public(ip_address(text))
