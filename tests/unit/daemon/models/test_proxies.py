"""Which proxy stands before an address."""

import pytest

from lodger_daemon.models.core.proxies import proxy_url

PROXIES = {"http": "http://one:1", "https": "two:2"}


@pytest.mark.parametrize(
    ("url", "proxies", "found"),
    [
        ("http://a.example", PROXIES, "http://one:1"),
        ("https://a.example", PROXIES, "http://two:2"),
        ("https://a.example", {"http": "http://one:1"}, ""),
        ("https://a.example", {"http": "http://one:1", "all": "https://three:3"}, "https://three:3"),
        ("https://a.example", {"https": "", "all": "three:3"}, "http://three:3"),
        ("https://a.example", {}, ""),
    ],
)
def test_the_scheme_chooses(url: str, proxies: dict[str, str], found: str) -> None:
    assert proxy_url(url, proxies) == found


@pytest.mark.parametrize(
    ("url", "no", "is_direct"),
    [
        ("https://a.example", "", False),
        ("https://a.example", " , ", False),
        ("https://a.example", "b.example, *", True),
        ("https://a.example", "A.Example", True),
        ("https://deep.a.example", "a.example", True),
        ("https://deep.a.example", "*.a.example", True),
        ("https://deep.a.example", ".a.example", True),
        ("https://a.example", ".a.example", False),
        ("https://aa.example", "a.example", False),
        ("https://a.example:8443", "a.example:8443", True),
        ("https://a.example", "a.example:443", True),
        ("https://a.example", "a.example:8443", False),
        ("https://a.example", "http://a.example", False),
        ("https://a.example", "https://a.example", True),
        ("https://a.example", "all://a.example", True),
        ("https://10.0.0.7", "10.0.0.7", True),
        ("https://10.0.0.7", "10.0.0.0/8", False),
        ("https://[fd00::7]", "fd00::7", True),
        ("https://[fd00::7]", "[fd00::7]", True),
        ("https://[fd00::7]:8443", "[fd00::7]:8443", True),
        ("https://[fd00::7]", "[fd00::7]:8443", False),
        ("https://a.example", "*:443", True),
        ("https://a.example", ":443", False),
        ("https://a.example", ":, [], []:443, ://", False),
    ],
)
def test_some_are_reached_without(url: str, no: str, is_direct: bool) -> None:
    assert (proxy_url(url, {"all": "http://one:1", "no": no}) == "") is is_direct
