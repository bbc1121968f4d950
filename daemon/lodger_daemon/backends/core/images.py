"""Pictures in messages: which are taken, and what a model that takes none is told instead.

An image that a provider refuses would be refused again with every later request of the conversation, so what cannot be
one is refused at the door.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from lodger_daemon.backends.core.transcript import parts_of, text_of
from lodger_daemon.models.contract import FailureKind, ModelFailure, ModelMessage, UserMessage
from lodger_tools.json_value import Json, JsonObject

IMAGES_PER_INPUT: Final = 20
"""Above this Anthropic takes only small ones; the other providers allow more."""
IMAGE_LIMIT_BYTES: Final = 5 * 1024 * 1024
"""Anthropic's limit, the lowest of the large providers'."""
ADDRESS_LIMIT_CHARACTERS: Final = 2_048

_BEGINNINGS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
_TAKES_NONE: Final = "[An image was here; this model takes no images.]"
_REFUSING_KINDS: Final = (FailureKind.BAD_REQUEST, FailureKind.UNKNOWN_MODEL, FailureKind.SERVER)
_REFUSING_WORDS: Final = ("image", "vision", "multimodal", "multi-modal", "mmproj")
"""No provider has a code for it. Asked only about failures of requests that held images."""


def fault_of(contents: Sequence[Json]) -> str | None:
    """What is wrong with the images of one input, in words for the person; None when all can be taken."""
    images = [part for content in contents for part in parts_of(content) if _is_image(part)]
    if len(images) > IMAGES_PER_INPUT:
        return (
            f"A message may hold {IMAGES_PER_INPUT} images at most; this one holds {len(images)}. Send them in parts."
        )
    return next((fault for image in images if (fault := image_fault(image)) is not None), None)


def without_faulty(content: Json) -> Json:
    """For a client that wants the rest to be sent: each image that cannot be taken becomes words."""
    if not isinstance(content, list):
        return content
    images = 0
    parts: list[Json] = []
    for part in content:
        fault = None
        if isinstance(part, dict) and _is_image(part):
            images += 1
            fault = image_fault(part) if images <= IMAGES_PER_INPUT else "There were too many images."
        parts.append(part if fault is None else {"type": "text", "text": f"[An image was left out. {fault}]"})
    return parts


def image_fault(image: JsonObject) -> str | None:
    source = image.get("source")
    if not isinstance(source, dict):
        return "An image has no source."
    match source.get("type"):
        case "base64":
            return _data_fault(text_of(source, "media_type"), text_of(source, "data"))
        case "url":
            return _address_fault(text_of(source, "url"))
        case _:
            return "An image must be given as base64 or as an https address."


def refuses_images(messages: Sequence[ModelMessage], failure: ModelFailure) -> bool:
    """Whether a failure means that the model takes no images."""
    if failure.output_seen or failure.kind not in _REFUSING_KINDS:
        return False
    words = failure.message.lower()
    return any(word in words for word in _REFUSING_WORDS) and any(holds_image(message) for message in messages)


def in_words(message: ModelMessage) -> ModelMessage:
    """The message for a model that takes no images."""
    if not isinstance(message, UserMessage) or not holds_image(message):
        return message
    told: JsonObject = {"type": "text", "text": _TAKES_NONE}
    return replace(message, parts=tuple(told if _is_image(part) else part for part in message.parts))


def _is_image(part: JsonObject) -> bool:
    return part.get("type") == "image"


def holds_image(message: ModelMessage) -> bool:
    return isinstance(message, UserMessage) and any(_is_image(part) for part in message.parts)


def _data_fault(media_type: str, data: str) -> str | None:
    beginnings = _BEGINNINGS.get(media_type)
    if beginnings is None:
        return f"Images can be {', '.join(sorted(_BEGINNINGS))}, not {media_type[:100] or 'of an unnamed kind'}."
    # Four letters stand for three bytes.
    if len(data) * 3 // 4 > IMAGE_LIMIT_BYTES + 2:
        return f"An image may have {IMAGE_LIMIT_BYTES // (1024 * 1024)} MiB at most. Send a smaller one."
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return "An image's data is not valid base64."
    if not decoded.startswith(beginnings):
        return f"An image's data is not {media_type}, although it says so."
    return None


def _address_fault(address: str) -> str | None:
    if address.startswith("https://") and len(address) <= ADDRESS_LIMIT_CHARACTERS:
        return None
    return f"An image's address must begin with https:// and have {ADDRESS_LIMIT_CHARACTERS} characters at most."
