"""Types that fields of many commands have."""

from typing import Annotated, TypeAlias

from pydantic import Field, JsonValue

from lodger_protocol.limits import IDENTIFIER_LIMIT_CHARS, PATH_LIMIT_CHARS

RequestId: TypeAlias = Annotated[str, Field(max_length=IDENTIFIER_LIMIT_CHARS)]
JsonMap: TypeAlias = dict[str, JsonValue]

PathText: TypeAlias = Annotated[str, Field(min_length=1, max_length=PATH_LIMIT_CHARS)]
"""A path as a client writes it; whether it may be used is decided where it is used."""
