"""Pairing codes: what they are made of, and how one that was typed is read.

Eight characters of 32 are 40 bits. With the limits below a guesser has at most some 500 tries in the ten minutes a
code lives, at five codes that live at once: one chance in 400 million.
"""

from collections.abc import Collection
from typing import Final

ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's: without I, L, O and U, which people take for others."""
CODE_CHARACTERS: Final = 8
CODE_LIFE_S: Final = 600
CODES_AT_ONCE: Final = 5

WRONG_CODES_PER_SOURCE: Final = 5
WRONG_CODES_IN_ALL: Final = 50
"""Guesses from many addresses meet this one; so would a flood, which then delays pairing and nothing else."""
WRONG_WINDOW_S: Final = 600.0
WRONG_LOCK_S: Final = 60.0

NAME_CHARACTERS: Final = 64
DEVICES_AT_ONCE: Final = 64

_READ_AS: Final = str.maketrans({"I": "1", "L": "1", "O": "0", "-": "", " ": ""})


def code_from(entropy: bytes) -> str:
    """Raises: ValueError for fewer than `CODE_CHARACTERS` bytes."""
    if len(entropy) < CODE_CHARACTERS:
        raise ValueError("too little entropy for a code")
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in entropy[:CODE_CHARACTERS])


def shown_code(code: str) -> str:
    """In two halves, as people read it out."""
    half = CODE_CHARACTERS // 2
    return f"{code[:half]}-{code[half:]}"


def read_code(typed: str) -> str | None:
    """The code somebody meant, or nothing when it cannot be one."""
    code = typed.upper().translate(_READ_AS)
    if len(code) != CODE_CHARACTERS or any(character not in ALPHABET for character in code):
        return None
    return code


def device_name(wished: str) -> str | None:
    """One visible line, shortened; nothing when it has no visible character. Pages show it as text all the same."""
    name = " ".join("".join(part if part.isprintable() else " " for part in wished).split())
    return name[:NAME_CHARACTERS].rstrip() or None


def distinct_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it when another device has it already: people revoke by name."""
    wished, number = name, 1
    while name in taken:
        number += 1
        ending = f" {number}"
        name = wished[: NAME_CHARACTERS - len(ending)].rstrip() + ending
    return name
