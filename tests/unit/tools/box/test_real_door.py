"""A box's way out, through the real sandbox: the socket is made inside and accepted on outside."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_sandbox.egress.core.wire import Serve
from lodger_tools.box import record as records
from lodger_tools.box.contract import BoxCall, BoxKey, BoxLost, BoxOutcome, RunCommand
from lodger_tools.box.door import take_door
from lodger_tools.box.manager import BoxManager
from support.broker_rig import Rig, broker_rig, upstream
from support.real_boxes import RealRequests, workspace_for_tests

pytestmark = pytest.mark.needs("bwrap")
PORT = 3128
CURL = "curl -sS -m 40 --proxy http://127.0.0.1:3128"


class Boxed:
    """One real box."""

    def __init__(self, state: Path, workspace: Path) -> None:
        self.manager = BoxManager(state / "boxes", RealRequests(state, Path.home()))
        self.boxes = state / "boxes"
        self.key = BoxKey("agent-1", str(workspace))
        self.workspace = workspace
        self.count = 0

    async def run(self, command: str) -> BoxOutcome:
        self.count += 1
        return await self.manager.run(self.key, BoxCall(f"k{self.count}", RunCommand(command), str(self.workspace)))

    def found(self) -> records.FoundBox:
        (found,) = records.find_boxes(self.boxes)
        return found


@pytest.fixture
async def boxed(tmp_path: Path) -> AsyncIterator[Boxed]:
    with workspace_for_tests() as workspace:
        made = Boxed(tmp_path, workspace)
        yield made
        await made.manager.end(made.key)
        await made.manager.aclose()


async def connected(boxed: Boxed, rig: Rig) -> None:
    await boxed.run("true")
    with take_door(boxed.found(), PORT) as door:
        rig.daemon.say(Serve("real"), door.fileno())
    with socket.socket() as second:
        # For a box that has one already it is let go of.
        rig.daemon.say(Serve("real"), second.fileno())


async def test_a_program_in_the_box_reaches_what_is_listed_and_nothing_else(tmp_path: Path, boxed: Boxed) -> None:
    async with broker_rig(tmp_path, ask_limit_s=0.3) as rig, upstream() as there, upstream() as other:
        await connected(boxed, rig)
        rig.daemon.allow(f"127.0.0.1:{there.port}")
        url = f"http://127.0.0.1:{there.port}/"
        assert (await boxed.run(f"{CURL} {url}")).text == "hi"
        assert (await boxed.run(f"{CURL} -x socks5h://127.0.0.1:3128 {url}")).text == "hi"
        # The control for the next lines: without the broker there is no way at all.
        direct = await boxed.run(f"curl -sS -m 2 {url}")
        assert direct.status == "error"
        refused = await boxed.run(f"{CURL} http://127.0.0.1:{other.port}/")
        assert "lets no connection through" in refused.text
        assert other.received == []


async def test_the_backlog_holds_a_program_until_somebody_accepts(tmp_path: Path, boxed: Boxed) -> None:
    async with broker_rig(tmp_path) as rig, upstream() as there:
        await boxed.run("true")
        door = take_door(boxed.found(), PORT)
        door.close()
        rig.daemon.allow(f"127.0.0.1:{there.port}")
        await boxed.run(f"({CURL} http://127.0.0.1:{there.port}/ >answer 2>&1; echo done >>answer) >/dev/null 2>&1 &")
        with take_door(boxed.found(), PORT) as again:
            rig.daemon.say(Serve("real"), again.fileno())
        outcome = await boxed.run("while ! grep -q done answer; do sleep 0.02; done; cat answer")
        assert outcome.text == "hidone\n"


async def test_a_taken_port_is_said_and_a_stranger_gets_no_door(boxed: Boxed) -> None:
    await boxed.run("python3 -c 'import socket,os,time\ns=socket.create_server((\"127.0.0.1\",3128))\n"
                    "os.fork() and os._exit(0)\nos.close(1);os.close(2);time.sleep(30)'")  # fmt: skip
    with pytest.raises(BoxLost, match="taken"):
        take_door(boxed.found(), PORT)
    found = boxed.found()
    with pytest.raises(BoxLost):
        take_door(records.FoundBox(found.folder, found.record, "wrong"), PORT + 1)
    assert take_door(found, PORT + 1).getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
