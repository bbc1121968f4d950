"""Images are refused at the door when no provider would take them, and told in words to a model that takes none."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.backends.core.images import (
    IMAGE_LIMIT_BYTES,
    IMAGES_PER_INPUT,
    fault_of,
    image_fault,
    without_faulty,
)
from lodger_daemon.identity import ClientMessageId
from lodger_daemon.models.contract import FailureKind, ModelFailure, UserMessage
from lodger_daemon.turns.contract import InputMessage, Refused, Submission
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.json_value import Json, JsonObject
from support.turn_parts import House, says

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 60


def image(data: bytes = PNG, media_type: str = "image/png") -> JsonObject:
    source: JsonObject = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"type": "base64", "media_type": "image/png", "data": "no base64!"}, "not valid base64"),
        ({"type": "base64", "media_type": "image/svg+xml", "data": ""}, "not image/svg"),
        ({"type": "base64", "media_type": "image/jpeg", "data": base64.b64encode(PNG).decode()}, "not image/jpeg"),
        ({"type": "url", "url": "http://example.org/cat.png"}, "https://"),
        ({"type": "url", "url": "file:///etc/passwd"}, "https://"),
        ({"type": "file", "path": "/etc/passwd"}, "base64 or"),
        ("x", "no source"),
    ],
)
def test_what_is_no_image_is_refused_with_words(source: Json, words: str) -> None:
    fault = image_fault({"type": "image", "source": source})
    assert fault is not None
    assert words in fault


def test_images_have_a_largest_size_and_a_largest_number() -> None:
    assert fault_of([[image(PNG + b"\0" * (IMAGE_LIMIT_BYTES - len(PNG)))]]) is None
    assert "5 MiB" in str(fault_of([[image(PNG + b"\0" * (IMAGE_LIMIT_BYTES + 8))]]))
    assert fault_of([[image()] * IMAGES_PER_INPUT]) is None
    assert "21" in str(fault_of([[image()] * 20, [image()]]))
    assert fault_of(["only text", [{"type": "text", "text": "x"}]]) is None


def test_a_client_may_have_the_faulty_ones_told_in_words() -> None:
    bad = image(b"no png")
    told = without_faulty([{"type": "text", "text": "look"}, bad, image()])
    assert isinstance(told, list)
    assert (told[0], told[2]) == ({"type": "text", "text": "look"}, image())
    assert "left out" in str(told[1])
    assert fault_of([told]) is None
    assert fault_of([without_faulty([image()] * 25)]) is None
    assert without_faulty("text") == "text"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    one = House(tmp_path)
    await one.start()
    yield one
    await one.close()


async def send(house: House, number: int, *parts: Json) -> object:
    one = InputMessage(ClientMessageId(f"m{number}"), [{"type": "text", "text": "look"}, *parts], f"m{number}")
    receipt = await house.conversations.submit(house.key, Submission((one,)))
    await house.settled()
    return receipt


async def test_an_input_with_a_faulty_image_is_refused_and_changes_nothing(house: House) -> None:
    receipt = await send(house, 1, image(b"no png"))
    assert isinstance(receipt, Refused)
    assert await house.conversations.list_messages(house.key) == ()


async def test_a_model_that_takes_no_images_is_asked_again_with_words(house: House) -> None:
    refusal = ModelFailure(FailureKind.BAD_REQUEST, "This model does not support image input", status=400)
    house.models.play([refusal], says("I cannot see it."))
    one = InputMessage(ClientMessageId("m1"), [{"type": "text", "text": "look"}, image()], "m1")
    await house.conversations.submit(house.key, Submission((one,)))
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(1)
    await house.settled()
    finished = house.seen(seen.TurnFinished)[-1]
    assert isinstance(finished, seen.TurnFinished)
    assert (finished.stop_reason, finished.error) == (StopReason.END_TURN, None)
    asked, again = house.models.requests
    assert "base64" in str(asked.messages)
    assert "takes no images" in str(again.messages)
    assert "base64" not in str(again.messages)
    await send(house, 2)
    assert house.models.requests[-1].messages[: len(again.messages)] == again.messages
    kept = await house.conversations.list_messages(house.key, descending=False)
    assert "base64" in str(kept[0]["content"])


async def test_a_failure_that_has_nothing_to_do_with_images_is_no_refusal_of_them(house: House) -> None:
    house.models.play([ModelFailure(FailureKind.BAD_REQUEST, "temperature must be at most 1", status=400)])
    await send(house, 1, image())
    assert len(house.models.requests) == 1
    await send(house, 2)
    shown = [message for message in house.models.requests[-1].messages if isinstance(message, UserMessage)]
    assert "base64" in str(shown[0])


async def test_a_body_with_too_many_bytes_of_images_teaches_nothing_about_tokens(house: House) -> None:
    for number in range(4):
        await send(house, number, image())
    too_many = ModelFailure(FailureKind.CONTEXT_OVERFLOW, "request_too_large", status=413)
    house.models.play([too_many], says("They looked at pictures."), says("ok"))
    await send(house, 8, image())
    refused, _, answered = house.models.requests[-3:]
    assert str(answered.messages).count("base64") < str(refused.messages).count("base64")
    before = len(house.models.requests)
    for number in range(10, 16):
        await send(house, number, image())
    assert len(house.models.requests) - before == 6, "compacted again although only bytes were too many"
