"""N7 where this machine's own address is a public one, as a rented server's is, and every one with IPv6.

In a network of the test's own, where such addresses can be given out.
"""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
OWN, NEIGHBOUR, FAR = "8.8.4.4", "8.8.4.77", "9.9.9.9"
PROGRAM = """
import asyncio, pathlib, socket, struct, sys
sys.path.insert(0, sys.argv[1])
from lodger_sandbox.egress import gate
from lodger_sandbox.egress.inside_sockets import make_local
from support.broker_rig import broker_rig

make_local("8.8.4.4")
# Answered by this machine too, like a neighbour by itself, and known to be on the wire: a network of 256 addresses.
body = struct.pack("=BBBBI", socket.AF_INET, 24, 0, 254, 1)
for kind in (1, 2):
    body += struct.pack("=HH4s", 8, kind, socket.inet_aton("8.8.4.5"))
with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
    kernel.send(struct.pack("=IHHII", 16 + len(body), 20, 0x405, 1, 0) + body)
    assert struct.unpack_from("=i", kernel.recv(4096), 16) == (0,)
if sys.argv[3] == "far":
    make_local("9.9.9.9")
    gate.own_networks = frozenset  # The control: then nothing is known to be near.

async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 7\\r\\n\\r\\nREACHED")
    writer.close()

async def main():
    to, allow = sys.argv[2], sys.argv[5:]
    server = await asyncio.start_server(serve, "0.0.0.0", 8000)
    async with broker_rig(pathlib.Path(sys.argv[4])) as rig, server:
        rig.daemon.allow(*allow)
        request = f"GET http://{to}:8000/ HTTP/1.1\\r\\nHost: {to}\\r\\n\\r\\n"
        answered = asyncio.create_task(rig.through(request.encode()))
        if not allow:
            rig.daemon.decide((await rig.daemon.event("ask"))["ask"], True)
        print((await answered).decode())

asyncio.run(main())
"""
pytestmark = pytest.mark.needs("bwrap")


def asked(folder: Path, to: str, *allow: str, control: bool = False) -> str:
    alone = ("bwrap", "--unshare-user", "--unshare-net", "--cap-add", "CAP_NET_ADMIN", "--dev-bind", "/", "/", "--")
    words = (sys.executable, "-c", PROGRAM, str(TESTS), to, "far" if control else "near", str(folder), *allow)
    ended = subprocess.run((*alone, *words), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("to", [OWN, NEIGHBOUR])
def test_n7_a_person_s_yes_to_a_public_address_reaches_neither_this_machine_nor_its_network(
    tmp_path: Path, to: str
) -> None:
    said = asked(tmp_path, to)
    assert "403 Forbidden" in said and f"{to} is an address of this machine, its network" in said
    assert "REACHED" not in said


def test_n7_the_control_what_is_not_known_to_be_near_is_reached(tmp_path: Path) -> None:
    assert "REACHED" in asked(tmp_path, FAR, control=True)
    (tmp_path / "again").mkdir()
    assert "REACHED" in asked(tmp_path / "again", OWN, control=True)


def test_n7_a_list_that_names_the_address_itself_lets_it_through(tmp_path: Path) -> None:
    assert "REACHED" in asked(tmp_path, OWN, f"{OWN}:8000")
