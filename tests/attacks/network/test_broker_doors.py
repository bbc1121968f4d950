"""What a hostile program sends to the broker's doors: bytes that two readers would read differently."""

from pathlib import Path

import pytest

from support.broker_rig import broker_rig, upstream


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "transfer-encoding: Chunked\r\nCONTENT-LENGTH: 4\r\nConnection: x",
    ],
)
async def test_n5_a_body_has_one_end_for_whoever_reads_it(tmp_path: Path, head: str) -> None:
    """Else what is within a chunk for us is a next request to a server that goes by the length, with a host of the
    program's choice."""
    async with broker_rig(tmp_path) as rig, upstream() as there:
        to = f"127.0.0.1:{there.port}"
        rig.daemon.allow(to)
        hidden = "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"
        request = f"POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\n{head}\r\n\r\n"
        answer = await rig.through(f"{request}{len(hidden):x}\r\n{hidden}\r\n0\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        (received,) = there.received
        passed, _, _ = received.lower().partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in passed
        assert b"content-length" not in passed
