"""What an edit makes of a text. Pure."""

from __future__ import annotations

from lodger_tools.runner.file_errors import FileRefused

SHOWN_LINES = 20
QUOTES = {"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"}


def edited(
    text: str, old: str, new: str, replace_all: bool, expected_replacements: int | None
) -> tuple[str, list[int]]:
    """The new text and the lines where something was replaced, counted in the old one.

    Line ends outside the replaced part stay as they are; the new part gets those of the file.

    Raises: FileRefused for nothing to do, no match, or several without `replace_all`.
    """
    if old == new:
        raise FileRefused("old_string and new_string are the same; there is nothing to change.")
    if not old:
        raise FileRefused("old_string is empty; use Write to give a file its whole content.")
    old, new = as_in(text, old, new)
    count = text.count(old)
    if count == 0:
        raise FileRefused(why_not_found(text, old))
    lines = lines_of_matches(text, old)
    if expected_replacements is not None and count != expected_replacements:
        raise FileRefused(
            f"old_string stands {count} times ({at(lines)}), not {expected_replacements}; nothing changed."
        )
    if count > 1 and not replace_all and expected_replacements is None:
        raise FileRefused(
            f"old_string stands {count} times ({at(lines)}); give more of the text around it, or set replace_all."
        )
    return text.replace(old, new), lines


def as_in(text: str, old: str, new: str) -> tuple[str, str]:
    """The two texts with the line ends of the file, and without an escaping that the file does not have."""
    candidates = [(old, new)]
    unescaped = unescape(old)
    if unescaped != old:
        candidates.append((unescaped, unescape(new)))
    crlf = "\r\n" in text
    for wanted, instead in candidates:
        plain_wanted = wanted.replace("\r\n", "\n")
        plain_instead = instead.replace("\r\n", "\n")
        if crlf and "\n" not in plain_wanted:
            # Nothing in the old text tells; the file's ends do, where they are all alike.
            all_crlf = text.count("\n") == text.count("\r\n")
            if plain_wanted in text:
                return plain_wanted, plain_instead.replace("\n", "\r\n") if all_crlf else plain_instead
        if crlf and plain_wanted.replace("\n", "\r\n") in text:
            return plain_wanted.replace("\n", "\r\n"), plain_instead.replace("\n", "\r\n")
        if plain_wanted in text:
            return plain_wanted, plain_instead
        if wanted in text:
            return wanted, instead
    return old, new


def unescape(text: str) -> str:
    for escaped, plain in (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"'), ("\\'", "'"), ("\\\\", "\\")):
        text = text.replace(escaped, plain)
    return text


def lines_of_matches(text: str, old: str) -> list[int]:
    lines = []
    line, counted_to = 1, 0
    found = text.find(old)
    while found >= 0:
        line += text.count("\n", counted_to, found)
        counted_to = found
        lines.append(line)
        found = text.find(old, found + len(old))
    return lines


def at(lines: list[int]) -> str:
    more = f" and {len(lines) - SHOWN_LINES} more" if len(lines) > SHOWN_LINES else ""
    return f"lines {', '.join(map(str, lines[:SHOWN_LINES]))}{more}"


def why_not_found(text: str, old: str) -> str:
    reasons = []
    if " ".join(old.split()) in " ".join(text.split()):
        reasons.append("the same words stand there with other white space or line breaks")
    elif plain_quotes(old) in plain_quotes(text):
        reasons.append("the same text stands there with other quotation marks")
    else:
        first = next((line.strip() for line in old.splitlines() if line.strip()), "")
        numbers = [number for number, line in enumerate(text.splitlines(), 1) if first and first in line]
        if numbers:
            reasons.append(f"its first line stands at {at(numbers)}, but what follows differs")
    hint = f": {reasons[0]}" if reasons else "; the file may have changed"
    return f"old_string was not found{hint}. Read the file again and copy the text exactly."


def plain_quotes(text: str) -> str:
    for fancy, plain in QUOTES.items():
        text = text.replace(fancy, plain)
    return text
