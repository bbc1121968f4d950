"""W3 at the app-server: another user of this machine guesses tokens, and only it is locked out."""

import asyncio
import json
import os
import sqlite3
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect

from support.programs import LODGER, Home, Program, World, new_world, until
from support.sandbox_users import user_of_boxes

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user"),
]
GUESSES = """
import collections, http.client, json, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
seen = collections.Counter()
first_locked = None
for number in range(count):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/app-server-info", headers={"Authorization": f"Bearer TOKEN"})
    status = connection.getresponse().status
    connection.close()
    seen[status] += 1
    if status == 429 and first_locked is None:
        first_locked = number
print(json.dumps([dict(seen), first_locked]))
"""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("w3") as made:
        yield made


async def app_server(world: World, home: Home) -> Program:
    argv = [*LODGER, "app-server", "--listen", "ws://127.0.0.1:0"]
    return await world.start("app-server", argv, world.environment(home))


async def guess(port: int, count: int, uid: int, token: str = "guess-{number}") -> tuple[dict[str, int], int | None]:
    process = await asyncio.create_subprocess_exec(
        "/usr/bin/env", "python3", "-I", "-c", GUESSES.replace("TOKEN", token), str(port), str(count),
        stdout=asyncio.subprocess.PIPE, user=uid, cwd="/", env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 110)
    seen, first_locked = json.loads(out)
    return seen, first_locked


def rows(home: Home) -> list[tuple[str, str, str, Any]]:
    with sqlite3.connect(f"file:{home.database}?mode=ro", uri=True, timeout=10) as database:
        found = database.execute("SELECT actor, action, subject, detail FROM audit ORDER BY number")
        return [(actor, action, subject, json.loads(detail)) for actor, action, subject, detail in found]


def info_status(port: int, token: str) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/app-server-info")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


async def test_w3_a_thousand_wrong_tokens_lock_out_their_user_alone(world: World) -> None:
    home = world.home("a")
    program = await app_server(world, home)
    port = urlsplit(program.first["url"]).port
    assert port is not None
    token = (home.state / "app-server.token").read_text().strip()
    stranger = user_of_boxes().uid
    began = asyncio.get_running_loop().time()
    seen, first_locked = await guess(port, 1000, stranger)
    took_s = asyncio.get_running_loop().time() - began
    # Where a thousand take longer than that, they outlast a lock-out or two.
    locks = [{"seconds": seconds} for seconds, begins_s in ((30, 0), (60, 30), (120, 90)) if took_s > begins_s]
    locked = seen["401"] // 10
    assert (seen, first_locked) == ({"401": 10 * locked, "429": 1000 - 10 * locked}, 10)
    assert 1 <= locked <= len(locks)
    await until(lambda: len(rows(home)) >= locked, "the rows in the audit log")
    assert rows(home) == [("app-server", "client.locked_out", f"uid {stranger}", told) for told in locks[:locked]]

    # The daemon's own user: with the right token, without one, and with a wrong one of its own.
    for given, status in ((token, 200), ("", 200), ("old-token", 401), (token, 200)):
        assert await asyncio.to_thread(info_status, port, given) == status
    async with connect(program.first["url"], additional_headers={"Authorization": f"Bearer {token}"}, proxy=None):
        pass
    # The stranger itself still comes in with the right one: whoever has it holds it by right.
    seen, _ = await guess(port, 1, stranger, token)
    assert seen == {"200": 1}
