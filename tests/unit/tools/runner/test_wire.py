import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_tools.runner import lean_json
from lodger_tools.runner.kept_output import KeptOutput
from lodger_tools.runner.wire import FrameReader, WireError, encode_frame

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.binary(max_size=50))), st.data())
def test_frames_come_back_however_they_are_cut(
    frames: list[tuple[dict[str, object], bytes]], data: st.DataObject
) -> None:
    stream = b"".join(encode_frame(header, payload) for header, payload in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    reader = FrameReader(100_000, 1000)
    read = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        read += reader.feed(stream[start:end])
    assert read == frames


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_refused(noise: bytes) -> None:
    reader = FrameReader(1000, 1000)
    try:
        for header, _ in reader.feed(noise):
            assert isinstance(header, dict)
    except WireError:
        pass


def test_a_length_above_the_limit_is_refused_before_its_bytes_arrive() -> None:
    with pytest.raises(WireError):
        FrameReader(64, 64).feed((65).to_bytes(4, "big") + bytes(4))
    with pytest.raises(WireError):
        FrameReader(64, 64).feed((2).to_bytes(4, "big") + (65).to_bytes(4, "big"))


@pytest.mark.parametrize("text", ["", "{", "[1,]", "{} x", "NaN", '"\n"', "[" * 100_000])
def test_broken_json_is_refused(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        lean_json.loads(text)
    frame = encode_frame({})[:0] + len(text.encode()).to_bytes(4, "big") + bytes(4) + text.encode()
    if text:
        with pytest.raises(WireError):
            FrameReader(1_000_000, 0).feed(frame)


def test_the_lean_codec_is_the_one_in_use() -> None:
    assert lean_json.loads.__qualname__.startswith("lean_codec")


@given(st.lists(st.binary(max_size=40)), st.integers(0, 60), st.integers(1, 60))
def test_kept_output_reads_back_what_it_keeps(pieces: list[bytes], head: int, tail: int) -> None:
    kept = KeptOutput(head, tail)
    whole = b"".join(pieces)
    for piece in pieces:
        kept.append(piece)
    assert kept.total_bytes == len(whole)
    assert bytes(kept.head) == whole[:head]
    seen = bytearray()
    offset = 0
    while offset < kept.total_bytes:
        data = kept.read(offset, 7)
        if data:
            assert whole[offset : offset + len(data)] == data
            seen += data
            offset += len(data)
        else:
            offset = kept.tail_start
    assert len(seen) + kept.dropped_bytes == len(whole)
    if kept.dropped_bytes:
        assert kept.whole("[{}]") == whole[:head] + f"[{kept.dropped_bytes}]".encode() + whole[kept.tail_start :]
