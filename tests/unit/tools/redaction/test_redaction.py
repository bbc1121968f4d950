import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_tools.redaction.core.escapes import StrippedStream, strip_escapes
from lodger_tools.redaction.core.redactor import RedactedStream, Redactor

SECRETS = {"TOKEN": "hunter2-hunter2", "KEY": "hunter2-hunter2-longer", "ODD": 'p&ss w/rd+"1"', "TINY": "abc"}
REDACTOR = Redactor(SECRETS)
PIECES = st.sampled_from(
    [
        *SECRETS.values(),
        "hunter2-",
        "hunter2-hunter2-l",
        "p&ss",
        "\n",
        " ",
        "x",
        base64.b64encode(b"ahunter2-hunter2").decode(),
    ]
)


@given(st.lists(PIECES, max_size=8).map("".join), st.data())
def test_a_text_in_pieces_is_redacted_as_the_whole(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    stream = RedactedStream(REDACTOR)
    result = [stream.feed(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    joined = "".join(result) + stream.close()
    assert joined == REDACTOR.redact(text)
    for name in ("TOKEN", "KEY", "ODD"):
        assert SECRETS[name] not in joined


@given(
    st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=8, max_size=40), st.binary(), st.binary()
)
def test_encoded_forms_are_found_wherever_they_stand(secret: str, before: bytes, after: bytes) -> None:
    redactor = Redactor({"S": secret})
    encoded = base64.b64encode(before + secret.encode() + after).decode()
    for text in (encoded, encoded.replace("+", "-").replace("/", "_"), quote(secret, safe=""), f"a{secret}b"):
        assert "S=<REDACTED>" in redactor.redact(text)


def test_the_longer_of_two_secrets_wins_and_short_ones_are_left() -> None:
    assert REDACTOR.redact("a hunter2-hunter2-longer abc") == "a KEY=<REDACTED> abc"
    assert Redactor({}).redact("abc") == "abc"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
        ("\x1b(Ba\x1b7b\x1b=c", "abc"),
        ("a\r\nb\x08\x00\x07", "a\nb"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("\x1b[31", "[31"),
    ],
)
def test_escapes(text: str, plain: str) -> None:
    assert strip_escapes(text) == plain


@given(
    st.lists(st.sampled_from(["\x1b[31m", "\x1b]0;t\x07", "\x1b]8;;u\x1b\\", "a", "\r\n", "\x1b(B", "é"])).map("".join),
    st.data(),
)
def test_escapes_in_pieces(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    stream = StrippedStream()
    result = [stream.feed(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert "".join(result) + stream.close() == strip_escapes(text)
