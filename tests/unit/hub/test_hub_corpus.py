"""Every stored sample of what comes in from outside, and thousands of seeded mutations of each.

`corpus/KIND/NAME.txt` holds what a parser of that kind is given. A sample that ever broke one is added there.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from lodger_hub.access.core.credentials import Absent, Presented, Unusable, find_credential
from lodger_hub.access.core.hosts import host_name, is_own_host, is_own_origin, own_origin
from lodger_hub.access.core.pairing import ALPHABET, CODE_CHARACTERS, NAME_CHARACTERS, device_name, read_code
from lodger_hub.access.core.sources import LOOPBACK, source_of_call
from lodger_hub.api.bodies import PairBody, PairingBody, RegisterBody, parse_body
from lodger_hub.errors import RequestRefused
from lodger_hub.mailbox.core.letters import (
    ID_CHARACTERS,
    Letter,
    NoLetter,
    read_acknowledgement,
    read_letter,
)
from lodger_hub.relay.core.bare import ForOne, downward, parse, runtime_of, upward
from lodger_hub.store.contract import TokenRole
from lodger_protocol.relay import MalformedRelayMessage, RelayHeader, is_enveloped, unwrap, unwrap_text

CORPUS = Path(__file__).parent / "corpus"
SEED = 20261130
MUTATIONS = 150
SOAK_MUTATIONS = 20_000
TOKENS = (
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"\x00", b"\xff", b"\xed\xa0\x80", b"null", b"true",
    b"1e999", b"-0", b"NaN", b'"type"', b'"request_id"', b"~", b"..", b"/", b"@", b"%00", b"\xe2\x80\xae", b" ",
)  # fmt: skip


def letter(raw: bytes) -> None:
    read = read_letter(raw.decode("utf-8", "replace"), "mail-1")
    assert isinstance(read, Letter | NoLetter)
    if isinstance(read, Letter):
        again = json.loads(read.frame)
        assert (again["type"], again["request_id"], again["payload"]["kind"]) == ("input", "mail-1", "create_message")
        assert read.client_message_id.isprintable()
        assert 1 <= len(read.client_message_id) <= ID_CHARACTERS
        # What the machine reads is what was judged here.
        assert read_letter(read.frame, "mail-1") == read
        read.frame.encode()


def acknowledgement(raw: bytes) -> None:
    read = read_acknowledgement(raw.decode("utf-8", "replace"))
    if read is not None and read.reason is not None:
        read.reason.encode()


def frame(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    content = parse(text)
    up, down = upward("client-1", text), downward(text, {"client-1", "client-2"})
    assert (content is None) == (up is None)
    if content is None:
        assert down is None
        return
    runtime_of(content)
    assert up is not None
    assert json.loads(up)["type"] == content["type"]
    if isinstance(down, ForOne):
        assert down.client_id in ("client-1", "client-2")
        assert json.loads(down.frame)["request_id"] != content["request_id"]


def envelope(raw: bytes) -> None:
    """The daemon reads bytes, the hub text: both find the same header, or neither does."""
    read: list[RelayHeader | None] = []
    text = raw.decode("utf-8", "replace")
    for split, message in ((lambda one: unwrap(one).header, text.encode()), (lambda one: unwrap_text(one)[0], text)):
        try:
            read.append(split(message))  # type: ignore[no-untyped-call]
        except MalformedRelayMessage:
            read.append(None)
    if text.isascii():
        assert read[0] == read[1]
    if not is_enveloped(text.encode()):
        assert read[0] is None


def registration(raw: bytes) -> None:
    try:
        body = parse_body(RegisterBody, raw, "invalid_registration")
    except RequestRefused as error:
        assert error.status == 400
        error.message.encode("utf-8", "surrogatepass")
        return
    assert "/" not in body.device_id
    assert body.device_id.isascii()
    json.dumps(body.metadata)


def pairing(raw: bytes) -> None:
    for kind in (PairBody, PairingBody):
        try:
            body = parse_body(kind, raw, "invalid_pairing")
        except RequestRefused as error:
            assert error.status == 400
            continue
        if isinstance(body, PairingBody):
            assert body.role in TokenRole
            continue
        assert isinstance(body, PairBody)
        code, name = read_code(body.code), device_name(body.name)
        assert code is None or (len(code) == CODE_CHARACTERS and set(code) <= set(ALPHABET))
        assert name is None or (0 < len(name) <= NAME_CHARACTERS and name.isprintable())


def headers(raw: bytes) -> None:
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError):
        return
    if not isinstance(given, dict):
        return
    # As the server hands them on: one byte each, no control characters.
    pairs = {
        str(name).lower(): "".join(one for one in str(value) if " " <= one <= "\xff") for name, value in given.items()
    }
    for socket in (False, True):
        found = find_credential(pairs, {}, basic_allowed=True, socket=socket)
        assert isinstance(found, Absent | Unusable | Presented)
        if "authorization" in pairs or "cookie" in pairs:
            assert not isinstance(found, Absent)
    host, origin = pairs.get("host"), pairs.get("origin")
    if is_own_host(host, frozenset({"hub.example"})):
        assert host is not None
        assert "@" not in host
        assert host_name(host) is not None
    own = own_origin(host or "", secure=True, public=None)
    assert is_own_origin(origin, own) == (origin is None or origin.lower() == own)
    forwarded = [pairs["x-forwarded-for"]] if "x-forwarded-for" in pairs else []
    assert source_of_call("127.0.0.1", forwarded, LOOPBACK).address
    assert source_of_call("203.0.113.7", forwarded, LOOPBACK).address == "203.0.113.7"


PARSERS: dict[str, Callable[[bytes], None]] = {
    "letter": letter,
    "acknowledgement": acknowledgement,
    "frame": frame,
    "envelope": envelope,
    "registration": registration,
    "pairing": pairing,
    "headers": headers,
}
SAMPLES = sorted(CORPUS.glob("*/*.txt"))


def mutated(raw: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """One to four small changes, or a splice with another sample of the kind."""
    changed = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0:
                changed[place:place] = rng.choice(TOKENS)
            case 1:
                del changed[place : place + rng.randint(1, 9)]
            case 2 if place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
            case 3:
                changed[place:place] = changed[place : place + rng.randint(1, 30)]
            case 4:
                other = rng.choice(others)
                changed[place:] = other[rng.randrange(len(other) + 1) :]
            case _:
                end = place + rng.randint(1, 6)
                changed[place:end] = rng.choice(TOKENS) * rng.randint(1, 3)
    return bytes(changed[:20_000])


def test_every_kind_has_samples_and_every_sample_a_parser() -> None:
    assert {sample.parent.name for sample in SAMPLES} == set(PARSERS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.parent.name}-{sample.stem}")
def test_samples_and_their_mutations_are_read_or_refused(sample: Path, request: pytest.FixtureRequest) -> None:
    parser, raw = PARSERS[sample.parent.name], sample.read_bytes()
    parser(raw)
    others = [one.read_bytes() for one in SAMPLES if one.parent == sample.parent]
    rng = random.Random(f"{SEED} {sample.parent.name} {sample.stem}")
    for _ in range(SOAK_MUTATIONS if request.config.getoption("--soak") else MUTATIONS):
        changed = mutated(raw, rng, others)
        try:
            parser(changed)
        except Exception as error:
            raise AssertionError(f"keep this in {sample.parent}: {changed!r}") from error
