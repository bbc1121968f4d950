"""What hubs, providers and machines say reaches the terminal as words, never as orders to it."""

import asyncio

import pytest

from lodger_cli import ask, connect, devices
from lodger_cli.terminal import fail
from lodger_cli.turn import TurnResult
from lodger_cli.wire import Frame

ORDER = "\x1b]0;owned\x07\x1b[2J"
"""Sets the window's title and empties the screen."""


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    written = capsys.readouterr()
    return written.out + written.err


def is_fit(text: str) -> bool:
    return bool(text) and not set(text) & {"\x1b", "\x07"}


def test_why_a_command_failed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail(f"the hub says {ORDER} no")
    assert is_fit(shown(capsys))


def test_why_a_turn_failed(capsys: pytest.CaptureFixture[str]) -> None:
    ask._tell(TurnResult("llm_api_error", error=f"HTTP 400: {ORDER}"))
    assert is_fit(shown(capsys))


def test_the_names_of_a_providers_models(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed(frame: Frame) -> Frame:
        await asyncio.sleep(0)
        return {"success": True, "entries": [{"handle": f"own/{ORDER}", "label": ORDER}]}

    monkeypatch.setattr(connect, "_request", listed)
    connect.models(as_json=False)
    assert is_fit(shown(capsys))


def test_the_names_of_devices(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    device = {"id": "device-1", "name": ORDER, "role": "client", "paired_at": 0, "last_seen_at": None}
    monkeypatch.setattr(devices, "_hub", lambda: None)
    monkeypatch.setattr(devices, "_ask", lambda *_, **__: {"devices": [device]})
    devices.list_devices(as_json=False)
    assert is_fit(shown(capsys))
