"""Which model servers are on this machine; requests to those never go through a proxy."""

import pytest

from lodger_daemon.models.core.providers import is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "[::1]"])
def test_this_machine(host: str) -> None:
    assert is_loopback(f"http://{host}:11434/v1")


@pytest.mark.parametrize("host", ["127.example.org", "localhost.example.org", "10.0.0.1", "[fe80::1]", ""])
def test_another(host: str) -> None:
    assert not is_loopback(f"http://{host}:11434/v1")
