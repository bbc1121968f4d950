"""Lines, read from bytes that may be cut anywhere."""


class LineReader:
    """Feed bytes, get whole lines."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Without their ends. Raises: ValueError when what waits for its end grows beyond the limit."""
        self._rest += data
        lines: list[bytes] = []
        end = self._rest.rfind(b"\n", len(self._rest) - len(data))
        if end >= 0:
            lines = bytes(self._rest[:end]).split(b"\n")
            del self._rest[: end + 1]
        if len(self._rest) > self._limit_bytes:
            raise ValueError(f"a line of more than {self._limit_bytes} bytes")
        return lines
