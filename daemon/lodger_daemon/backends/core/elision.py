"""What a compaction leaves out of messages it keeps: old images, the middle of long results.

The transcript keeps everything. What is left out is written down with the summary, so that the model is shown the same
bytes after a restart, until the next compaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lodger_daemon.backends.core.budget import estimate, estimate_all
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, list_of, parts_of, text_of
from lodger_daemon.identity import MessageId
from lodger_tools.json_value import Json, JsonObject

RESULT_KEEPS_CHARACTERS: Final = 2_000
"""Half from the beginning, half from the end: about what a command's first and last screen hold."""
NOTE_CHARACTERS: Final = 200
"""More than any note is long; a result that is longer than what it keeps by no more than this stays whole."""
IMAGE_LEFT_OUT: Final = "[An image was here; it was left out to save room.]"


@dataclass(frozen=True, slots=True)
class Elision:
    images: frozenset[MessageId] = frozenset()
    """Messages shown without their images."""
    results: frozenset[MessageId] = frozenset()
    """Results shown without their middle."""
    keeps_characters: int = RESULT_KEEPS_CHARACTERS

    @property
    def is_empty(self) -> bool:
        return not self.images and not self.results

    def within(self, kept: Sequence[TranscriptMessage]) -> "Elision":
        """Only what concerns these messages."""
        ids = {message.message_id for message in kept}
        return replace(self, images=self.images & ids, results=self.results & ids)

    def as_content(self) -> JsonObject:
        """Fields of a summary's content; none when nothing is left out."""
        if self.is_empty:
            return {}
        images: list[Json] = [*sorted(self.images)]
        results: list[Json] = [*sorted(self.results)]
        return {"left_out": {"images": images, "results": results, "keeps_characters": self.keeps_characters}}


def elision_of(summary: TranscriptMessage) -> Elision:
    stored = summary.content.get("left_out")
    if not isinstance(stored, dict):
        return Elision()
    keeps = stored.get("keeps_characters")
    return Elision(
        images=frozenset(MessageId(str(one)) for one in list_of(stored, "images")),
        results=frozenset(MessageId(str(one)) for one in list_of(stored, "results")),
        keeps_characters=keeps if isinstance(keeps, int) and keeps >= 0 else RESULT_KEEPS_CHARACTERS,
    )


def with_new_ids(content: JsonObject, ids: Mapping[MessageId, MessageId]) -> JsonObject:
    """A summary's content in a copy of its conversation, whose messages have ids of their own."""
    stored = content.get("left_out")
    if not isinstance(stored, dict):
        return content
    renamed: JsonObject = dict(stored)
    for name in ("images", "results"):
        known = [MessageId(str(one)) for one in list_of(stored, name)]
        renamed[name] = [ids[one] for one in known if one in ids]
    return {**content, "left_out": renamed}


def as_shown(message: TranscriptMessage, elision: Elision) -> TranscriptMessage:
    """The message as the model gets it. Doing it twice changes nothing."""
    if message.message_id in elision.images:
        return _without_images(message)
    if message.message_id in elision.results:
        return _shortened(message, elision.keeps_characters)
    return message


def elide(
    kept: Sequence[TranscriptMessage], room: int, so_far: Elision
) -> tuple[tuple[TranscriptMessage, ...], Elision]:
    """Leave out as little as makes these messages fit: old images first, then the middle of results, oldest first.

    Images of the newest user message stay: they are what the turn is about.
    Args:
        room: tokens there are for them.
    """
    shown, tokens = list(kept), estimate_all(kept)
    images, results = set(so_far.images), set(so_far.results)
    for index in (*_with_images(kept), *_results(kept)):
        if tokens <= room:
            break
        message = shown[index]
        is_result = message.kind is MessageKind.TOOL
        shorter = _shortened(message, so_far.keeps_characters) if is_result else _without_images(message)
        if shorter is message:
            continue
        tokens += estimate(shorter) - estimate(message)
        shown[index] = shorter
        (results if is_result else images).add(message.message_id)
    return tuple(shown), replace(so_far, images=frozenset(images), results=frozenset(results))


def _with_images(kept: Sequence[TranscriptMessage]) -> list[int]:
    users = [index for index, message in enumerate(kept) if message.kind is MessageKind.USER]
    return [index for index in users[:-1] if any(part.get("type") == "image" for part in _parts(kept[index]))]


def _results(kept: Sequence[TranscriptMessage]) -> list[int]:
    return [index for index, message in enumerate(kept) if message.kind is MessageKind.TOOL]


def _parts(message: TranscriptMessage) -> tuple[JsonObject, ...]:
    return parts_of(message.content.get("content"))


def _without_images(message: TranscriptMessage) -> TranscriptMessage:
    parts: list[Json] = [
        {"type": "text", "text": IMAGE_LEFT_OUT} if part.get("type") == "image" else part for part in _parts(message)
    ]
    return replace(message, content={**message.content, "content": parts})


def _shortened(message: TranscriptMessage, keeps_characters: int) -> TranscriptMessage:
    text, half = text_of(message.content, "text"), keeps_characters // 2
    if len(text) <= keeps_characters + NOTE_CHARACTERS:
        return message
    left_out = len(text) - 2 * half
    note = f"\n\n[{left_out} characters of this result were left out here to save room.]\n\n"
    return replace(message, content={**message.content, "text": text[:half] + note + text[len(text) - half :]})
