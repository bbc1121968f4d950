"""How much of anything the wire may carry. Every parser of outside bytes takes one of these as its default."""

from typing import Final

COMMAND_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""One frame of a client. A message with a few photographs (base64) fits; the same figure cuts a slow reader."""

FRAME_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""One frame of a daemon, as a client of ours reads it: a 25 MiB file in base64 plus its envelope fits twice."""

QUEUED_FRAMES_LIMIT: Final = 512
"""Frames that may wait for one client (PROTOCOL.md 2.5); one more cuts it."""

BUFFERED_BYTES_LIMIT: Final = 16 * 1024 * 1024
"""Bytes that may wait for one client (PROTOCOL.md 2.5)."""

PAUSE_BYTES: Final = 512 * 1024
"""Bytes handed to a socket above which no more are handed over until it drains (PROTOCOL.md 2.5)."""

IDENTIFIER_LIMIT_CHARS: Final = 512
"""Any id of the wire. The longest in use are about 80 characters; the limit keeps keys of tables small."""

MESSAGES_LIMIT: Final = 256
"""Messages in one input."""

EXTERNAL_TOOLS_LIMIT: Final = 256
"""Tools of one connection; a model request with more is refused by most providers anyway."""

PATH_LIMIT_CHARS: Final = 4096
"""A path, as Linux limits it."""

QUERY_LIMIT_CHARS: Final = 1024
"""What a person types to find a file or branch."""

FILE_CONTENT_LIMIT_BYTES: Final = 25 * 1024 * 1024
"""A file that a client reads (PROTOCOL.md 4.4); its frame with base64 has a third more."""

LARGE_FRAME_LIMIT_BYTES: Final = 36 * 1024 * 1024
"""One answer with such a file in it; only one at a time waits for a client, beside `BUFFERED_BYTES_LIMIT`."""

MEMORY_CONTENT_LIMIT_CHARS: Final = 2 * 1024 * 1024
"""A memory file has at most 1 MiB, a third more in base64."""

COMMIT_MESSAGE_LIMIT_CHARS: Final = 16 * 1024
"""A quarter of what the validator takes, so that no character takes more than it allows."""
