"""The broker between real sockets: what passes, what is asked, what is refused, and what is sent on."""

import asyncio
import contextlib
import os
import socket
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from lodger_sandbox.egress.core.wire import Serve
from support.broker_rig import DaemonSide, broker_rig, upstream
from support.patience import LIMIT_S


def connect(host: str, port: int, then: bytes = b"") -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode() + then


def socks(host: str, port: int, then: bytes = b"") -> bytes:
    name = host.encode()
    return b"\5\1\0" + b"\5\1\0\3" + bytes((len(name),)) + name + port.to_bytes(2) + then


async def test_connect_carries_bytes_both_ways(tmp_path: Path) -> None:
    async with broker_rig(tmp_path) as rig, upstream(b"pong") as there:
        rig.daemon.allow(f"127.0.0.1:{there.port}")
        answer = await rig.through(connect("127.0.0.1", there.port, b"ping!"))
        assert answer == b"HTTP/1.1 200 Connection established\r\n\r\npong"
        assert there.received == [b"ping!"]
        assert (await rig.daemon.event("passed"))["to"] == f"127.0.0.1:{there.port}"


async def test_socks_carries_bytes_both_ways(tmp_path: Path) -> None:
    async with broker_rig(tmp_path) as rig, upstream(b"pong") as there:
        rig.daemon.allow(f"127.0.0.1:{there.port}")
        answer = await rig.through(socks("127.0.0.1", there.port, b"ping!"))
        assert answer == b"\5\0" + b"\5\0\0\1" + bytes(6) + b"pong"
        assert there.received == [b"ping!"]


async def test_plain_http_is_one_request_with_its_own_host(tmp_path: Path) -> None:
    async with broker_rig(tmp_path) as rig, upstream() as there:
        rig.daemon.allow(f"127.0.0.1:{there.port}")
        to = f"127.0.0.1:{there.port}"
        first = (
            f"GET http://{to}/a?b=c HTTP/1.1\r\nHost: evil.test\r\nProxy-Connection: keep-alive\r\nX-Kept: yes\r\n"
            "Proxy-Authorization: Basic eA==\r\nConnection: x-dropped\r\nX-Dropped: yes\r\n\r\n"
        )
        second = "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
        answer = await rig.through((first + second).encode())
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"hi")
        (received,) = there.received
        head, *headers = received.decode().removesuffix("\r\n\r\n").split("\r\n")
        assert head == "GET /a?b=c HTTP/1.1"
        assert {line.lower() for line in headers} == {f"host: {to}", "x-kept: yes", "connection: close"}


async def test_body_arrives_whole(tmp_path: Path) -> None:
    async with broker_rig(tmp_path) as rig, upstream() as there:
        rig.daemon.allow(f"127.0.0.1:{there.port}")
        body = b"x" * 1_000_000 + b"!"
        head = f"POST http://127.0.0.1:{there.port}/ HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        assert (await rig.through(head.encode(), body)).endswith(b"hi")
        assert there.received[0].endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize(
    "request_text",
    [
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        "GET https://127.0.0.1:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://user:word@127.0.0.1:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://127.0.0.1:{port}@evil.test/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://127.1:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://127.0.0.1:{port}\\@evil.test/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT 127.0.0.1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT 0x7f000001:{port} HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET http://[::1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://[evil]/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "not http at all\r\n\r\n",
        "\0\1\2",
    ],
)
async def test_what_is_no_clear_request_reaches_nobody(tmp_path: Path, request_text: str) -> None:
    async with broker_rig(tmp_path) as rig, upstream() as there:
        rig.daemon.allow(f"127.0.0.1:{there.port}", "evil.test")
        answer = await rig.through(request_text.replace("{port}", str(there.port)).encode())
        assert not answer or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501"))
        assert there.received == []


async def test_n7_a_listed_name_that_points_inside_is_refused_at_the_address(tmp_path: Path) -> None:
    async with broker_rig(tmp_path) as rig, upstream() as there:
        rig.daemon.allow(f"localhost:{there.port}")
        answer = await rig.through(connect("localhost", there.port))
        assert answer.startswith(b"HTTP/1.1 403")
        assert b"address itself" in answer
        assert there.received == []
        assert "address" in str((await rig.daemon.event("denied"))["reason"])
        # The control: with the address on the list the same name gets through.
        rig.daemon.allow(f"localhost:{there.port}", f"127.0.0.1:{there.port}")
        assert (await rig.through(connect("localhost", there.port, b"!"))).startswith(b"HTTP/1.1 200")


async def test_private_addresses_are_not_even_asked_about(tmp_path: Path) -> None:
    async with broker_rig(tmp_path) as rig, upstream() as there:
        for host in ("127.0.0.1", "[::1]", "169.254.169.254", "[::ffff:127.0.0.1]"):
            assert (await rig.through(connect(host, there.port))).startswith(b"HTTP/1.1 403"), host
        assert there.received == []
        assert rig.daemon.events.empty() or all(
            rig.daemon.events.get_nowait()["is"] == "denied" for _ in range(rig.daemon.events.qsize())
        )


async def test_an_unlisted_host_waits_for_a_person_and_many_connections_are_one_question(tmp_path: Path) -> None:
    async with broker_rig(tmp_path) as rig, upstream(b"pong") as there:
        waiting = [asyncio.create_task(rig.through(connect("localhost", there.port, b"!"))) for _ in range(3)]
        asked = await rig.daemon.event("ask")
        assert (asked["box"], asked["to"]) == ("box-1", f"localhost:{there.port}")
        rig.daemon.allow(f"127.0.0.1:{there.port}")
        rig.daemon.decide(asked["ask"], True, grant_s=60)
        for answer in await asyncio.gather(*waiting):
            assert answer.endswith(b"pong")
        # Granted for a while: no second question.
        assert (await rig.through(connect("localhost", there.port, b"!"))).endswith(b"pong")
        kinds = [rig.daemon.events.get_nowait()["is"] for _ in range(rig.daemon.events.qsize())]
        assert "ask" not in kinds


async def test_always_lets_those_through_that_wait(tmp_path: Path) -> None:
    async with broker_rig(tmp_path) as rig, upstream(b"pong") as there:
        waiting = asyncio.create_task(rig.through(connect("localhost", there.port, b"!")))
        await rig.daemon.event("ask")
        rig.daemon.allow(f"localhost:{there.port}", f"127.0.0.1:{there.port}")
        assert (await waiting).endswith(b"pong")


async def test_no_is_told_to_the_program_and_nothing_was_dialled(tmp_path: Path) -> None:
    async with broker_rig(tmp_path) as rig, upstream() as there:
        waiting = asyncio.create_task(rig.through(connect("localhost", there.port)))
        rig.daemon.decide((await rig.daemon.event("ask"))["ask"], False)
        answer = await waiting
        assert answer.startswith(b"HTTP/1.1 403")
        assert b"nobody allowed it" in answer
        assert there.received == []


async def test_a_no_holds_for_a_while_and_for_that_place_only(tmp_path: Path) -> None:
    """An installer that tries again by itself does not ask the person again."""
    async with broker_rig(tmp_path) as rig, upstream() as there:
        waiting = asyncio.create_task(rig.through(connect("localhost", there.port)))
        rig.daemon.decide((await rig.daemon.event("ask"))["ask"], False, grant_s=60)
        await waiting
        assert (await rig.through(connect("localhost", there.port))).startswith(b"HTTP/1.1 403")
        other = asyncio.create_task(rig.through(connect("localhost", 1)))
        asked = await rig.daemon.event("ask")
        assert asked["to"] == "localhost:1"
        rig.daemon.decide(asked["ask"], False)
        await other
        assert there.received == []


async def test_a_question_nobody_answers_is_a_no(tmp_path: Path) -> None:
    async with broker_rig(tmp_path, ask_limit_s=0.2) as rig, upstream() as there:
        assert (await rig.through(socks("localhost", there.port))) == b"\5\0" + b"\5\2\0\1" + bytes(6)
        assert (await rig.daemon.event("ask_over"))["ask"] == 1
        assert there.received == []


async def test_listed_hosts_pass_while_no_daemon_runs_and_the_next_one_hears_of_it(tmp_path: Path) -> None:
    async with broker_rig(tmp_path) as rig, upstream(b"pong") as there:
        rig.daemon.allow(f"127.0.0.1:{there.port}")
        await rig.through(connect("127.0.0.1", there.port, b"!"))
        await rig.daemon.event("passed")
        await rig.daemon.aclose()
        assert (await rig.through(connect("127.0.0.1", there.port, b"!"))).endswith(b"pong")
        waiting = asyncio.create_task(rig.through(connect("localhost", there.port, b"!")))
        rig.daemon = DaemonSide(rig.path)
        await rig.daemon.connect()
        assert (await rig.daemon.event("hello"))["boxes"] == ["box-1"]
        assert (await rig.daemon.event("passed"))["to"] == f"127.0.0.1:{there.port}"
        rig.daemon.decide((await rig.daemon.event("ask"))["ask"], True)
        assert (await waiting).endswith(b"pong")


FUZZ_SEEDS = (
    b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n",
    b"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n",
    b"POST http://a.test/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n"
    b"1\r\na\r\n0\r\n\r\n",
    b"\5\1\0\5\1\0\3\x0bexample.org\1\xbb",
    b"\5\1\0\5\1\0\4" + bytes(15) + b"\1\0\x50",
    b"\5\xff" + bytes(255),
)


@pytest.mark.parametrize("seed", range(len(FUZZ_SEEDS)))
async def test_whatever_a_program_sends_dials_nothing_and_ends_only_its_own_connection(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes that were changed, cut, doubled or put in between: nothing is listed and nobody can be asked."""
    rng = Random(seed)
    async with broker_rig(tmp_path, ask_limit_s=0.01) as rig, upstream() as there:
        rig.daemon.allow(f"127.0.0.1:{there.port}")
        for _ in range(60):
            data = bytearray(FUZZ_SEEDS[seed])
            for _ in range(rng.randrange(1, 6)):
                at = rng.randrange(len(data) + 1)
                match rng.randrange(4):
                    case 0:
                        data[at:at] = rng.randbytes(rng.randrange(1, 5))
                    case 1:
                        del data[at : at + rng.randrange(1, 20)]
                    case 2:
                        data[at : at + 1] = rng.choice((b"\0", b"\r", b"\n", b" ", b":", b"@", b"%", b"\xff"))
                    case _:
                        data += data[at:]
            with contextlib.suppress(OSError):
                assert b"200" not in (await rig.through(bytes(data)))[:20]
        assert there.received == []
        assert not [record for record in caplog.records if "expectations" in record.message]
        answer = await rig.through(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % there.port)
        assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("line", [b"", b"{}", b'{"do": "hello", "token": "wrong"}', b'{"do": "end"}', b"[1]", b"\xff"])
async def test_a_stranger_is_shown_out(tmp_path: Path, line: bytes) -> None:
    async with broker_rig(tmp_path) as rig:
        reader, writer = await asyncio.open_unix_connection(str(rig.path))
        writer.write(line + b"\n")
        async with asyncio.timeout(LIMIT_S):
            assert await reader.read() == b""
        writer.close()
        rig.daemon.allow()
        assert not rig.broker._ended.is_set()


async def test_a_box_cannot_hold_up_the_broker_by_its_copy_of_the_socket(tmp_path: Path) -> None:
    """Whether a socket blocks is shared by all who have it."""
    async with broker_rig(tmp_path) as rig, upstream(b"pong") as there, upstream(b"pong") as other:
        rig.daemon.allow(f"127.0.0.1:{there.port}", f"127.0.0.1:{other.port}")
        with socket.create_server(("127.0.0.1", 0)) as copy:
            descriptor = os.dup(copy.fileno())
            rig.daemon.say(Serve("box-2"), descriptor)
            os.close(descriptor)
            hostile = replace(rig, port=copy.getsockname()[1])
            assert (await hostile.through(connect("127.0.0.1", there.port, b"!"))).endswith(b"pong")
            copy.setblocking(True)
            assert (await hostile.through(connect("127.0.0.1", there.port, b"!"))).endswith(b"pong")
            assert (await rig.through(connect("127.0.0.1", other.port, b"!"))).endswith(b"pong")


async def test_a_broker_without_daemon_and_connections_ends(tmp_path: Path) -> None:
    async with broker_rig(tmp_path, orphan_s=0.2) as rig, upstream(b"pong") as there:
        rig.daemon.allow(f"127.0.0.1:{there.port}")
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        writer.write(connect("127.0.0.1", there.port, b"!"))
        assert await reader.readuntil(b"pong")
        with pytest.raises(TimeoutError):
            # It has a daemon.
            await asyncio.wait_for(rig.broker._ended.wait(), 0.6)
        await rig.daemon.aclose()
        with pytest.raises(TimeoutError):
            # It carries a connection.
            await asyncio.wait_for(rig.broker._ended.wait(), 0.6)
        writer.close()
        await asyncio.wait_for(rig.broker._ended.wait(), LIMIT_S)


async def test_a_flood_of_connections_does_not_stop_the_others(tmp_path: Path) -> None:
    async with broker_rig(tmp_path) as rig, upstream(b"pong") as there:
        rig.daemon.allow(f"127.0.0.1:{there.port}")
        idle = [socket.create_connection(("127.0.0.1", rig.port)) for _ in range(100)]
        try:
            assert (await rig.through(connect("127.0.0.1", there.port, b"!"))).endswith(b"pong")
        finally:
            for each in idle:
                each.close()
