"""No bytes from outside raise in the hub's own parsers, whatever they hold."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_hub.access.core.credentials import Absent, Presented, Unusable, find_credential
from lodger_hub.access.core.hosts import host_name, is_own_host, own_origin
from lodger_hub.access.core.pairing import (
    ALPHABET,
    CODE_CHARACTERS,
    NAME_CHARACTERS,
    device_name,
    read_code,
    shown_code,
)
from lodger_hub.mailbox.core.letters import Letter, NoLetter, read_acknowledgement, read_letter

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
KEYS = st.sampled_from(
    ["type", "runtime", "payload", "kind", "messages", "client_message_id", "agent_id", "conversation_id", "request_id"]
)
WORDS = st.sampled_from(["input", "create_message", "input_accepted", "a", ""])
VALUES = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_any_json_is_a_letter_or_told_why_not(value: object) -> None:
    text = json.dumps(value)
    letter = read_letter(text, "mail-1")
    assert isinstance(letter, Letter | NoLetter)
    if isinstance(letter, Letter):
        assert json.loads(letter.frame)["request_id"] == "mail-1"
        letter.frame.encode()
    read_acknowledgement(text)


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    assert isinstance(read_letter(text, "mail-1"), NoLetter)
    read_acknowledgement(text + "input_accepted")
    code = read_code(text)
    assert code is None or (len(code) == CODE_CHARACTERS and set(code) <= set(ALPHABET))
    name = device_name(text)
    assert name is None or (0 < len(name) <= NAME_CHARACTERS and name.isprintable())
    host_name(text)
    is_own_host(text, frozenset({"hub.example"}))
    own_origin(text, secure=True, public=None)


@given(st.text(alphabet=ALPHABET, min_size=CODE_CHARACTERS, max_size=CODE_CHARACTERS))
def test_a_code_is_read_back_from_what_is_shown(code: str) -> None:
    assert read_code(shown_code(code)) == read_code(shown_code(code).lower()) == code


HEADERS = st.dictionaries(
    st.sampled_from(["authorization", "sec-websocket-protocol", "origin", "cookie", "x-api-key"]),
    st.sampled_from(
        ["Bearer t", "Basic eA==", "Basic !", "lodger.v1", "lodger.v1, lodger.token.t", "lodger.token.", "t"]
    ),
)


@given(HEADERS, st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_every_mixture_of_credentials_is_one_none_or_a_guess(
    headers: dict[str, str], basic: bool, socket: bool
) -> None:
    found = find_credential(headers, {}, basic_allowed=basic, socket=socket)
    assert isinstance(found, Absent | Unusable | Presented)
    places = {"authorization", "cookie", "x-api-key"} & headers.keys()
    if places or "lodger.token." in headers.get("sec-websocket-protocol", ""):
        assert not isinstance(found, Absent)
