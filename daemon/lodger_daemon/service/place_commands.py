"""Commands about folders of this machine (PROTOCOL.md 4.2, 4.4, 4.10).

The daemon opens no file of a workspace: everything is read inside a read-only box on the folder that holds it, which
shows what an agent there would see.
"""

import asyncio
import base64
from typing import Final, assert_never

from lodger_daemon.service.core.folder_listings import (
    SEARCH_LIMIT,
    TREE_LIMIT,
    Branch,
    Found,
    in_order,
    matching,
    names_of,
    page_of,
    read_branches,
    read_found,
)
from lodger_daemon.service.core.known_folders import NotOpen, known_folders, root_of
from lodger_daemon.service.folder_boxes import FolderBoxes, Missing, NotThere
from lodger_daemon.turns.contract import ConversationError, ConversationService, Folders
from lodger_protocol.limits import FILE_CONTENT_LIMIT_BYTES
from lodger_protocol.place_commands import (
    GetCwdMap,
    GetTree,
    ListInDirectory,
    PlaceCommand,
    ReadFile,
    SearchBranches,
    SearchFiles,
    SetBootWorkingDirectory,
)
from lodger_tools.json_value import JsonObject

DEFAULT_RESULTS: Final = 5
DEFAULT_BRANCHES: Final = 20
LIST_LIMIT: Final = 20_000
"""Names of one answer, some 600 KB; the rest can be had by `offset`."""
SEARCH_DEPTH: Final = 32
TREE_DEPTH: Final = 64


class PlaceCommands:
    """Implements `PlaceAnswering` of the clients' room."""

    def __init__(self, conversations: ConversationService, boxes: FolderBoxes) -> None:
        self._conversations = conversations
        self._boxes = boxes

    async def answer(self, command: PlaceCommand) -> JsonObject:
        """The payload of the response. Raises: ConversationError."""
        try:
            match command:
                case GetCwdMap():
                    return _cwd_map(await self._conversations.folders())
                case SetBootWorkingDirectory():
                    return await self._set_boot(command)
                case SearchFiles():
                    return await self._search(command)
                case ListInDirectory():
                    return await self._list(command)
                case GetTree():
                    return await self._tree(command)
                case ReadFile():
                    return await self._read(command)
                case SearchBranches():
                    return await self._branches(command)
                case _:
                    assert_never(command)
        except (NotOpen, Missing, NotThere) as error:
            raise ConversationError(str(error)) from error

    async def _place(self, path: str | None) -> tuple[str, str]:
        folders = await self._conversations.folders()
        return root_of(path or folders.boot, known_folders(folders))

    async def _set_boot(self, command: SetBootWorkingDirectory) -> JsonObject:
        try:
            folders = await self._conversations.set_boot_folder(command.cwd)
            return {"boot_working_directory": folders.boot, "cwd_revision": folders.boot_revision}
        except ConversationError as error:
            folders = await self._conversations.folders()
            # The current values also on failure.
            return {
                "success": False,
                "boot_working_directory": folders.boot,
                "cwd_revision": folders.boot_revision,
                "error": str(error),
            }

    async def _search(self, command: SearchFiles) -> JsonObject:
        root, folder = await self._place(command.cwd)
        data, limit = await self._boxes.found(root, folder, SEARCH_DEPTH, everything=False)
        wanted = DEFAULT_RESULTS if command.max_results is None else min(max(command.max_results, 0), SEARCH_LIMIT)
        found, _ = read_found(data, limit)
        return {"files": [_shown(one) for one in matching(found, command.query, wanted)]}

    async def _list(self, command: ListInDirectory) -> JsonObject:
        root, folder = await self._place(command.path)
        data, limit = await self._boxes.found(root, folder, 1, everything=True)
        folders, files = names_of(read_found(data, limit)[0])
        files = files if command.include_files else []
        most = min(LIST_LIMIT, LIST_LIMIT if command.limit is None else max(0, command.limit))
        shown_folders, shown_files, more = page_of(folders, files, most, max(0, command.offset or 0))
        response: JsonObject = {
            "path": command.path,
            "folders": [*shown_folders],
            "hasMore": more,
            "total": len(folders) + len(files),
        }
        if command.include_files:
            response["files"] = [*shown_files]
        return response

    async def _tree(self, command: GetTree) -> JsonObject:
        root, folder = await self._place(command.path)
        depth = int(min(max(command.depth, 1), TREE_DEPTH))
        try:
            data, limit = await self._boxes.found(root, folder, depth + 1, everything=False)
        except NotThere:
            # As the reference server: a folder that cannot be read has nothing in it.
            data, limit = b"", 1
        found, cut = read_found(data, limit)
        near = [one for one in in_order(found) if one.depth <= depth]
        return {
            "path": command.path,
            "entries": [_shown(one) for one in near[:TREE_LIMIT]],
            "has_more_depth": cut or len(near) > TREE_LIMIT or any(one.depth > depth for one in found),
        }

    async def _read(self, command: ReadFile) -> JsonObject:
        root, path = await self._place(command.path)
        data = await self._boxes.content(root, path, FILE_CONTENT_LIMIT_BYTES)
        encoding = command.encoding or "utf8"
        if encoding == "base64":
            content = await asyncio.to_thread(_in_base64, data)
        else:
            try:
                content = data.decode("utf-8")
            except UnicodeDecodeError:
                raise NotThere(f"{path} is not UTF-8 text; read it as base64") from None
        return {"path": command.path, "content": content, "encoding": encoding}

    async def _branches(self, command: SearchBranches) -> JsonObject:
        root, folder = await self._place(command.cwd if isinstance(command.cwd, str) and command.cwd else None)
        branches = read_branches(await self._boxes.branches(root, folder))
        limit = command.max_results
        most = (
            min(limit, SEARCH_LIMIT)
            if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
            else DEFAULT_BRANCHES
        )
        wanted = command.query.casefold()
        found = [one for one in branches if wanted in one.name.casefold()]
        return {"branches": [_branch(one) for one in found[:most]]}


def _in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _cwd_map(folders: Folders) -> JsonObject:
    shown: JsonObject = {}
    for key, folder in folders.own.items():
        name = (
            f"agent:{key.agent_id}::conversation:default"
            if key.conversation_id == "default"
            else f"conversation:{key.conversation_id}"
        )
        shown[name] = folder
    return {"cwd_map": shown, "boot_working_directory": folders.boot}


def _shown(found: Found) -> JsonObject:
    return {"path": found.path, "type": found.type}


def _branch(branch: Branch) -> JsonObject:
    return {"name": branch.name, "is_current": branch.is_current, "is_remote": branch.is_remote}
