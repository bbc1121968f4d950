"""The memory git host: a plain ASGI application over `git http-backend` (MEMORY-NOTES.md section 6)."""

import asyncio
import logging
import re
import subprocess
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, assert_never

from lodger_hub.git_host.backend import (
    BackendFailed,
    BackendRequest,
    CgiHead,
    read_head,
    read_pieces,
    running_backend,
)
from lodger_hub.git_host.grants import Right
from lodger_hub.git_host.repositories import (
    MAX_PUSH_BYTES,
    GitMissing,
    Place,
    Repositories,
    TooManyRepositories,
    own_memory,
    shared_memory,
)
from lodger_hub.git_host.seams import Seam, no_seam
from lodger_hub.git_host.sharing import Sharing
from lodger_hub.git_host.upkeep import (
    DEAD_LOCK_S,
    LOOSE_OBJECTS,
    PACKS,
    Upkeep,
    drop_dead_locks,
    needs_tidying,
    size_bytes,
)

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_LOG: Final = logging.getLogger(__name__)
_ROUTE: Final = re.compile(
    r"(?:/v1/git)?/(agent-[A-Za-z0-9-]{1,120})/(?:state|repositories/([a-z0-9._-]{1,64}))\.git"
    r"/(info/refs|git-upload-pack|git-receive-pack)"
)
_SERVICES: Final = {"service=git-upload-pack": False, "service=git-receive-pack": True}


@dataclass(frozen=True, slots=True)
class Allowed:
    """The caller may do this. `user` goes into git's environment, never into a log."""

    user: str = "letta"


@dataclass(frozen=True, slots=True)
class Denied:
    """401 without a good token; 403 when it may read but not write; 404 for another's agent."""

    status: int


Authorize: TypeAlias = Callable[[Message, str, bool], Awaitable[Allowed | Denied]]
"""The request's ASGI scope, agent id, whether it wants to write."""

OnHeadMoved: TypeAlias = Callable[[str, str | None, str], Awaitable[None]]
"""Agent id, name of the shared memory or None for the agent's own, new head."""


@dataclass(frozen=True, slots=True)
class HostLimits:
    request_bytes: int = MAX_PUSH_BYTES + 4 * 1024 * 1024
    """Above git's own limit, so that git refuses with words of its own instead of a cut connection."""
    stall_s: float = 30.0
    """How long a client may send or take nothing."""
    request_s: float = 900.0
    """A whole request, both ways: 200 MB at 2 Mbit/s, as daemons wait for it."""
    repository_bytes: int = 2 * 1024**3
    """Of one memory with its history: 10,000 commits of a large one take a tenth. Reading goes on past it."""
    loose_objects: int = LOOSE_OBJECTS
    packs: int = PACKS
    """More of either in a repository, and it is tidied."""
    dead_lock_s: float = DEAD_LOCK_S
    """A lock of a git that is older than this is a killed one's."""
    slots: int = 16
    """Git processes at once; each takes some 10 MB."""
    slot_wait_s: float = 20.0


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class GitHost:
    """Serves `/v1/git/AGENT/state.git` and, of memories that the agent shares, `/v1/git/AGENT/repositories/NAME.git`;
    with or without that prefix, so that it may be mounted either way.

    An agent's own repository is made on the first authorised request for a well-formed agent id, a shared one only
    when a person asks for it. After a push that moved `main` the callback is awaited.
    """

    def __init__(
        self,
        root: Path,
        authorize: Authorize,
        on_head_moved: OnHeadMoved,
        limits: HostLimits | None = None,
        seam: Seam = no_seam,
    ) -> None:
        self._repositories = Repositories(root, seam)
        self._seam = seam
        self.sharing = Sharing(self._repositories)
        self._authorize = authorize
        self._on_head_moved = on_head_moved
        self._limits = limits or HostLimits()
        self._slots = asyncio.Semaphore(self._limits.slots)
        self._sizes: dict[Place, int] = {}
        """What each repository took on disk when it was looked at, and what has been pushed since."""
        self._upkeep = Upkeep(seam)
        self._tidying: set[asyncio.Task[None]] = set()

    def head(self, agent_id: str) -> str | None:
        """The commit an agent's `main` points at. Reads one small file."""
        return self._repositories.head(own_memory(agent_id))

    def shared_head(self, name: str) -> str | None:
        """The same of a shared memory. Raises: ValueError."""
        return self._repositories.head(shared_memory(name))

    def list_agents(self) -> tuple[str, ...]:
        """Agents whose memory is here, oldest first."""
        return self._repositories.list_agents()

    def delete_shared(self, name: str) -> tuple[str, ...]:
        """As `Sharing.delete`. Blocking."""
        agents = self.sharing.delete(name, time.time_ns())
        self._sizes.pop(shared_memory(name), None)
        return agents

    def bring_back_shared(self, name: str) -> tuple[str, ...]:
        """As `Sharing.bring_back`. Blocking."""
        agents = self.sharing.bring_back(name)
        self._sizes.pop(shared_memory(name), None)
        return agents

    async def agents_for(self, scope: Message) -> tuple[str, ...]:
        """Of those, the ones whose memory the caller may read."""
        agents = await asyncio.to_thread(self.list_agents)
        return tuple([agent for agent in agents if isinstance(await self.allows(scope, agent), Allowed)])

    async def allows(self, scope: Message, agent_id: str) -> Allowed | Denied:
        """Whether the caller may read an agent's memory."""
        return await self._authorize(scope, agent_id, False)

    async def aclose(self) -> None:
        """End upkeep that runs. What it leaves half-done is whole, and is done again after some push."""
        self._upkeep.stop()
        await asyncio.gather(*self._tidying, return_exceptions=True)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = _Answer(send, self._limits.stall_s)
        try:
            async with asyncio.timeout(self._limits.request_s):
                await self._serve(scope, receive, answer)
        except _Refused as refusal:
            await answer.refuse(refusal.status, refusal.text)
        except TimeoutError:
            await answer.refuse(408, "the request took too long")
        except GitMissing as missing:
            await answer.refuse(503, str(missing))
        except TooManyRepositories as full:
            await answer.refuse(403, str(full))
        except (BackendFailed, OSError, subprocess.SubprocessError):
            await answer.refuse(500, "git did not answer")

    async def _serve(self, scope: Message, receive: Receive, answer: "_Answer") -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        asked = _route(scope)
        verdict = await self._authorize(scope, asked.agent_id, asked.writes)
        if isinstance(verdict, Denied):
            raise _Refused(verdict.status, "not allowed")
        if asked.name is not None:
            await self._check_share(asked, asked.name)
        if int(headers.get("content-length") or 0) > self._limits.request_bytes:
            raise _Refused(413, f"at most {self._limits.request_bytes} bytes in one push")
        request = BackendRequest(
            self._repositories.root,
            asked.place.path,
            asked.service_path,
            scope["method"],
            scope["query_string"].decode("latin-1"),
            headers,
            verdict.user,
        )
        place, writes = asked.place, asked.writes
        await asyncio.to_thread(self._make_ready, asked)
        if writes and await self._size_bytes(place) > self._limits.repository_bytes:
            raise _Refused(413, f"this memory takes all of the {self._limits.repository_bytes} bytes it may")
        before = self._repositories.head(place)
        await self._take_slot()
        try:
            fed_bytes = await self._bridge(request, receive, answer)
        finally:
            self._slots.release()
        if writes and place in self._sizes:
            self._sizes[place] += fed_bytes
        after = self._repositories.head(place)
        if writes and after is not None and after != before:
            self._seam("before telling of a head")
            await self._on_head_moved(asked.agent_id, asked.name, after)
            self._seam("after telling of a head")
            self._tidy_soon(place)

    async def _check_share(self, asked: "_Asked", name: str) -> None:
        """Which agents share a memory is looked up for each request: what a person took away is gone at once."""
        match await asyncio.to_thread(self.sharing.right, name, asked.agent_id):
            case Right.WRITE:
                return
            case Right.READ:
                if asked.writes:
                    raise _Refused(403, f"{asked.agent_id} may read {name} and not write it")
            case Right.NONE:
                raise _Refused(404, f"{asked.agent_id} has no shared memory {name}")
            case other:
                assert_never(other)

    def _make_ready(self, asked: "_Asked") -> None:
        """Blocks. Raises: as `Repositories.ensure` does."""
        # A shared memory that was deleted since its right was looked up is not made anew.
        place = asked.place
        repository = self._repositories.ensure(place) if asked.name is None else self._repositories.folder(place)
        if asked.writes:
            drop_dead_locks(repository, time.time(), self._limits.dead_lock_s)

    async def _size_bytes(self, place: Place) -> int:
        known = self._sizes.get(place)
        if known is None:
            known = await asyncio.to_thread(size_bytes, self._repositories.folder(place))
            self._sizes[place] = known
        return known

    def _tidy_soon(self, place: Place) -> None:
        """Beside everything, and seldom more than one: the second finds the lock taken."""
        task = asyncio.create_task(self._tidy(place), name=f"upkeep of {place.path}")
        self._tidying.add(task)
        task.add_done_callback(self._tidying.discard)

    async def _tidy(self, place: Place) -> None:
        folder = self._repositories.folder(place)
        try:
            limits = self._limits
            await asyncio.to_thread(self.sharing.drop_old, time.time_ns())
            if not await asyncio.to_thread(needs_tidying, folder, limits.loose_objects, limits.packs):
                return
            if await asyncio.to_thread(self._upkeep.tidy, folder):
                self._sizes.pop(place, None)
        except OSError as fault:
            _LOG.warning("the upkeep of %s failed: %s", place.path, fault)

    async def _take_slot(self) -> None:
        try:
            async with asyncio.timeout(self._limits.slot_wait_s):
                await self._slots.acquire()
        except TimeoutError:
            raise _Refused(503, "too many requests at once; try again") from None

    async def _bridge(self, request: BackendRequest, receive: Receive, answer: "_Answer") -> int:
        """How many bytes the client sent."""
        asker = "a push" if request.service_path == "git-receive-pack" else "a reader"
        self._seam(f"before starting git for {asker}")
        async with running_backend(request) as process:
            self._seam(f"after starting git for {asker}")
            assert process.stdin is not None
            assert process.stdout is not None
            feeding = asyncio.create_task(self._feed(receive, process.stdin))
            heading = asyncio.create_task(read_head(process.stdout))
            try:
                # Git may answer before it has read all (a refusal); what follows waits for the end of the body.
                head, fed_bytes = await asyncio.gather(heading, feeding)
                self._seam(f"before answering {asker}")
                await answer.begin(head)
                async for piece in read_pieces(process.stdout):
                    await answer.piece(piece)
                await answer.end()
                self._seam(f"after answering {asker}")
                return fed_bytes
            finally:
                feeding.cancel()
                heading.cancel()
                await asyncio.gather(feeding, heading, return_exceptions=True)

    async def _feed(self, receive: Receive, into: asyncio.StreamWriter) -> int:
        fed_bytes = 0
        gone = False
        while True:
            async with asyncio.timeout(self._limits.stall_s):
                message = await receive()
            if message["type"] == "http.disconnect":
                raise _Refused(400, "the client went away")
            body: bytes = message.get("body", b"")
            fed_bytes += len(body)
            if fed_bytes > self._limits.request_bytes:
                raise _Refused(413, f"at most {self._limits.request_bytes} bytes in one push")
            if not gone:
                try:
                    into.write(body)
                    async with asyncio.timeout(self._limits.stall_s):
                        await into.drain()
                except (BrokenPipeError, ConnectionResetError):
                    # Git has heard enough; the rest of the body is read and dropped so that the answer can be sent.
                    gone = True
            if not message.get("more_body", False):
                into.close()
                return fed_bytes


class _Answer:
    """The response of one request; sends at most one head."""

    def __init__(self, send: Send, stall_s: float) -> None:
        self._send = send
        self._stall_s = stall_s
        self._begun = False

    async def begin(self, head: CgiHead) -> None:
        self._begun = True
        await self._out({"type": "http.response.start", "status": head.status, "headers": head.headers})
        await self.piece(head.rest)

    async def piece(self, data: bytes) -> None:
        await self._out({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._out({"type": "http.response.body", "body": b"", "more_body": False})

    async def refuse(self, status: int, text: str) -> None:
        """Say no, if nothing has been said yet; a begun answer is left cut short, which clients notice."""
        if self._begun:
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        if status == 401:
            headers.append((b"www-authenticate", b'Basic realm="lodger memory"'))
        await self.begin(CgiHead(status, headers, text.encode() + b"\n"))
        await self.end()

    async def _out(self, message: Message) -> None:
        async with asyncio.timeout(self._stall_s):
            await self._send(message)


@dataclass(frozen=True, slots=True)
class _Asked:
    agent_id: str
    name: str | None
    """Of the shared memory; None for the agent's own."""
    place: Place
    service_path: str
    writes: bool


def _route(scope: Message) -> _Asked:
    """What is asked of which repository. Everything but the three routes of smart HTTP is 404."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root + "/"):
        path = path[len(root) :]
    found = _ROUTE.fullmatch(path)
    if found is None or b"%" in scope.get("raw_path", b""):
        raise _Refused(404, "nothing here")
    agent_id, name, service_path = found.groups()
    try:
        place = own_memory(agent_id) if name is None else shared_memory(name)
    except ValueError:
        raise _Refused(404, "nothing here") from None
    return _Asked(agent_id, name, place, service_path, _writes(scope, service_path))


def _writes(scope: Message, service_path: str) -> bool:
    method = scope["method"]
    if service_path == "info/refs":
        writes = _SERVICES.get(scope["query_string"].decode("latin-1"))
        if method != "GET" or writes is None:
            raise _Refused(403, "only git's smart protocol is spoken here")
        return writes
    if method != "POST":
        raise _Refused(405, "only POST")
    return service_path == "git-receive-pack"
