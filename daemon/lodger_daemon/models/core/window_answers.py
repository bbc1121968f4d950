"""How much a server on this machine reads, from the answers of its own routes beside the common ones.

What a model was trained for says little: servers load it with less, and cut a longer prompt without a word.
"""

from dataclasses import replace
from typing import Final

from lodger_daemon.models.core.frames import ListedModel
from lodger_daemon.models.core.json_fields import as_count, as_list, as_object, as_text
from lodger_tools.json_value import JsonObject

_NUM_CTX: Final = "num_ctx"


def window_in_props(answer: JsonObject) -> int:
    """llama.cpp's `/props`: of the one model it runs, for each request."""
    return as_count(as_object(answer.get("default_generation_settings")).get("n_ctx"))


def windows_in_listing(answer: JsonObject) -> dict[str, int]:
    """LM Studio's `/api/v0/models`: of those that are loaded."""
    rows = [as_object(row) for row in as_list(answer.get("data"))]
    return {as_text(row.get("id")): size for row in rows if (size := as_count(row.get("loaded_context_length")))}


def windows_in_running(answer: JsonObject) -> dict[str, int]:
    """Ollama's `/api/ps`: of those that are loaded."""
    rows = [as_object(row) for row in as_list(answer.get("models"))]
    return {as_text(row.get("name")): size for row in rows if (size := as_count(row.get("context_length")))}


def window_in_show(answer: JsonObject, guess: int) -> int:
    """Ollama's `/api/show`: what the model's own file asks for; less than `guess` where it was trained for less."""
    for line in as_text(answer.get("parameters")).splitlines():
        name, _, value = line.strip().partition(" ")
        if name == _NUM_CTX and value.strip().isdecimal() and len(value.strip()) < 12:
            return int(value)
    info = as_object(answer.get("model_info"))
    trained = (as_count(size) for name, size in info.items() if name.endswith(".context_length"))
    return min((size for size in trained if 0 < size < guess), default=0)


def with_windows(models: tuple[ListedModel, ...], windows: dict[str, int]) -> tuple[ListedModel, ...]:
    return tuple(replace(m, context_window=windows[m.name]) if m.name in windows else m for m in models)
