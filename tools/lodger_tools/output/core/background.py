"""What is shown of a background command's output: parts read from a cursor, and the last lines at its end. Pure."""

import codecs
from typing import Final

from lodger_tools.redaction.core.escapes import StrippedStream
from lodger_tools.redaction.core.redactor import RedactedStream, Redactor

NOTICE_LIMIT_CHARS: Final = 10_000
NOTICE_LIMIT_LINES: Final = 50
"""Of a notification: BEHAVIOUR.md A14."""
PART_LIMIT_BYTES: Final = 28_000
"""Read at once by a model: with the words around it within the limit of a shell result."""
OVERLAP_BYTES: Final = 32 * 1024
"""Read before a cursor and not shown: a secret or an escape sequence that the cursor cuts is seen whole."""


def shown_part(before: bytes, data: bytes, ended: bool, redactor: Redactor) -> str:
    """The text of `data`, which follows `before`. What might be the beginning of a secret is held back while more can
    follow it; the next part shows it."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    stripped, redacted = StrippedStream(), RedactedStream(redactor)
    redacted.feed(stripped.feed(decoder.decode(before)))
    text = redacted.feed(stripped.feed(decoder.decode(data, final=ended)))
    return text + redacted.feed(stripped.close()) + redacted.close() if ended else text


def last_lines(text: str) -> str:
    """What a notification shows of a whole, clean text."""
    lines = text.splitlines(keepends=True)
    last = "".join(lines[-NOTICE_LIMIT_LINES:])[-NOTICE_LIMIT_CHARS:]
    if len(last) == len(text):
        return text
    return f"[{len(text) - len(last)} characters before this are left out here]\n{last}"
