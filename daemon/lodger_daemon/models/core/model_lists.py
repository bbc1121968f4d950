"""What providers say of their models when asked for a list."""

from typing import Final

from lodger_daemon.models.core.frames import ListedModel
from lodger_daemon.models.core.json_fields import as_count, as_object, as_text
from lodger_tools.json_value import Json, JsonObject

_PRICES: Final = ("prompt", "completion", "input_cache_read", "input_cache_write")
_PICO_PER_USD: Final = 1e12
_FREE: Final = ":free"
"""How a model is named that really costs nothing; a price of nothing alone may stand for "not known"."""


def listed_models(answer: JsonObject) -> tuple[ListedModel, ...]:
    """From what `GET /models` of either dialect answers."""
    rows = answer.get("data")
    if not isinstance(rows, list):
        rows = answer.get("models")
    return tuple(
        ListedModel(name, _window_in(row), _output_in(row), _rates_in(row, name))
        for row in map(as_object, rows if isinstance(rows, list) else [])
        if (name := as_text(row.get("id")) or as_text(row.get("name")))
    )


def _window_in(row: JsonObject) -> int:
    meta, top = as_object(row.get("meta")), as_object(row.get("top_provider"))
    for holder, name in (
        (row, "loaded_context_length"),
        (meta, "n_ctx"),
        (row, "context_length"),
        (row, "context_window"),
        (row, "max_model_len"),
        (row, "max_context_length"),
        (row, "max_input_tokens"),
        (top, "context_length"),
    ):
        if size := as_count(holder.get(name)):
            return size
    return 0


def _output_in(row: JsonObject) -> int:
    top = as_object(row.get("top_provider"))
    return as_count(top.get("max_completion_tokens")) or as_count(row.get("max_tokens"))


def _rates_in(row: JsonObject, name: str) -> tuple[int | None, ...]:
    """Dollars a token, as text, in one common form of list."""
    pricing = as_object(row.get("pricing"))
    rates = tuple(_rate(pricing.get(field)) for field in _PRICES)
    if rates[0] is None or rates[1] is None:
        return ()
    return rates if any(rates[:2]) or name.endswith(_FREE) else ()


def _rate(price: Json) -> int | None:
    if not isinstance(price, str):
        return None
    try:
        usd = float(price)
    except ValueError:
        return None
    return round(usd * _PICO_PER_USD) if 0 <= usd < 1 else None
