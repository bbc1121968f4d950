"""Real programs that look at no proxy variable, from a box to servers of this machine: node, ssh, and one in C.

`localhost.`, with its dot, is the name of this machine that a box does not answer by itself. Ports are the same inside
and outside, and these are below 1024: `test_ways_out.py` runs this file where they are free and everybody's.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.service.settings import NetworkSettings
from support.broker_rig import upstream
from support.developer import Developer
from support.real_boxes import workspace_for_tests
from support.ssh_server import ssh_server

pytestmark = pytest.mark.needs("bwrap", "ssh", "sshd", "node", "gcc")
NAME = "localhost."
LISTED = ("localhost:80", "127.0.0.1:80", "localhost:443", "127.0.0.1:443", "localhost:22", "127.0.0.1:22")
REFUSED = "example.test"
ASK_IN_C = r"""
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
    char answer[100];
    if (argc != 3 || getaddrinfo(argv[1], argv[2], &hints, &found)) return 2;
    int there = socket(found->ai_family, found->ai_socktype, 0);
    if (connect(there, found->ai_addr, found->ai_addrlen) || write(there, "hello!", 6) != 6) return 3;
    ssize_t size = read(there, answer, sizeof answer);
    printf("[%.*s]\n", size > 0 ? (int) size : 0, answer);
    return 0;
}
"""
FETCH_IN_NODE = """
const http = require("node:http");
const url = process.argv[2];
const nothing = fault => console.log(`nothing: ${fault.code ?? fault.cause?.code ?? fault}`);
http.get(url, answer => answer.on("data", piece => console.log(`get ${piece}`))).on("error", nothing);
fetch(url).then(answer => answer.text()).then(text => console.log(`fetch ${text}`)).catch(nothing);
"""


@pytest.fixture
async def developer(tmp_path: Path) -> AsyncIterator[Developer]:
    (tmp_path / "home/.ssh").mkdir(mode=0o700, parents=True)
    (tmp_path / "home/.ssh/known_hosts").touch()
    with workspace_for_tests() as workspace:
        made = Developer(tmp_path / "daemon", workspace, NetworkSettings(allow=LISTED), tmp_path / "home")
        await made.start()
        try:
            yield made
        finally:
            await made.aclose()


async def test_a_program_in_c_that_connects_by_itself(developer: Developer) -> None:
    developer.writes("ask.c", ASK_IN_C)
    await developer.does("gcc -o ask ask.c")
    async with upstream(b"pong", 443) as there:
        assert await developer.does(f"./ask {NAME} 443") == "[pong]\n"
        count = developer.network.refused_count(developer.key)
        assert await developer.does(f"./ask {REFUSED} 443") == "[]\n"
        assert [to for to, _ in await developer.network.refused_since(developer.key, count)] == [f"{REFUSED}:443"]
        assert len(there.received) == 1


async def test_node_which_looks_at_no_variable(developer: Developer) -> None:
    developer.writes("ask.js", FETCH_IN_NODE)
    ask = "env -u NODE_USE_ENV_PROXY -u http_proxy -u HTTP_PROXY node ask.js"
    async with upstream(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\npong", 80) as there:
        assert sorted((await developer.does(f"{ask} http://{NAME}/")).splitlines()) == ["fetch pong", "get pong"]
        count = developer.network.refused_count(developer.key)
        assert "pong" not in (await developer.runs(f"{ask} http://{REFUSED}/")).text
        assert [to for to, _ in await developer.network.refused_since(developer.key, count)] == [f"{REFUSED}:80"]
        assert len(there.received) == 2


async def test_ssh_that_was_told_to_use_no_proxy(developer: Developer, tmp_path: Path) -> None:
    with ssh_server(tmp_path / "sshd", "127.0.0.1", 22) as server:
        (tmp_path / "home/.ssh/known_hosts").write_text(server.known_hosts_line(NAME))
        developer.writes("key", server.key.read_text())
        await developer.does("chmod 600 key")
        ssh = "ssh -o ProxyCommand=none -o IdentitiesOnly=yes -o CheckHostIP=no -i key"
        assert "served\n" in await developer.does(f"{ssh} {server.user}@{NAME} echo served")
        assert (await developer.runs(f"{ssh} {server.user}@{REFUSED} echo served")).exit_code == 255
