"""Taking secrets out of text, also when it comes in pieces. Pure.

Redaction guards against accidents. A program that wants to smuggle a secret past it can; the box is what stops it.
"""

import re
from collections.abc import Mapping

from lodger_tools.redaction.core.encodings import forms_of


class Redactor:
    """What to look for: made once for a set of secrets, then used for whole texts and for streams."""

    __slots__ = ("_by_first", "_names", "_pattern", "longest_form_chars")

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """
        Args:
            secrets: values by the names that stand for them in the result.
        """
        self._names: dict[str, str] = {}
        for name, value in secrets.items():
            for form in forms_of(value):
                self._names.setdefault(form, name)
        # Longest first: of two secrets that begin alike the longer one must win.
        forms = sorted(self._names, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, forms))) if forms else None
        self.longest_form_chars = len(forms[0]) if forms else 0
        self._by_first: dict[str, list[str]] = {}
        for form in forms:
            self._by_first.setdefault(form[0], []).append(form)

    def redact(self, text: str) -> str:
        """A whole text."""
        return text if self._pattern is None else self._pattern.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        return f"{self._names[match.group()]}=<REDACTED>"

    def redact_begun(self, text: str) -> tuple[str, str]:
        """(redacted beginning, rest) of a text that goes on: the rest might be the beginning of a secret."""
        if self._pattern is None:
            return text, ""
        parts: list[str] = []
        position = 0
        held_from = self._begun_at(text, 0)
        for match in self._pattern.finditer(text):
            if match.start() >= held_from:
                break
            parts += (text[position : match.start()], self._replacement(match))
            position = match.end()
            if position > held_from:
                held_from = self._begun_at(text, position)
        parts.append(text[position:held_from])
        return "".join(parts), text[held_from:]

    def _begun_at(self, text: str, start: int) -> int:
        """Where the earliest form begins that the end of the text cuts off; the text's length if none does."""
        for position in range(max(start, len(text) - self.longest_form_chars + 1), len(text)):
            remaining = len(text) - position
            for form in self._by_first.get(text[position], ()):
                if len(form) > remaining and form.startswith(text[position:]):
                    return position
        return len(text)


class RedactedStream:
    """One text in pieces: the pieces of the result joined are the whole text redacted, however it was split."""

    __slots__ = ("_held", "_redactor")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""

    def feed(self, text: str) -> str:
        """What is certain so far; at most one secret's length is held back."""
        done, self._held = self._redactor.redact_begun(self._held + text)
        return done

    def close(self) -> str:
        """The rest, at the end of the text."""
        held, self._held = self._held, ""
        return self._redactor.redact(held)
