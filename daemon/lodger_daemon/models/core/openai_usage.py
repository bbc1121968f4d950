"""Token counts of a chat completion, wherever a server puts them and whatever it calls them."""

from collections.abc import Iterator
from typing import Final

from lodger_daemon.models.contract import Usage
from lodger_daemon.models.core.json_fields import as_count, as_object
from lodger_tools.json_value import JsonObject

_NANO_PER_USD: Final = 1_000_000_000
_COST_LIMIT_USD: Final = 1e6


def usage_in(answer: JsonObject) -> Usage | None:
    """Of a chunk or a whole answer; None when it says nothing, or nothing but zeros."""
    for usage in _places(answer):
        found = usage_of(usage)
        if found.prompt or found.completion:
            return found
    timings = answer.get("timings")
    return _from_timings(timings) if isinstance(timings, dict) else None


def _places(answer: JsonObject) -> Iterator[JsonObject]:
    """Objects only: most chunks have none, and this is asked of every chunk."""
    if isinstance(usage := answer.get("usage"), dict):
        yield usage
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and isinstance(usage := first.get("usage"), dict):
        yield usage
    if isinstance(groq := answer.get("x_groq"), dict):
        yield as_object(groq.get("usage"))


def usage_of(usage: JsonObject) -> Usage:
    prompt_details = as_object(usage.get("prompt_tokens_details")) or as_object(usage.get("input_tokens_details"))
    completion_details = as_object(usage.get("completion_tokens_details")) or as_object(
        usage.get("output_tokens_details")
    )
    prompt = _first(usage, "prompt_tokens", "input_tokens")
    completion = _first(usage, "completion_tokens", "output_tokens")
    reasoning = _first(completion_details, "reasoning_tokens") or _first(usage, "reasoning_tokens")
    if reasoning and as_count(usage.get("total_tokens")) == prompt + completion + reasoning:
        # A few count thoughts beside the answer, not in it.
        completion += reasoning
    return Usage(
        prompt=prompt,
        completion=completion,
        cached=_first(prompt_details, "cached_tokens")
        or _first(usage, "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"),
        cache_written=_first(prompt_details, "cache_write_tokens", "cache_creation_tokens")
        or _first(usage, "cache_creation_input_tokens"),
        reasoning=reasoning,
        cost_nano_usd=_cost(usage),
    )


def _from_timings(timings: JsonObject) -> Usage | None:
    """llama.cpp measures each answer, also when nobody asked for usage."""
    cached = as_count(timings.get("cache_n"))
    prompt, completion = as_count(timings.get("prompt_n")) + cached, as_count(timings.get("predicted_n"))
    return Usage(prompt=prompt, completion=completion, cached=cached) if prompt or completion else None


def _cost(usage: JsonObject) -> int | None:
    cost = usage.get("cost")
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < _COST_LIMIT_USD:
        return None
    return round(cost * _NANO_PER_USD)


def _first(fields: JsonObject, *names: str) -> int:
    return next((count for name in names if (count := as_count(fields.get(name)))), 0)
