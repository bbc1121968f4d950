"""Lines from bytes cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_daemon.models.core.lines import LineReader


@given(st.binary(max_size=200), st.lists(st.integers(1, 20), max_size=50))
def test_however_they_are_cut(data: bytes, sizes: list[int]) -> None:
    reader = LineReader(1000)
    found: list[bytes] = []
    rest = data
    for size in sizes:
        found += reader.feed(rest[:size])
        rest = rest[size:]
    found += reader.feed(rest + b"\n")
    assert found == data.split(b"\n")


def test_a_line_has_a_limit_and_many_of_them_have_none() -> None:
    reader = LineReader(8)
    for _ in range(10):
        assert reader.feed(b"1234567\n") == [b"1234567"]
    assert reader.feed(b"12345678") == []
    assert reader.feed(b"\n12345678") == [b"12345678"]
    with pytest.raises(ValueError, match="8 bytes"):
        reader.feed(b"9")
