"""What was opened for a box is read as it was written, or not at all, and then it is said why."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_daemon.ports.core.grants import BadGrants, Grants, as_text, from_text

PORTS = st.integers(1, 65535)
NO_PORTS = (
    st.booleans() | st.none() | st.integers(max_value=0) | st.integers(65536) | st.floats() | st.just("3000")
    | st.just([]) | st.just([3000]) | st.just({})
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | PORTS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(("open", "denied", "a")), inner, max_size=3)
    ),
    max_leaves=15,
)


@st.composite
def grants(draw: st.DrawFn) -> Grants:
    opened = draw(st.dictionaries(PORTS, PORTS, max_size=20))
    return Grants(opened, draw(st.frozensets(PORTS, max_size=20)) - opened.keys())


@settings(deadline=None)
@given(grants())
def test_what_was_granted_is_read_as_it_was_written(granted: Grants) -> None:
    assert from_text(as_text(granted)) == granted


@settings(max_examples=400, deadline=None)
@given(grants(), NO_PORTS, st.integers(0, 3), st.randoms(use_true_random=False))
def test_one_wrong_port_and_nothing_is_opened(granted: Grants, wrong: object, place: int, rng: random.Random) -> None:
    stored = json.loads(as_text(granted))
    pairs, denied = stored["open"], stored["denied"]
    match place:
        case 0:
            pairs.insert(rng.randrange(len(pairs) + 1), [wrong, 3000])
        case 1:
            pairs.insert(rng.randrange(len(pairs) + 1), [3000, wrong])
        case 2:
            pairs.insert(rng.randrange(len(pairs) + 1), wrong)
        case _:
            denied.insert(rng.randrange(len(denied) + 1), wrong)
    with pytest.raises(BadGrants, match="port"):
        from_text(json.dumps(stored))


@settings(max_examples=400, deadline=None)
@given(JSON)
def test_any_json_is_grants_or_refused(value: object) -> None:
    try:
        granted = from_text(json.dumps(value))
    except BadGrants:
        return
    assert from_text(as_text(granted)) == granted
    assert all(type(port) is int and 0 < port < 65536 for pair in granted.open.items() for port in pair)
    assert all(type(port) is int and 0 < port < 65536 for port in granted.denied)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_grants_or_refused(text: str) -> None:
    with pytest.raises(BadGrants):
        from_text(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("9" * 5_000, "no JSON"),
        ("[]", "not an object"),
        ('{"open": []}', "not an object"),
        ('{"open": [], "denied": [], "more": 1}', "not an object"),
        ('{"open": {"3000": 3000}, "denied": []}', "`open` is no list"),
        ('{"open": [], "denied": "3000"}', "`denied` is no list"),
        ('{"open": [[3000, 3000, 3000]], "denied": []}', "local one"),
        ('{"open": [[true, 3000]], "denied": []}', "True is no port"),
        ('{"open": [], "denied": [true]}', "True is no port"),
        ('{"open": [], "denied": [3000.0]}', "3000.0 is no port"),
        ('{"open": [[3000, 1], [3000, 2]], "denied": []}', "one port"),
        ('{"open": [[3000, 3000]], "denied": [3000]}', "one port"),
    ],
)
def test_why_it_was_refused_is_said(text: str, why: str) -> None:
    with pytest.raises(BadGrants, match=why):
        from_text(text)
