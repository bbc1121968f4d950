"""The machine's service under a real systemd, the first process of a container made of namespaces.

Needs root and a kernel that lets root make such a container; elsewhere it is skipped, and says why.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.programs import ROOT, World, new_world, until

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--cgroup", "--ipc", "--uts", "--net")
TRY = "mount -t cgroup2 cgroup2 /sys/fs/cgroup && mount -t tmpfs tmpfs /run && ip link set lo up"


def impossible() -> str:
    if os.geteuid() != 0:
        return "needs root"
    if any(str(path).startswith(("/tmp/", "/var/tmp/")) for path in (ROOT, Path(sys.prefix).resolve())):
        return "this checkout lies in a folder that units do not see"
    tried = subprocess.run([*UNSHARE, "sh", "-c", TRY], capture_output=True, text=True, timeout=30)
    return f"no container here: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("systemd") as made:
        yield made


@pytest.mark.needs("unshare", "ip", "systemctl", "useradd")
@pytest.mark.timeout(180)
async def test_the_machines_service_lives_under_a_real_systemd(world: World) -> None:
    if why := await asyncio.to_thread(impossible):
        pytest.skip(why)
    scratch, account = world.base / "scratch", world.base / "account.json"
    scratch.mkdir()
    reachable = {str(Path(path).resolve()) for path in (sys.base_prefix, sys.prefix, str(ROOT))}
    inner = [
        "bash", str(ROOT / "tests" / "support" / "systemd_container.sh"), str(scratch), sys.executable,
        str(ROOT / "tests" / "support" / "systemd_play.py"), *sorted(reachable - {"/usr"}),
    ]  # fmt: skip
    log = world.base / "container.log"
    with log.open("wb") as output:
        container = await asyncio.create_subprocess_exec(
            *UNSHARE,
            *inner,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LODGER_TEST_PLAY": str(account)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        await until(lambda: account.exists() or container.returncode is not None, "the play ends", 150)
    finally:
        if container.returncode is None:
            container.send_signal(signal.SIGKILL)
        await container.wait()
        print(log.read_text("utf-8", "replace")[-4000:])
    told = json.loads(account.read_text())
    print(json.dumps(told, indent=1))
    assert told.get("error") is None, told["error"]
    parts = [(part["part"], part["state"], part["enabled"]) for part in told["install"]["parts"]]
    assert (told["install"]["code"], parts) == (0, [("hub", "active", "enabled"), ("daemon", "active", "enabled")])
    assert told["connected"], told
    assert [file["done"] for file in told["again"]["files"]] == ["unchanged", "unchanged"]
    assert set(told["keys"]) == {"Bearer sk-credential-of-the-play"}, told["answer"]
    assert told["key_seen"] == []
    assert "lodger\nin-a-box" in told["asked"], "a box starts under the unit's restrictions"
    assert "cannot access '/run/credentials'" in told["asked"], told["asked"]
    assert (told["begun"], told["restart"]["code"], told["another"], told["ended"]) == (True, 0, True, True)
    assert (told["uninstall"]["code"], told["gone"], told["status"]) == (0, True, 3)
    assert told["stopped_in_s"] < 15
