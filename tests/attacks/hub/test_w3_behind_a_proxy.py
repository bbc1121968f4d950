"""ATTACKS.md W3 and W4 where a proxy with a certificate stands in front of the hub."""

import asyncio
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from lodger_hub.access.core.lockout import WRONG_ATTEMPTS
from lodger_hub.access.gate import WRONG_THROUGH_PROXY
from lodger_hub.errors import BadAddress, StateInUse
from lodger_hub.options import HubOptions
from lodger_hub.server import serve
from lodger_hub.store.sqlite import SqliteHubStore
from support.hub_calls import call, http_of, page_socket, paired
from support.hub_rig import Hub, running_hub

PUBLIC = "https://hub.example"


async def tries(hub: Hub, count: int, forwarded: str, token: str = "wrong") -> list[int]:
    async with http_of(hub) as http:
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": forwarded}
        return [
            (
                await http.get("/v1/agents/", headers={**headers, "X-Forwarded-For": forwarded.format(number)})
            ).status_code
            for number in range(count)
        ]


async def locked_out(hub: Hub) -> list[str]:
    reader = await SqliteHubStore.open(hub.state / "hub.db")
    try:
        return [entry.source for entry in await reader.audit(100) if entry.event == "locked_out"]
    finally:
        await reader.aclose()


async def test_w3_a_guesser_behind_the_proxy_locks_out_only_itself(tmp_path: Path) -> None:
    async with running_hub(tmp_path, public_url=PUBLIC) as hub:
        assert await tries(hub, WRONG_ATTEMPTS + 1, "198.51.100.1") == [401] * WRONG_ATTEMPTS + [429]
        # Whatever it writes in front of what the proxy adds.
        assert await tries(hub, 2, "6.6.6.{0}, 198.51.100.1") == [429, 429]
        assert await tries(hub, 1, "203.0.113.5") == [401]
        assert await tries(hub, 1, "203.0.113.6", hub.token("client")) == [200]
        assert await locked_out(hub) == ["198.51.100.1"]


async def test_w3_a_guesser_that_plays_the_proxy_is_locked_out_too(tmp_path: Path) -> None:
    """Any user of the hub's machine may say whatever it likes in that header; a proven token still passes."""
    async with running_hub(tmp_path, public_url=PUBLIC) as hub:
        assert await tries(hub, 1, "203.0.113.6", hub.token("client")) == [200]
        statuses = await tries(hub, WRONG_THROUGH_PROXY + 5, "10.9.{0}.1")
        assert statuses == [401] * WRONG_THROUGH_PROXY + [429] * 5
        assert await locked_out(hub) == ["anywhere behind 127.0.0.1"]
        assert await tries(hub, 1, "203.0.113.6", hub.token("client")) == [200]


async def test_w3_without_a_public_address_the_header_is_nobodys_word(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        assert await tries(hub, WRONG_ATTEMPTS + 1, "10.9.8.{0}") == [401] * WRONG_ATTEMPTS + [429]
        assert await locked_out(hub) == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trusted_proxies": ("10.0.0.1",)}, "--public-url"),
        ({"trusted_proxies": ("everybody",), "public_url": PUBLIC}, "an address or a network"),
    ],
)
async def test_a_proxy_that_cannot_be_meant_is_refused(tmp_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(BadAddress, match=words):
        await serve(HubOptions(tmp_path, port=0, **options))  # type: ignore[arg-type] # as named


async def test_a_second_hub_on_one_folder_ends_with_words(tmp_path: Path) -> None:
    async with running_hub(tmp_path):
        with pytest.raises(StateInUse, match=f"another hub .* uses {tmp_path}: stop that one"):
            await serve(HubOptions(tmp_path, port=0))
        # As a process, which is what people see.
        argv = [sys.executable, "-m", "lodger_hub.server", "--state", str(tmp_path), "--port", "0"]
        ended = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, timeout=30, check=False)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.startswith("lodger hub: another hub (process ")
    async with running_hub(tmp_path):
        pass


async def test_refused_sockets_leave_no_complaint_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_hub(tmp_path) as hub:
        _, token = await paired(hub)
        with caplog.at_level(logging.WARNING):
            for machine, whose, status in (("device-1", "wrong", 401), ("nobody", token, 404)):
                with pytest.raises(InvalidStatus) as caught:
                    async with page_socket(hub, machine, whose):
                        pass
                assert caught.value.response.status_code == status
                assert caught.value.response.body.startswith(b'{"message"')
            assert (await call(hub, token, "GET", "/v1/devices"))[0] == 200
        assert [record.getMessage() for record in caplog.records] == []
