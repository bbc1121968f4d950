"""What a person types into a search field, as a query of the full-text index; and texts as the index holds them.

Words must all occur. `"two words"` must stand side by side, `begin*` is the beginning of a word, `-word` must not
occur. Nothing else has a meaning of its own, so no text can be a malformed query.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from lodger_daemon.backends.core.request_view import user_parts
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, calls_of, parts_of, text_of
from lodger_daemon.clock import WallTime

QUERY_LIMIT_CHARACTERS: Final = 1_000
TERMS_LIMIT: Final = 32
INDEXED_CHARACTERS: Final = 100_000
"""Of one message; longer ones are results of tools, whose beginning is enough to find them by."""

_TERM: Final = re.compile(r'(-?)(?:"([^"]*)"?|([^\s"]+))')
_WORDLESS: Final = re.compile(r"[\W_]+", re.UNICODE)
# Scripts without spaces between words: each sign is a word of the index, and a searched word a row of them.
_SIGNS: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_SIGN: Final = re.compile(f"([{_SIGNS}])")
_STOPS: Final = "\u3000-\u303f\uff00-\uffef"
_GAP: Final = re.compile(f"(?<=[{_SIGNS}{_STOPS}]) (?=[{_SIGNS}{_STOPS}])")


class QueryRefused(ValueError):
    """A query that cannot be answered; the text says what to write instead."""


@dataclass(frozen=True, slots=True)
class Span:
    """Messages of this time: from `since` on and before `until`; None = without a bound."""

    since: WallTime | None = None
    until: WallTime | None = None


def match_of(query: str) -> str:
    """The query in the index's own language. Raises: QueryRefused."""
    if len(query) > QUERY_LIMIT_CHARACTERS:
        raise QueryRefused(f"A search may have {QUERY_LIMIT_CHARACTERS} characters at most.")
    wanted: list[str] = []
    unwanted: list[str] = []
    for minus, phrase, word in _TERM.findall(clean(query)):
        term = _term(phrase, word)
        if term is not None:
            (unwanted if minus else wanted).append(term)
    if not wanted:
        raise QueryRefused("Write at least one word to search for.")
    if len(wanted) + len(unwanted) > TERMS_LIMIT:
        raise QueryRefused(f"A search may have {TERMS_LIMIT} words at most.")
    match = " AND ".join(wanted)
    return f"({match}) NOT ({' OR '.join(unwanted)})" if unwanted else match


def _term(phrase: str, word: str) -> str | None:
    """Quoted, so that the index takes it as nothing but text. None for what holds no word."""
    is_beginning = word.endswith("*")
    text = phrase or word.rstrip("*")
    if not _WORDLESS.sub("", text):
        return None
    return f'"{spread(text)}"{"*" if is_beginning else ""}'


def span_of(since: str | None, until: str | None) -> Span:
    """Days or instants in ISO form; a day is one of this machine's, and counts whole. Raises: QueryRefused."""
    return Span(_instant(since, is_end=False), _instant(until, is_end=True))


def _instant(text: str | None, is_end: bool) -> WallTime | None:
    if not text:
        return None
    try:
        if len(text) == len("2026-01-01"):
            day = date.fromisoformat(text) + timedelta(days=1 if is_end else 0)
            return WallTime(datetime(day.year, day.month, day.day).astimezone().timestamp())
        return WallTime(datetime.fromisoformat(text).astimezone(UTC).timestamp())
    except (ValueError, OverflowError, OSError):
        raise QueryRefused(f"{text[:40]!r} is no date: write 2026-11-30 or 2026-11-30T14:00:00+01:00.") from None


def indexed_text(message: TranscriptMessage) -> str:
    """What a message is found by. Reminders are not: the daemon said them, on every turn the same."""
    match message.kind:
        case MessageKind.USER:
            text = "\n".join(text_of(part, "text") for part in parts_of(message.content.get("content")))
        case MessageKind.SUMMARY:
            text = "\n".join(text_of(part, "text") for part in user_parts(message))
        case MessageKind.ASSISTANT:
            calls = (f"{call.name} {call.arguments_json}" for call in calls_of(message))
            text = "\n".join([text_of(message.content, "text"), *calls])
        case MessageKind.TOOL:
            text = text_of(message.content, "text")
    return spread(clean(text[:INDEXED_CHARACTERS]).strip())


def clean(text: str) -> str:
    """Without what SQLite cannot hold as text."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def spread(text: str) -> str:
    return text if text.isascii() else _SIGN.sub(r" \1 ", text)


def joined(text: str) -> str:
    """The text again as it was said, but for spaces beside such signs."""
    return text if text.isascii() else _GAP.sub("", re.sub(r" +", " ", text)).strip()
