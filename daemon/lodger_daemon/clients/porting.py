"""`lodger_export` and `lodger_import`: files of agents and conversations over the wire, a part at a time."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from lodger_daemon.backends.core.portable_reading import FILE_LIMIT_BYTES, NotPortable
from lodger_daemon.backends.local.porting import Porter
from lodger_daemon.clock import Clock, MonoTime
from lodger_daemon.identity import DEFAULT_CONVERSATION, AgentId, ConversationId, ConversationKey
from lodger_daemon.randomness import Rng
from lodger_daemon.turns.contract import ConversationError, ConversationService
from lodger_tools.json_value import Json, JsonObject

PART_BYTES: Final = 512 * 1024
"""Of an export, in one answer: far below what a frame may have."""
AT_ONCE: Final = 4
"""Exports and imports that may be under way, each for itself; a further one takes the place of the idlest."""
IDLE_LIMIT_S: Final = 600.0
"""After this long without a part one is given up: whoever began it has gone."""


@dataclass(slots=True)
class _Export:
    lines: AsyncIterator[bytes]
    used_at: MonoTime
    kept: bytearray = field(default_factory=bytearray)
    ended: bool = False
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class _Import:
    file: IO[bytes]
    used_at: MonoTime
    size_bytes: int = 0
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)


class PortingCommands:
    """Event loop only. What is under way is in memory and in an unnamed file: a restart forgets it."""

    def __init__(
        self, porter: Porter, conversations: ConversationService, folder: Path, clock: Clock, rng: Rng
    ) -> None:
        self._porter = porter
        self._conversations = conversations
        self._folder = folder
        self._clock = clock
        self._rng = rng
        self._exports: dict[str, _Export] = {}
        self._imports: dict[str, _Import] = {}

    async def export(self, command: JsonObject) -> JsonObject:
        """Begun by `agent_id`, `conversation_id` or both, gone on with by `export_id`: `export_id`, `data`, `done`.

        Raises: ConversationError, StoreError.
        """
        export_id = _text(command, "export_id")
        if export_id is None:
            export_id = f"export-{self._rng.uuid()}"
            self._make_room_for_export()
            self._exports[export_id] = _Export(await self._lines_of(command), self._clock.mono())
        export = self._exports.get(export_id)
        if export is None:
            raise ConversationError("There is no such export here any more. Begin it again.")
        async with export.busy:
            export.used_at = self._clock.mono()
            data, done = await self._part(export_id, export)
        return {"export_id": export_id, "data": data, "done": done}

    async def import_(self, command: JsonObject) -> JsonObject:
        """Parts of the file as `data`, in order, all but the first with `import_id`; the last with `done: true` and,
        for a file without an agent, `agent_id`. Then: `agent_id`, `conversations`, `messages`.

        Raises: ConversationError, StoreError. After either the import is over.
        """
        import_id, data = _text(command, "import_id"), _text(command, "data")
        if import_id is None:
            import_id = f"import-{self._rng.uuid()}"
            self._make_room_for_import()
            file = await asyncio.to_thread(_unnamed_file, self._folder)
            self._imports[import_id] = _Import(file, self._clock.mono())
        taken = self._imports.get(import_id)
        if taken is None:
            raise ConversationError("There is no such import here any more. Begin it again.")
        try:
            async with taken.busy:
                await self._take(taken, (data or "").encode("utf-8", "replace"))
                if command.get("done") is not True:
                    return {"import_id": import_id}
                return await self._finish(taken, _text(command, "agent_id"))
        except BaseException:
            self._drop_import(import_id)
            raise
        finally:
            if command.get("done") is True:
                self._drop_import(import_id)

    async def _lines_of(self, command: JsonObject) -> AsyncIterator[bytes]:
        agent_id, conversation_id = _text(command, "agent_id"), _text(command, "conversation_id")
        if conversation_id is None:
            if agent_id is None:
                raise ConversationError("Name an agent or a conversation to export.")
            return self._porter.export_agent(AgentId(agent_id))
        if agent_id is not None:
            key = ConversationKey(AgentId(agent_id), ConversationId(conversation_id))
            return self._porter.export_conversation(key)
        if conversation_id == DEFAULT_CONVERSATION:
            raise ConversationError("The conversation `default` exists once per agent: name the agent in agent_id")
        record = await self._conversations.find_conversation(conversation_id)
        if record is None:
            raise ConversationError(f"Conversation {conversation_id[:200]} not found")
        return self._porter.export_conversation(record.key)

    async def _part(self, export_id: str, export: _Export) -> tuple[str, bool]:
        try:
            while len(export.kept) < PART_BYTES and not export.ended:
                line = await anext(export.lines, None)
                export.ended = line is None
                export.kept += line or b""
        except BaseException:
            self._exports.pop(export_id, None)
            raise
        # The file is ASCII, so it may be cut anywhere.
        data = export.kept[:PART_BYTES].decode("ascii")
        del export.kept[:PART_BYTES]
        done = export.ended and not export.kept
        if done:
            self._exports.pop(export_id, None)
        return data, done

    async def _take(self, taken: _Import, data: bytes) -> None:
        taken.used_at = self._clock.mono()
        taken.size_bytes += len(data)
        if taken.size_bytes > FILE_LIMIT_BYTES:
            raise ConversationError(f"A file may have {FILE_LIMIT_BYTES} bytes at most.")
        try:
            await asyncio.to_thread(taken.file.write, data)
        except OSError as error:
            raise ConversationError(f"The file could not be kept while it came: {error}") from error

    async def _finish(self, taken: _Import, agent_id: str | None) -> JsonObject:
        await asyncio.to_thread(taken.file.seek, 0)
        try:
            imported = await self._porter.import_file(taken.file, AgentId(agent_id) if agent_id else None)
        except NotPortable as error:
            raise ConversationError(str(error)) from None
        conversations: list[Json] = [key.conversation_id for key in imported.conversations]
        return {"agent_id": imported.agent_id, "conversations": conversations, "messages": imported.messages}

    def _make_room_for_export(self) -> None:
        for export_id in _idlest(self._exports, self._clock.mono()):
            del self._exports[export_id]

    def _make_room_for_import(self) -> None:
        for import_id in _idlest(self._imports, self._clock.mono()):
            self._drop_import(import_id)

    def _drop_import(self, import_id: str) -> None:
        dropped = self._imports.pop(import_id, None)
        if dropped is not None:
            dropped.file.close()


def _unnamed_file(folder: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=folder)


def _idlest(under_way: "dict[str, _Export] | dict[str, _Import]", now: MonoTime) -> list[str]:
    """Which are to go before another one begins; none that is at work."""
    idle = sorted((one.used_at, name) for name, one in under_way.items() if not one.busy.locked())
    gone = [name for used_at, name in idle if now - used_at > IDLE_LIMIT_S]
    left = [name for _, name in idle if name not in gone]
    too_many = len(under_way) - len(gone) - (AT_ONCE - 1)
    return [*gone, *left[: max(0, too_many)]]


def _text(command: JsonObject, name: str) -> str | None:
    value = command.get(name)
    if value is None or isinstance(value, str):
        return value
    raise ConversationError(f"{name} must be a text.")
