"""Model servers that run on this machine, found by asking at the ports they use."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from lodger_daemon.models.core.frames import ListedModel
from lodger_daemon.models.core.json_fields import parse_object
from lodger_daemon.models.core.model_lists import listed_models

PROBE_LIMIT_S: Final = 0.7
"""Loopback answers within milliseconds; a server that is loading a model is found by the next probe."""
_ANSWER_LIMIT_BYTES: Final = 1024 * 1024
_LISTENING: Final = "0A"
_FIRST_PERSONS_UID: Final = 1000


async def find_servers(servers: Mapping[str, str], own_uid: int) -> dict[str, tuple[ListedModel, ...]]:
    """Those of `servers` (name to base address) that list at least one model, all asked at once."""
    names = list(servers)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_ask(servers[name], own_uid)) for name in names]
    return {name: models for name, task in zip(names, tasks, strict=True) if (models := task.result())}


async def _ask(base_url: str, own_uid: int) -> tuple[ListedModel, ...]:
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port or 80
    if not await asyncio.to_thread(_trusted_listener, port, own_uid):
        return ()
    try:
        async with asyncio.timeout(PROBE_LIMIT_S):
            reader, writer = await asyncio.open_connection(host, port, limit=_ANSWER_LIMIT_BYTES)
            try:
                answer = await _get(reader, writer, f"{host}:{port}", f"{parts.path}/models")
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return ()
    # A server that ignores HTTP/1.0 may send chunks: the JSON object stands between their lengths.
    start, end = answer.find(b"{"), answer.rfind(b"}")
    return listed_models(parse_object(answer[start : end + 1]) or {})


async def _get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, path: str) -> bytes:
    """The body of a good answer; empty for any other."""
    lines = (f"GET {path} HTTP/1.0", f"Host: {host}", "Accept: application/json", "Connection: close", "", "")
    writer.write("\r\n".join(lines).encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status_line, *fields = head.split("\r\n")
    if status_line.split(" ")[1:2] != ["200"]:
        return b""
    lengths = [field.partition(":")[2] for field in fields if field.startswith("content-length:")]
    if lengths:
        # Some keep the connection open although they were asked to close it.
        length = int(lengths[0])
        return await reader.readexactly(length) if 0 <= length <= _ANSWER_LIMIT_BYTES else b""
    body = b""
    while (piece := await reader.read(_ANSWER_LIMIT_BYTES)) and len(body) <= _ANSWER_LIMIT_BYTES:
        body += piece
    return body


def _trusted_listener(port: int, own_uid: int) -> bool:
    """Whether whoever listens there is this person or a service of the system; True where the kernel does not tell.

    Another person's process could wait at a well-known port for conversations to be sent to it.
    """
    owners: set[int] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTENING and int(fields[1].rsplit(":", 1)[1], 16) == port:
                owners.add(int(fields[7]))
    return all(uid == own_uid or uid < _FIRST_PERSONS_UID for uid in owners)
