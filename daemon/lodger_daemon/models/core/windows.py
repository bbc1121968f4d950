"""How much each family of models reads and writes, where its provider does not say.

Numbers are the providers' published limits; a setting (`context_window`) and the provider's own answer win over them.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Window:
    context_tokens: int
    output_tokens: int


DEFAULT: Final = Window(128_000, 8_192)
LOCAL: Final = Window(16_384, 4_096)
"""Local servers cut a longer prompt without a word, so the guess is a low one."""

_FAMILIES: Final = (
    ("claude-3-5", Window(200_000, 8_192)),
    ("claude-3-haiku", Window(200_000, 4_096)),
    ("claude-opus-4", Window(200_000, 32_000)),
    ("claude", Window(200_000, 32_000)),
    ("gpt-5", Window(272_000, 128_000)),
    ("gpt-4.1", Window(1_047_576, 32_768)),
    ("gpt-4o", Window(128_000, 16_384)),
    ("gpt-4-turbo", Window(128_000, 4_096)),
    ("gpt-4", Window(8_192, 4_096)),
    ("gpt-oss", Window(131_072, 32_768)),
    ("o3", Window(200_000, 100_000)),
    ("o4-mini", Window(200_000, 100_000)),
    ("gemini", Window(1_048_576, 65_536)),
    ("deepseek", Window(128_000, 8_192)),
    ("grok-4", Window(256_000, 32_768)),
    ("mistral-large", Window(128_000, 8_192)),
    ("kimi", Window(256_000, 32_768)),
    ("glm-4", Window(128_000, 32_768)),
    ("qwen3", Window(131_072, 16_384)),
    ("llama-3", Window(131_072, 8_192)),
    ("practice", Window(32_768, 4_096)),
)


def window_of(model: str, is_local: bool = False) -> Window:
    """By the family's name at the beginning of the model's last path segment."""
    if is_local:
        return LOCAL
    name = model.rsplit("/", 1)[-1].lower()
    return next((window for family, window in _FAMILIES if name.startswith(family)), DEFAULT)
