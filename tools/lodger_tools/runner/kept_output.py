"""What a call has written, with the middle left out when it is too much to keep."""

from __future__ import annotations

CHUNK_BYTES = 64 * 1024
HEAD_LIMIT_BYTES = 8 * 1024 * 1024
TAIL_LIMIT_BYTES = 8 * 1024 * 1024
"""Together 16 MiB a call: some 500 times what a model is shown of it."""


class KeptOutput:
    """The first and the last bytes of a stream, by their offsets in the whole of it."""

    __slots__ = ("_tail", "_tail_bytes", "head", "head_limit_bytes", "tail_limit_bytes", "total_bytes")

    def __init__(self, head_limit_bytes: int = HEAD_LIMIT_BYTES, tail_limit_bytes: int = TAIL_LIMIT_BYTES) -> None:
        self.head_limit_bytes = head_limit_bytes
        self.tail_limit_bytes = tail_limit_bytes
        self.head = bytearray()
        self.total_bytes = 0
        self._tail: list[bytearray] = []
        self._tail_bytes = 0

    @property
    def tail_start(self) -> int:
        return self.total_bytes - self._tail_bytes

    @property
    def dropped_bytes(self) -> int:
        return self.tail_start - len(self.head)

    @property
    def kept_bytes(self) -> int:
        return len(self.head) + self._tail_bytes

    def append(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = self.head_limit_bytes - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        if data and self.tail_limit_bytes:
            self._append_tail(data)

    def leave_out(self, byte_count: int) -> None:
        """Count bytes that somebody else has already dropped: what was there before is the head for good."""
        self.head_limit_bytes = len(self.head)
        self.total_bytes += byte_count
        self._tail.clear()
        self._tail_bytes = 0

    def _append_tail(self, data: bytes) -> None:
        if self._tail and len(self._tail[-1]) + len(data) <= CHUNK_BYTES:
            self._tail[-1] += data
        else:
            self._tail.append(bytearray(data))
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= self.tail_limit_bytes:
            self._tail_bytes -= len(self._tail.pop(0))

    def read(self, offset: int, limit_bytes: int) -> bytes:
        """Kept bytes from `offset` on; none when `offset` is at the end or in the part that was left out."""
        if offset < len(self.head):
            return bytes(self.head[offset : offset + limit_bytes])
        position = self.tail_start
        if offset < position:
            return b""
        for chunk in self._tail:
            if offset < position + len(chunk):
                start = offset - position
                return bytes(chunk[start : start + limit_bytes])
            position += len(chunk)
        return b""

    def part(self, offset: int, limit_bytes: int) -> tuple[int, bytes]:
        """Where kept bytes at or after `offset` begin, and at most so many of them in one piece; a negative offset
        counts from the end."""
        start = min(max(0, self.total_bytes + offset if offset < 0 else offset), self.total_bytes)
        if len(self.head) <= start < self.tail_start:
            start = self.tail_start
        pieces: list[bytes] = []
        size = 0
        while size < limit_bytes and (piece := self.read(start + size, limit_bytes - size)):
            pieces.append(piece)
            size += len(piece)
        return start, b"".join(pieces)

    def whole(self, gap_words: str = "\n[{} bytes of output were not kept]\n") -> bytes:
        """Everything kept; words stand where the middle is missing."""
        gap = gap_words.format(self.dropped_bytes).encode() if self.dropped_bytes else b""
        return b"".join((self.head, gap, *self._tail))
