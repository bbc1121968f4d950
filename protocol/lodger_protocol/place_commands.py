"""Commands about folders of a machine: where conversations work, and what lies there (PROTOCOL.md 4.2, 4.4, 4.10).

They have no runtime; paths are absolute.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from lodger_protocol.envelope import Identifier, WireModel
from lodger_protocol.fields import PathText, RequestId
from lodger_protocol.limits import QUERY_LIMIT_CHARS

Query: TypeAlias = Annotated[str, Field(max_length=QUERY_LIMIT_CHARS)]


class GetCwdMap(WireModel):
    type: Literal["get_cwd_map"]
    request_id: RequestId


class SetBootWorkingDirectory(WireModel):
    type: Literal["set_boot_working_directory"]
    request_id: Identifier
    cwd: PathText


class SearchFiles(WireModel):
    type: Literal["search_files"]
    request_id: RequestId
    query: Query
    max_results: int | None = None
    cwd: PathText | None = None


class ListInDirectory(WireModel):
    type: Literal["list_in_directory"]
    path: PathText
    include_files: bool | None = None
    limit: int | None = None
    offset: int | None = None
    request_id: RequestId | None = None


class GetTree(WireModel):
    type: Literal["get_tree"]
    request_id: RequestId
    path: PathText
    depth: float


class ReadFile(WireModel):
    type: Literal["read_file"]
    request_id: RequestId
    path: PathText
    encoding: Literal["utf8", "base64"] | None = None


class SearchBranches(WireModel):
    type: Literal["search_branches"]
    request_id: RequestId
    query: Query
    max_results: object = None
    """Unchecked by the protocol: what is no sensible number counts as absent."""
    cwd: object = None
    """Unchecked by the protocol: what is no path counts as absent."""


PlaceCommand: TypeAlias = (
    GetCwdMap | SetBootWorkingDirectory | SearchFiles | ListInDirectory | GetTree | ReadFile | SearchBranches
)
