"""Commands about an agent's memory files (PROTOCOL.md 4.6)."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from lodger_protocol.envelope import Identifier, WireModel
from lodger_protocol.fields import PathText, RequestId
from lodger_protocol.limits import COMMIT_MESSAGE_LIMIT_CHARS, MEMORY_CONTENT_LIMIT_CHARS, PATH_LIMIT_CHARS
from lodger_protocol.shared_names import MAX_NAME_LENGTH

Encoding: TypeAlias = Literal["utf8", "base64"]
CommitMessage: TypeAlias = Annotated[str, Field(max_length=COMMIT_MESSAGE_LIMIT_CHARS)]


class _OfAgent(WireModel):
    request_id: RequestId
    agent_id: Identifier


class _OfOneMemory(_OfAgent):
    shared: Annotated[str, Field(max_length=MAX_NAME_LENGTH)] | None = None
    """Lodger's own: the memory of this name that the agent shares, instead of its own."""


class ListMemory(_OfAgent):
    type: Literal["list_memory"]
    include_references: bool | None = None


class MemoryHistory(_OfOneMemory):
    type: Literal["memory_history"]
    file_path: Annotated[str, Field(max_length=PATH_LIMIT_CHARS)] | None = None
    limit: object = None
    """Unchecked by the protocol: what is no sensible number counts as absent."""


class MemoryFileAtRef(_OfOneMemory):
    type: Literal["memory_file_at_ref"]
    file_path: PathText
    ref: Identifier


class MemoryCommitDiff(_OfOneMemory):
    type: Literal["memory_commit_diff"]
    sha: Identifier


class ReadMemoryFile(_OfAgent):
    type: Literal["read_memory_file"]
    path: PathText
    encoding: Encoding | None = None


class WriteMemoryFile(_OfAgent):
    type: Literal["write_memory_file"]
    path: PathText
    content: Annotated[str, Field(max_length=MEMORY_CONTENT_LIMIT_CHARS)]
    encoding: Encoding | None = None
    commit_message: CommitMessage | None = None


class DeleteMemoryFile(_OfAgent):
    type: Literal["delete_memory_file"]
    path: PathText
    commit_message: CommitMessage | None = None


class EnableMemfs(_OfAgent):
    type: Literal["enable_memfs"]


MemoryCommand: TypeAlias = (
    ListMemory
    | MemoryHistory
    | MemoryFileAtRef
    | MemoryCommitDiff
    | ReadMemoryFile
    | WriteMemoryFile
    | DeleteMemoryFile
    | EnableMemfs
)
