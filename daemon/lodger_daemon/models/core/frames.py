"""The lines between the daemon and a model worker.

To the worker: one JSON object a line; an order of kind `step` is followed by one more line, the request's body, which
a lean worker passes on unread. From the worker: one JSON array a line, `[request number, kind, …]`.
"""

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final, TypeAlias, assert_never

from lodger_daemon.models.contract import (
    FailureKind,
    FinishReason,
    ModelChunk,
    ModelFailure,
    ReasoningChunk,
    StepEnded,
    TextChunk,
    ToolCallChunk,
    Usage,
)
from lodger_daemon.models.core.json_fields import as_count, as_text
from lodger_daemon.models.core.providers import Dialect, Provider
from lodger_tools.json_value import Json

LINE_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Either way. Providers refuse requests beyond 32 MB."""

READY_LINE: Final = b'[0,"ready"]\n'


@dataclass(frozen=True, slots=True)
class StepOrder:
    number: int
    provider: Provider
    model: str


@dataclass(frozen=True, slots=True)
class ListOrder:
    """Ask the provider which models it serves."""

    number: int
    provider: Provider


@dataclass(frozen=True, slots=True)
class CancelOrder:
    number: int


@dataclass(frozen=True, slots=True)
class ForgetOrder:
    """The provider's key was changed: read it again."""

    provider_name: str


Order: TypeAlias = StepOrder | ListOrder | CancelOrder | ForgetOrder


@dataclass(frozen=True, slots=True)
class ListedModel:
    """What a provider says of one model; zero where it says nothing."""

    name: str
    context_window: int = 0
    max_output_tokens: int = 0
    rates: tuple[int | None, ...] = ()
    """Picodollars (1e-12 USD) a token: input, output, cache read, cache write. Empty where it says nothing."""


@dataclass(frozen=True, slots=True)
class ModelsListed:
    models: tuple[ListedModel, ...]


Report: TypeAlias = ModelChunk | ModelFailure | ModelsListed


def order_line(order: Order) -> bytes:
    match order:
        case StepOrder(number, provider, model):
            words = f'{{"step":{number},"provider":{_provider_fields(provider)},"model":{json.dumps(model)}}}'
        case ListOrder(number, provider):
            words = f'{{"list":{number},"provider":{_provider_fields(provider)}}}'
        case CancelOrder(number):
            words = f'{{"cancel":{number}}}'
        case ForgetOrder(name):
            words = f'{{"forget":{json.dumps(name)}}}'
        case _:
            assert_never(order)
    return words.encode() + b"\n"


def read_order(line: bytes) -> Order:
    """Raises: ValueError. The daemon is the only writer, so that means a fault of ours."""
    fields = json.loads(line)
    if "cancel" in fields:
        return CancelOrder(fields["cancel"])
    if "forget" in fields:
        return ForgetOrder(fields["forget"])
    provider = _read_provider(fields["provider"])
    if "step" in fields:
        return StepOrder(fields["step"], provider, fields["model"])
    return ListOrder(fields["list"], provider)


@lru_cache(maxsize=64)
def _provider_fields(provider: Provider) -> str:
    """The same in every order to a provider; to write it down takes longer than all the rest of an order."""
    return json.dumps(asdict(provider), separators=(",", ":"))


def _read_provider(fields: dict[str, object]) -> Provider:
    known = dict(fields)
    known["dialect"] = Dialect(str(fields["dialect"]))
    for name in ("models", "key_variables"):
        value = fields[name]
        known[name] = tuple(value) if isinstance(value, list) else ()
    return Provider(**known)  # type: ignore[arg-type]  # written by _provider_fields of the same version


def report_fields(number: int, report: Report) -> list[Json]:
    match report:
        case TextChunk(text):
            return [number, "t", text]
        case ReasoningChunk(text, signature):
            return [number, "r", text, signature]
        case ToolCallChunk(index, call_id, name, fragment):
            return [number, "c", index, call_id, name, fragment]
        case StepEnded(finish, usage):
            counts: list[Json] = [usage.prompt, usage.completion, usage.cached, usage.cache_written, usage.reasoning]
            return [number, "e", finish.value, counts, usage.cost_nano_usd]
        case ModelFailure():
            kind, words, status, wait_s = report.kind.value, report.message, report.status, report.retry_after_s
            return [number, "f", kind, words, status, wait_s, report.output_seen, report.context_window]
        case ModelsListed(models):
            return [number, "m", [[m.name, m.context_window, m.max_output_tokens, list(m.rates)] for m in models]]
        case _:
            assert_never(report)


def merge(earlier: list[Json], later: list[Json]) -> bool:
    """Append a fragment to the one before it where that changes nothing for the reader; False when it would."""
    if earlier[0] != later[0] or earlier[1] != later[1]:
        return False
    match later[1]:
        case "t":
            earlier[2] = as_text(earlier[2]) + as_text(later[2])
            return True
        case "r" if later[3] is None and earlier[3] is None:
            earlier[2] = as_text(earlier[2]) + as_text(later[2])
            return True
        case "c" if later[2] == earlier[2] and later[3] is None and later[4] is None:
            earlier[5] = as_text(earlier[5]) + as_text(later[5])
            return True
    return False


def read_report(fields: list[Json]) -> tuple[int, Report]:
    """Raises: ValueError, IndexError, TypeError for a line no worker of this version writes."""
    number = fields[0]
    if not isinstance(number, int):
        raise TypeError("request number")
    match fields[1]:
        case "t":
            return number, TextChunk(as_text(fields[2]))
        case "r":
            return number, ReasoningChunk(as_text(fields[2]), _text_or_none(fields[3]))
        case "c":
            name = _text_or_none(fields[4])
            return number, ToolCallChunk(as_count(fields[2]), _text_or_none(fields[3]), name, as_text(fields[5]))
        case "e":
            counts = fields[3] if isinstance(fields[3], list) else []
            prompt, completion, cached, cache_written, reasoning = map(as_count, counts)
            cost = as_count(fields[4]) if fields[4] is not None else None
            usage = Usage(prompt, completion, cached, cache_written, reasoning, cost)
            return number, StepEnded(FinishReason(as_text(fields[2])), usage)
        case "f":
            return number, _read_failure(fields)
        case "m":
            rows = fields[2] if isinstance(fields[2], list) else []
            lists = [row for row in rows if isinstance(row, list)]
            models = (
                ListedModel(as_text(row[0]), as_count(row[1]), as_count(row[2]), _read_rates(row[3])) for row in lists
            )
            return number, ModelsListed(tuple(models))
    raise ValueError(f"a report of kind {fields[1]!r}")


def _read_failure(fields: list[Json]) -> ModelFailure:
    status, wait = fields[4], fields[5]
    return ModelFailure(
        FailureKind(as_text(fields[2])),
        as_text(fields[3]),
        status=status if isinstance(status, int) else None,
        retry_after_s=float(wait) if isinstance(wait, int | float) else None,
        output_seen=bool(fields[6]),
        context_window=as_count(fields[7]) or None,
    )


def _read_rates(value: Json) -> tuple[int | None, ...]:
    return tuple(as_count(rate) if rate is not None else None for rate in value) if isinstance(value, list) else ()


def _text_or_none(value: Json) -> str | None:
    return value if isinstance(value, str) else None
