"""The lean worker against servers that break HTTP, and through the proxies and certificates that a person names."""

import asyncio
import base64
import contextlib
import ssl
import subprocess
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lodger_daemon.models.contract import FailureKind, ModelFailure
from lodger_daemon.models.gateway import Models
from lodger_daemon.models.worker.http_client import HttpClient, HttpTimeout
from lodger_daemon.paths import Paths
from lodger_daemon.system_clock import SystemClock
from support.model_contract import collect, failure, scripted, texts
from support.patience import LIMIT_S

KEY = "sk-test-41d7"
EVENT = b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n'
WHOLE = b'data: {"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
HEAD_LIMIT_BYTES = 64 * 1024
MIB = 1024 * 1024

Answer = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Given the head of one request, whose body was read."""


def good(body: bytes, *fields: str) -> bytes:
    head = "".join(f"{field}\r\n" for field in ("HTTP/1.1 200 OK", *fields, f"Content-Length: {len(body)}"))
    return head.encode() + b"\r\n" + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def serving(answer: Answer, context: ssl.SSLContext | None = None, reads_body: bool = True) -> AsyncIterator[int]:
    """The port of a server that reads each request and leaves the rest to `answer`."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                if reads_body:
                    await reader.readexactly(length_of(head))
                await answer(head, reader, writer)
        writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, limit=HEAD_LIMIT_BYTES, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


def length_of(head: bytes) -> int:
    return next((int(value) for name, value in fields_of(head) if name == "content-length"), 0)


def fields_of(head: bytes) -> list[tuple[str, str]]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]


@asynccontextmanager
async def asking(tmp_path: Path, url: str, **environment: str) -> AsyncIterator[Models]:
    """Models whose providers `openai` and `anthropic` are at this address."""
    paths = Paths(tmp_path / "config", tmp_path / "state", tmp_path / "work", tmp_path)
    providers = {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
    }
    models = Models(paths, SystemClock(), {}, providers | environment, local_servers={})
    try:
        yield models
    finally:
        await models.aclose()


@pytest.mark.parametrize(
    "sent",
    [
        CHUNKED + chunk(EVENT)[:-9],
        CHUNKED + b"no length\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1024 * 1024,
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: x\r\n" * 100_000 + b"\r\n",
        b"SSH-2.0-server\r\n",
        b"",
    ],
    ids=["half an event", "bad chunk", "two lengths", "long field", "many fields", "not HTTP", "nothing"],
)
async def test_an_answer_without_a_word_is_a_network_failure(tmp_path: Path, sent: bytes) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        writer.close()

    async with serving(answer) as port, asking(tmp_path, f"http://127.0.0.1:{port}") as models:
        found = await failure(models, scripted("openai/x", {}))
    assert (found.kind, found.output_seen) == (FailureKind.NETWORK, False), found.message
    assert "\n" not in found.message


@pytest.mark.parametrize(
    ("sent", "then"),
    [
        (CHUNKED + chunk(EVENT), b"no length\r\n"),
        (CHUNKED + chunk(EVENT), b"-1\r\n"),
        (CHUNKED + chunk(EVENT), b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + EVENT, b""),
    ],
    ids=["bad chunk", "negative chunk", "no last chunk", "shorter than said"],
)
async def test_an_answer_that_breaks_off_is_cut_short(tmp_path: Path, sent: bytes, then: bytes) -> None:
    is_seen = asyncio.Event()

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await asyncio.wait_for(is_seen.wait(), LIMIT_S)
        writer.write(then)
        writer.close()

    async with serving(answer) as port, asking(tmp_path, f"http://127.0.0.1:{port}") as models:
        with pytest.raises(ModelFailure) as raised:
            async for _ in models.stream(scripted("openai/x", {})):
                is_seen.set()
    assert (raised.value.kind, raised.value.output_seen) == (FailureKind.CUT_SHORT, True), raised.value.message


async def test_an_answer_that_only_lacks_the_end_of_its_dress_is_whole(tmp_path: Path) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + chunk(WHOLE))
        writer.close()

    async with serving(answer) as port, asking(tmp_path, f"http://127.0.0.1:{port}") as models:
        for _ in range(10):
            assert texts(await collect(models, scripted("openai/x", {}))) == "hello"


async def test_a_connection_closed_while_it_was_kept_is_no_failure(tmp_path: Path) -> None:
    asked: list[asyncio.StreamWriter] = []

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if writer in asked:
            writer.close()
        else:
            writer.write(good(WHOLE))
        asked.append(writer)

    async with serving(answer) as port, asking(tmp_path, f"http://127.0.0.1:{port}") as models:
        for _ in range(2):
            assert texts(await collect(models, scripted("openai/x", {}))) == "hello"
    assert [asked.index(writer) for writer in asked] == [0, 0, 2], "kept, found closed, and asked on a new one"


async def test_an_error_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    is_left = asyncio.Event()

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(chunk(b"wrong " * 10_000))
                await writer.drain()
        except ConnectionError:
            is_left.set()
            raise

    async with serving(answer) as port, asking(tmp_path, f"http://127.0.0.1:{port}") as models:
        found = await failure(models, scripted("openai/x", {}))
        assert (found.kind, found.status) == (FailureKind.BAD_REQUEST, 400)
        await asyncio.wait_for(is_left.wait(), LIMIT_S)


async def test_an_answer_compressed_unasked_is_read(tmp_path: Path) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(good(zlib.compress(WHOLE, wbits=31), "Content-Encoding: gzip"))

    async with serving(answer) as port, asking(tmp_path, f"http://127.0.0.1:{port}") as models:
        assert texts(await collect(models, scripted("openai/x", {}))) == "hello"


async def test_a_small_answer_does_not_unfold_in_memory(tmp_path: Path) -> None:
    """Half a megabyte that stands for 512."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b" " * 1024 * 1024) for _ in range(512)) + packer.flush()

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(good(bomb, "Content-Encoding: gzip"))

    async with serving(answer) as port, asking(tmp_path, f"http://127.0.0.1:{port}") as models:
        found = await failure(models, scripted("openai/x", {}))
        assert found.kind is FailureKind.SERVER
        assert "16 MiB" in found.message
        assert memory_peak_bytes(models) < 80 * MIB


def memory_peak_bytes(models: Models) -> int:
    (pid,) = models.worker_pids()
    (most,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(most.split()[1]) * 1024


@pytest.mark.parametrize(
    "filling", [b"x" * MIB, b"\0\0\0\xff\xff" * (MIB // 5)], ids=["behind its end", "empty blocks"]
)
async def test_a_compressed_answer_that_stands_for_nothing_ends(tmp_path: Path, filling: bytes) -> None:
    packer = zlib.compressobj(wbits=31)
    begun = packer.compress(EVENT) + packer.flush(zlib.Z_FINISH if filling[:1] == b"x" else zlib.Z_FULL_FLUSH)

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED.replace(b"Tra", b"Content-Encoding: gzip\r\nTra") + chunk(begun))
        while not writer.is_closing():
            writer.write(chunk(filling))
            await writer.drain()

    async with serving(answer) as port, asking(tmp_path, f"http://127.0.0.1:{port}") as models:
        found = await failure(models, scripted("openai/x", {}))
        assert (found.kind, found.output_seen) == (FailureKind.CUT_SHORT, True)
        assert memory_peak_bytes(models) < 80 * MIB


async def test_a_proxy_is_asked_for_what_is_elsewhere(tmp_path: Path) -> None:
    heads: list[bytes] = []

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.write(good(WHOLE))

    async with serving(answer) as port:
        for name, proxy in (("HTTP_PROXY", f"http://me:word@127.0.0.1:{port}"), ("all_proxy", f"127.0.0.1:{port}")):
            async with asking(tmp_path, "http://provider.invalid", **{name: proxy}) as models:
                assert texts(await collect(models, scripted("openai/x", {}))) == "hello"
        for passed_by in ("http://provider.invalid", "http://127.0.0.1:9"):
            elsewhere = {"HTTP_PROXY": f"http://127.0.0.1:{port}", "NO_PROXY": "provider.invalid"}
            async with asking(tmp_path, passed_by, **elsewhere) as models:
                assert (await failure(models, scripted("openai/x", {}))).kind is FailureKind.NETWORK
    assert [head.split(b" ")[1] for head in heads] == [b"http://provider.invalid/v1/chat/completions"] * 2
    assert ("proxy-authorization", f"Basic {base64.b64encode(b'me:word').decode()}") in fields_of(heads[0])


async def test_a_name_in_the_address_is_told_and_one_in_netrc_is_not(tmp_path: Path) -> None:
    heads: list[bytes] = []

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.write(good(WHOLE))

    (tmp_path / ".netrc").write_text("machine provider.invalid login me password word\n")
    async with serving(answer) as port:
        for address in ("http://provider.invalid", "http://me:word@provider.invalid"):
            proxy = {"http_proxy": f"http://127.0.0.1:{port}", "HOME": str(tmp_path)}
            async with asking(tmp_path, address, **proxy) as models:
                with contextlib.suppress(Exception):
                    await collect(models, scripted("anthropic/x", {}))
                await collect(models, scripted("openai/x", {}))
    said = [dict(fields_of(head)).get("authorization") for head in heads]
    basic = f"Basic {base64.b64encode(b'me:word').decode()}"
    assert said == [None, f"Bearer {KEY}", basic, basic]


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "http://", "http://127.0.0.1:none"])
async def test_a_proxy_that_cannot_be_used_is_told(tmp_path: Path, proxy: str) -> None:
    async with asking(tmp_path, "http://provider.invalid", all_proxy=proxy) as models:
        found = await failure(models, scripted("openai/x", {}))
    assert found.kind is FailureKind.NETWORK
    assert "openai at http://provider.invalid/v1 cannot be reached: " in found.message


async def test_letters_that_http_does_not_know_are_written_as_it_wants(tmp_path: Path) -> None:
    heads: list[bytes] = []

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.write(good(WHOLE))

    async with serving(answer) as port:
        proxy = {"http_proxy": f"http://127.0.0.1:{port}"}
        async with asking(tmp_path, "http://Büro.invalid:8000/my models/%41", **proxy) as models:
            await collect(models, scripted("openai/x", {}))
    assert heads[0].split(b" ")[1] == b"http://xn--bro-hoa.invalid:8000/my%20models/%41/v1/chat/completions"
    assert dict(fields_of(heads[0]))["host"] == "xn--bro-hoa.invalid:8000"


async def test_a_large_request_arrives_whole_at_a_slow_server(tmp_path: Path) -> None:
    lengths: list[int] = []

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lengths.append(length_of(head))
        writer.write(good(WHOLE))

    # The server reads no more than twice its limit ahead, so the worker has to wait for it again and again.
    async with serving(answer) as port, asking(tmp_path, f"http://127.0.0.1:{port}") as models:
        asked = scripted("openai/x", {}, "x" * 8 * 1024 * 1024)
        assert texts(await collect(models, asked)) == "hello"
    assert lengths[0] > 8 * 1024 * 1024


async def test_a_turn_is_aborted_while_its_request_is_written(tmp_path: Path) -> None:
    got, is_asked, is_left, is_over = 0, asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Of a server that reads no body before the turn is over."""
        nonlocal got
        is_asked.set()
        await is_left.wait()
        while piece := await reader.read(HEAD_LIMIT_BYTES):
            got += len(piece)
        is_over.set()
        writer.close()

    large = "x" * 24 * 1024 * 1024
    async with serving(answer, reads_body=False) as port, asking(tmp_path, f"http://127.0.0.1:{port}") as models:
        turn = asyncio.create_task(collect(models, scripted("openai/x", {}, large)))
        await asyncio.wait_for(is_asked.wait(), LIMIT_S)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        # The worker has heard of it when it answers the next one.
        await collect(models, scripted("practice/practice", {}))
        is_left.set()
        await asyncio.wait_for(is_over.wait(), LIMIT_S)
    assert 0 < got < len(large)


async def test_a_broken_compression_is_a_failure(tmp_path: Path) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(good(b"no gzip at all", "Content-Encoding: gzip"))

    async with serving(answer) as port, asking(tmp_path, f"http://127.0.0.1:{port}") as models:
        assert (await failure(models, scripted("openai/x", {}))).kind is FailureKind.NETWORK


@asynccontextmanager
async def tls_behind_a_proxy(
    certificate: Path, key: Path, targets: list[bytes], *, is_safe: bool = False
) -> AsyncIterator[int]:
    """The port of a proxy, itself behind TLS or not, whose every tunnel ends at one TLS server."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if head.startswith(b"CONNECT "):
            targets.append(head.split(b" ")[1])
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with contextlib.suppress(ssl.SSLError):
                await writer.start_tls(context)
        else:
            writer.write(good(WHOLE))

    async with serving(answer, context if is_safe else None) as port:
        yield port


async def certificate_for(folder: Path) -> tuple[Path, Path]:
    """Of `provider.invalid` and of this machine, with its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=provider.invalid"]
    words += ["-addext", "subjectAltName=DNS:provider.invalid,IP:127.0.0.1"]
    words += ["-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, words, check=True, capture_output=True)
    return certificate, key


async def test_a_certificate_is_believed_when_the_person_says_so(tmp_path: Path) -> None:
    certificate, key = await certificate_for(tmp_path)
    targets: list[bytes] = []
    async with tls_behind_a_proxy(certificate, key, targets) as port:
        proxy = {"https_proxy": f"http://127.0.0.1:{port}"}
        async with asking(tmp_path, "https://provider.invalid", SSL_CERT_FILE=str(certificate), **proxy) as models:
            for _ in range(2):
                assert texts(await collect(models, scripted("openai/x", {}))) == "hello"
        assert targets == [b"provider.invalid:443"], "one tunnel, used again"
        async with asking(tmp_path, "https://provider.invalid", **proxy) as models:
            found = await failure(models, scripted("openai/x", {}))
        assert found.kind is FailureKind.NETWORK
        assert "certificate verify failed" in found.message
        async with asking(tmp_path, "https://other.invalid", SSL_CERT_FILE=str(certificate), **proxy) as models:
            found = await failure(models, scripted("openai/x", {}))
        assert "certificate verify failed" in found.message


async def test_a_tunnel_through_a_proxy_that_is_spoken_to_by_tls_itself(tmp_path: Path) -> None:
    certificate, key = await certificate_for(tmp_path)
    targets: list[bytes] = []
    async with tls_behind_a_proxy(certificate, key, targets, is_safe=True) as port:
        environment = {"https_proxy": f"https://127.0.0.1:{port}", "SSL_CERT_FILE": str(certificate)}
        async with asking(tmp_path, "https://provider.invalid", **environment) as models:
            for _ in range(2):
                assert texts(await collect(models, scripted("openai/x", {}))) == "hello"
            asked = scripted("openai/x", {}, "x" * 1024 * 1024)
            assert texts(await collect(models, asked)) == "hello"
    assert targets == [b"provider.invalid:443"]


async def test_a_proxy_cannot_answer_in_the_clear_for_the_server_behind_it(tmp_path: Path) -> None:
    """As much as is read at once, and behind it an answer that would wait until TLS is there."""
    certificate, key = await certificate_for(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    accepted = b"HTTP/1.1 200 Connection established\r\n\r\n"

    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if head.startswith(b"CONNECT "):
            writer.write(accepted.ljust(64 * 1024, b"x") + good(WHOLE.replace(b"hello", b"forged")))
            with contextlib.suppress(ssl.SSLError):
                await writer.start_tls(context)

    async with serving(answer) as port:
        environment = {"https_proxy": f"http://127.0.0.1:{port}", "SSL_CERT_FILE": str(certificate)}
        async with asking(tmp_path, "https://provider.invalid", **environment) as models:
            assert (await failure(models, scripted("openai/x", {}))).kind is FailureKind.NETWORK


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "sk-one\n", "sk-\x01", "sk-é "])
async def test_a_key_that_no_request_can_carry_is_not_told(tmp_path: Path, key: str) -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(good(WHOLE))

    async with serving(answer) as port, asking(tmp_path, f"http://127.0.0.1:{port}", OPENAI_API_KEY=key) as models:
        found = await failure(models, scripted("openai/x", {}))
    assert "key" in found.message and "sk-" not in found.message


async def test_signs_that_an_answer_will_come_have_an_end() -> None:
    async def answer(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0)

    async with asyncio.timeout(LIMIT_S), serving(answer) as port:
        url = f"http://127.0.0.1:{port}"
        client = HttpClient(url, read_limit_s=LIMIT_S, head_limit_s=0.2)
        with pytest.raises(HttpTimeout):
            await client.ask("GET", url, {})
        await client.aclose()
