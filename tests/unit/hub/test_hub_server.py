"""The hub as a process, and its options."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lodger_daemon.uplink.core.status import UplinkState
from lodger_hub.errors import UnsafeListener
from lodger_hub.options import HubOptions, LanListener, is_loopback
from lodger_hub.server import serve
from support.hub_rig import running_uplink, until


async def test_the_process_says_where_it_is_and_ends_in_order(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lodger_hub.server", "--state", str(tmp_path), "--port", "0", stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
        assert line["type"] == "hub_listening"
        token = (tmp_path / "machine.token").read_text().strip()
        assert token not in json.dumps(line)
        async with running_uplink(line["url"], token) as rig:
            await until(lambda: rig.uplink.status().state is UplinkState.CONNECTED, "connected")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "hub.example", "::"])
async def test_plain_http_beyond_loopback_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(UnsafeListener, match="certificate"):
        await serve(HubOptions(state=tmp_path, host=host, port=0))
    assert list(tmp_path.iterdir()) == []
    HubOptions(state=tmp_path, host=host, tls_certificate=tmp_path / "c", tls_key=tmp_path / "k").check()


async def test_when_one_listener_fails_the_other_does_not_run_on(tmp_path: Path) -> None:
    """It would be left serving with a store that is closed."""
    unusable = tmp_path / "unusable.pem"
    unusable.write_text("no certificate")
    lan = LanListener(host="127.0.0.1", port=0, certificate=unusable, key=unusable)
    with pytest.raises(OSError, match=r"PEM|SSL"):
        await asyncio.wait_for(serve(HubOptions(state=tmp_path / "hub", port=0, lan=lan)), 20)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_loopback_is_an_address_not_a_spelling() -> None:
    hosts = ["127.0.0.1", "127.8.9.1", "::1", "localhost", "127.0.0.1.evil.test", "", "10.0.0.1"]
    assert [is_loopback(host) for host in hosts] == [True, True, True, True, False, False, False]
