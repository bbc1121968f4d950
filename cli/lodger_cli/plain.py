"""Words that others wrote, made fit for a terminal."""


def plain(text: str) -> str:
    """Without control characters: a log line or a provider's message must not move the cursor or set a title."""
    return "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in text)
