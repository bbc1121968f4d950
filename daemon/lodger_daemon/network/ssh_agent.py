"""Lends the person's ssh agent to boxes, where the setting says so: a socket of the boxes' user, which passes on only
what lists keys and signs.

The agent itself would not do: it serves its own user only, and takes requests that no box may make.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

from lodger_daemon.clients.peers import unix_peer_uid
from lodger_daemon.network.core.ssh_agent_messages import FAILURE, MESSAGE_LIMIT_BYTES, may_pass
from lodger_daemon.network.core.ssh_texts import AGENT_INSIDE
from lodger_daemon.network.ssh_files import SshFiles
from lodger_sandbox.contract import BoxUser, SandboxUnavailable
from lodger_tools.box.record import short_folder
from lodger_tools.json_value import Json

CONNECTIONS: Final = 32
"""At once, of all boxes; more are closed."""
IDLE_LIMIT_S: Final = 120.0
"""Between two requests; ssh asks only as it logs in."""
ANSWER_LIMIT_S: Final = 120.0
"""A person may have to confirm, or to touch a key."""
_CONNECT_LIMIT_S: Final = 5.0
_NAME: Final = Path(AGENT_INSIDE).name
_LENGTH: Final = struct.Struct("!I")

_log = logging.getLogger(__name__)


class LentAgent:
    """Event loop only."""

    def __init__(self, agent: str, user: BoxUser) -> None:
        """
        Args:
            agent: where the person's agent listens.
            user: whom it is lent to.
        """
        self._agent = agent
        self._user = user
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self, folder: Path) -> None:
        """Raises: OSError."""
        listener = await asyncio.to_thread(_listener, folder, self._user)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if len(self._serving) <= CONNECTIONS and unix_peer_uid(writer.get_extra_info("socket")) == self._user.uid:
                await self._lend(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass
        finally:
            self._serving.discard(task)
            writer.close()

    async def _lend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises: OSError, TimeoutError, asyncio.IncompleteReadError, as streams do when a side goes away."""
        async with asyncio.timeout(_CONNECT_LIMIT_S):
            from_agent, to_agent = await asyncio.open_unix_connection(self._agent)
        try:
            while True:
                async with asyncio.timeout(IDLE_LIMIT_S):
                    request = await _message(reader)
                answer = FAILURE
                if may_pass(request):
                    async with asyncio.timeout(ANSWER_LIMIT_S):
                        to_agent.write(_LENGTH.pack(len(request)) + request)
                        await to_agent.drain()
                        answer = await _message(from_agent)
                else:
                    _log.info("a box asked the ssh agent for something other than keys and signatures")
                async with asyncio.timeout(IDLE_LIMIT_S):
                    writer.write(_LENGTH.pack(len(answer)) + answer)
                    await writer.drain()
        finally:
            to_agent.close()


async def lend_agent(
    stack: contextlib.AsyncExitStack, files: SshFiles, agent: str, boxes_user: Callable[[], BoxUser]
) -> None:
    """Until the stack is closed. Where it cannot be, the log says why: boxes work without.

    Args:
        agent: where the person's agent listens; empty when there is none.
    """
    if not agent:
        _log.warning("network.ssh_agent is set, and where this daemon was started SSH_AUTH_SOCK names no agent")
        return
    try:
        lent = LentAgent(agent, boxes_user())
        stack.push_async_callback(lent.aclose)
        await lent.start(await asyncio.to_thread(files.make_folder))
    except (OSError, SandboxUnavailable) as error:
        _log.warning("the ssh agent cannot be lent to boxes: %s", error)


class AgentState(StrEnum):
    """Of the agent that is to be lent."""

    NOT_ASKED = "not_asked"
    """The setting does not say so."""
    NOT_NAMED = "not_named"
    SILENT = "silent"
    THERE = "there"


class AgentLook:
    """A section of the daemon's status."""

    def __init__(self, agent: str, *, asked: bool) -> None:
        """
        Args:
            agent: where the person's agent listens; empty when there is none.
            asked: whether it is to be lent.
        """
        self._agent = agent
        self._asked = asked

    async def section(self) -> Json:
        return {"state": (await self._state()).value, "at": self._agent}

    async def _state(self) -> AgentState:
        if not self._asked:
            return AgentState.NOT_ASKED
        if not self._agent:
            return AgentState.NOT_NAMED
        try:
            async with asyncio.timeout(_CONNECT_LIMIT_S):
                _reader, writer = await asyncio.open_unix_connection(self._agent)
        except (OSError, TimeoutError):
            return AgentState.SILENT
        writer.close()
        return AgentState.THERE


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Without its length. Raises: asyncio.IncompleteReadError at the end; OSError for one that is too long."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MESSAGE_LIMIT_BYTES:
        raise OSError("a message that is too long")
    return await reader.readexactly(length)


def _listener(folder: Path, user: BoxUser) -> socket.socket:
    """Only the boxes' user may connect. Raises: OSError."""
    path = folder / _NAME
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_folder(folder) as short:
            listener.bind(f"{short}/{_NAME}")
        path.chmod(0o600)
        if os.geteuid() != user.uid:
            os.chown(path, user.uid, user.gid)
        listener.listen(CONNECTIONS)
    except OSError:
        listener.close()
        raise
    return listener
