"""Half characters: some providers cut an escaped emoji in two, and half of one cannot be stored as UTF-8."""


class PairJoiner:
    """Holds back a trailing first half until the second arrives; a half that stays alone becomes U+FFFD."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        if not self._held and text.isascii():
            return text
        text = self._held + text
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held = text[-1]
            text = text[:-1]
        return whole_characters(text)

    def finish(self) -> str:
        """What is still held, as it must be shown."""
        held, self._held = self._held, ""
        return whole_characters(held)


def whole_characters(text: str) -> str:
    """Join surrogate pairs and replace lone halves."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
