"""The forms in which a secret may show itself in a command's output. Pure."""

import base64
import json
from typing import Final
from urllib.parse import quote, quote_plus

MINIMUM_CHARS: Final = 6
"""Shorter values would damage harmless text (BEHAVIOUR.md C10)."""


def forms_of(value: str) -> frozenset[str]:
    """The value itself, base64 at each of the three alignments within a longer encoded text (both alphabets),
    URL-escaped, and as a JSON string. Forms that are too short are left out."""
    if len(value) < MINIMUM_CHARS:
        return frozenset()
    data = value.encode("utf-8", "surrogatepass")
    forms = {value, quote(value, safe="", errors="replace"), quote(value, errors="replace")}
    forms |= {quote_plus(value, errors="replace"), json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    forms |= {lower_escapes(form) for form in tuple(forms)}
    for shift in range(3):
        encoded = aligned_base64(data, shift)
        forms |= {encoded, encoded.replace("+", "-").replace("/", "_")}
    return frozenset(form for form in forms if len(form) >= MINIMUM_CHARS)


def aligned_base64(data: bytes, shift: int) -> str:
    """The characters that are the same whatever stands before (`shift` bytes past a group of three) and after."""
    encoded = base64.b64encode(b"\0" * shift + data).decode()
    return encoded[(shift * 8 + 5) // 6 : (shift + len(data)) * 8 // 6]


def lower_escapes(form: str) -> str:
    """`%3D` as `%3d`, which some programs write."""
    parts = form.split("%")
    return "%".join([parts[0], *(part[:2].lower() + part[2:] for part in parts[1:])])
