"""Memory commands of people: reading and changing published memory (PROTOCOL.md 4.6, ARCHITECTURE.md section 10.7)."""

import base64
import binascii
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar, assert_never

from lodger_daemon.clock import Clock
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import AgentCard
from lodger_daemon.memory.core.wanted_paths import BadRequest
from lodger_daemon.memory.core.wiki_links import by_name, references
from lodger_daemon.memory.errors import MemoryFailure, MemoryUnavailable
from lodger_daemon.memory.history import read_history
from lodger_daemon.memory.memory import Memory
from lodger_daemon.memory.persons_change import ChangeResult, Committed, Invalid, Unchanged
from lodger_daemon.memory.persons_view import ListedFile, ShownFile, commit_diff, file_at, list_files, show_files
from lodger_daemon.memory.published import Published
from lodger_daemon.turns.contract import ConversationError, ConversationService
from lodger_protocol.memory_commands import (
    DeleteMemoryFile,
    EnableMemfs,
    ListMemory,
    MemoryCommand,
    MemoryCommitDiff,
    MemoryFileAtRef,
    MemoryHistory,
    ReadMemoryFile,
    WriteMemoryFile,
)
from lodger_tools.json_value import Json, JsonObject

DEFAULT_LIMIT: Final = 50
MOST: Final = 1000
ENTRIES_PER_FRAME: Final = 5
"""PROTOCOL.md 4.6."""

T = TypeVar("T")
Look = Callable[[Published, str], T]


class MemoryCommands:
    """Implements `MemoryAnswering` of the clients' room."""

    def __init__(self, memory: Memory, conversations: ConversationService, folder_inside: str, clock: Clock) -> None:
        self._memory = memory
        self._conversations = conversations
        self._folder_inside = folder_inside
        self._clock = clock

    async def answer(self, command: MemoryCommand) -> AsyncIterator[JsonObject]:
        """The frames that answer a command, in order. Raises: ConversationError, before the first frame."""
        agent_id = await self._known(command.agent_id)
        try:
            match command:
                case ListMemory():
                    async for frame in self._list(command, agent_id):
                        yield frame
                case MemoryHistory():
                    yield _response(command, **await self._history(command, agent_id))
                case MemoryFileAtRef():
                    yield _response(command, **await self._file_at_ref(command, agent_id))
                case MemoryCommitDiff():
                    diff = await self._look(
                        agent_id, lambda published, head: commit_diff(published, head, command.sha), command.shared
                    )
                    yield _response(command, sha=command.sha, diff=diff)
                case ReadMemoryFile():
                    yield _response(command, **await self._read(command, agent_id))
                case WriteMemoryFile() | DeleteMemoryFile():
                    async for frame in self._change(command, agent_id):
                        yield frame
                case EnableMemfs():
                    await self._prepare(agent_id)
                    yield _response(command, memory_directory=self._folder_inside)
                    yield self._updated("*")
                case _:
                    assert_never(command)
        except BadRequest as error:
            prefix = f"{command.type}: " if isinstance(command, WriteMemoryFile | DeleteMemoryFile) else ""
            raise ConversationError(f"{prefix}{error}") from error
        except MemoryFailure as error:
            raise ConversationError(f"The memory of {agent_id} cannot be used now: {error}") from error

    async def _known(self, agent_id: str) -> AgentId:
        if await self._conversations.get_agent(AgentId(agent_id)) is None:
            raise ConversationError(f"Agent {agent_id} not found")
        return AgentId(agent_id)

    async def _look(self, agent_id: AgentId, work: Look[T], shared: str | None = None) -> T:
        """A new agent's memory is made beside; who looks at once waits for it."""
        try:
            return await self._memory.look(agent_id, work, shared)
        except MemoryUnavailable:
            if shared is not None:
                raise
            await self._prepare(agent_id)
            return await self._memory.look(agent_id, work)

    async def _prepare(self, agent_id: AgentId) -> None:
        agent = await self._conversations.get_agent(agent_id)
        card = None if agent is None else AgentCard(agent.name, agent.description, agent.model)
        await self._memory.prepare(agent_id, card)

    async def _list(self, command: ListMemory, agent_id: AgentId) -> AsyncIterator[JsonObject]:
        files = await self._look(agent_id, list_files)
        paths = frozenset(file.path for file in files if file.kind == "markdown")
        names = by_name(paths) if command.include_references else {}
        for first in range(0, max(len(files), 1), ENTRIES_PER_FRAME):
            chunk = files[first : first + ENTRIES_PER_FRAME]
            shown = await self._look(agent_id, _show(chunk))
            entries: list[Json] = []
            for one in shown:
                entry = _entry(one)
                if command.include_references and one.file.kind == "markdown":
                    entry["references"] = [*references(one.content, one.file.path, paths, names)]
                entries.append(entry)
            yield _response(
                command,
                entries=entries,
                done=first + ENTRIES_PER_FRAME >= len(files),
                total=len(files),
                memfs_enabled=True,
                memfs_initialized=True,
            )

    async def _history(self, command: MemoryHistory, agent_id: AgentId) -> JsonObject:
        limit, path = command.limit, command.file_path or ""
        count = limit if isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit <= MOST else DEFAULT_LIMIT
        commits = await self._look(
            agent_id, lambda published, head: read_history(published, head, count, path or None), command.shared
        )
        return {
            "file_path": path,
            "commits": [
                {
                    "sha": commit.sha,
                    "message": commit.message,
                    "timestamp": commit.timestamp,
                    "author_name": commit.author_name,
                }
                for commit in commits
            ],
        }

    async def _file_at_ref(self, command: MemoryFileAtRef, agent_id: AgentId) -> JsonObject:
        data = await self._look(
            agent_id, lambda published, head: file_at(published, head, command.file_path, command.ref), command.shared
        )
        return {"file_path": command.file_path, "ref": command.ref, "content": _text(data, command.file_path)}

    async def _read(self, command: ReadMemoryFile, agent_id: AgentId) -> JsonObject:
        data = await self._look(agent_id, lambda published, head: file_at(published, head, command.path))
        encoding = command.encoding or "utf8"
        content = base64.b64encode(data).decode() if encoding == "base64" else _text(data, command.path)
        return {"agent_id": agent_id, "path": command.path, "content": content, "encoding": encoding}

    async def _change(
        self, command: WriteMemoryFile | DeleteMemoryFile, agent_id: AgentId
    ) -> AsyncIterator[JsonObject]:
        content = _content(command) if isinstance(command, WriteMemoryFile) else None
        verb = "Update" if content is not None else "Delete"
        message = _plain(command.commit_message or "").strip() or f"{verb} memory file {_plain(command.path)}"
        await self._look(agent_id, lambda published, head: None)
        result: ChangeResult = await self._memory.change_for_person(agent_id, command.path, content, message)
        named: JsonObject = {"agent_id": agent_id, "path": command.path}
        match result:
            case Committed(sha):
                yield self._updated(command.path)
                yield _response(command, **named, committed=True, commit_sha=sha)
            case Unchanged():
                yield _response(command, **named, committed=False)
            case Invalid(findings):
                told = "; ".join(str(finding) for finding in findings[:5])
                raise ConversationError(f"{command.type}: not published, because {told}")
            case _:
                assert_never(result)

    def _updated(self, path: str) -> JsonObject:
        paths: list[Json] = [path]
        return {"type": "memory_updated", "affected_paths": paths, "timestamp": int(self._clock.wall() * 1000)}


def _response(command: MemoryCommand, **payload: Json) -> JsonObject:
    return {"type": f"{command.type}_response", "request_id": command.request_id, "success": True, **payload}


def _show(files: tuple[ListedFile, ...]) -> Look[tuple[ShownFile, ...]]:
    return lambda published, head: show_files(published, files)


def _entry(shown: ShownFile) -> JsonObject:
    return {
        "relative_path": shown.file.path,
        "is_system": shown.file.is_core,
        "description": shown.description,
        "content": shown.content,
        "size": shown.size,
        "kind": shown.file.kind,
        "mime_type": shown.file.mime_type,
    }


def _text(data: bytes, path: str) -> str:
    """Raises: BadRequest."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest(f"{path[:200]} is not UTF-8 text; read it as base64") from None


def _content(command: WriteMemoryFile) -> bytes:
    """Raises: BadRequest."""
    try:
        if command.encoding == "base64":
            return base64.b64decode(command.content, validate=True)
        return command.content.encode()
    except (binascii.Error, ValueError):
        raise BadRequest("the content is not what its encoding says") from None


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", " ")
