"""What a token costs, and what a step costs by that."""

from dataclasses import dataclass
from typing import Final

from lodger_daemon.models.contract import Usage

PICO_PER_NANO: Final = 1000


@dataclass(frozen=True, slots=True)
class Rates:
    """Picodollars (1e-12 USD) for one token."""

    prompt: int
    completion: int
    cached: int | None = None
    """Read from the provider's cache. None = the table does not say; then it costs what any token costs."""
    cache_written: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """Of one model."""

    base: Rates
    tiers: tuple[tuple[int, Rates], ...] = ()
    """From more than so many prompt tokens on, the whole step costs these; smallest first."""


FREE: Final = Price(Rates(0, 0))
"""Of what runs on this machine, and what its person says is free."""


def cost_nano_usd(price: Price, usage: Usage) -> int:
    """In whole nano-dollars, rounded up: what is counted never falls behind what is owed."""
    rates = price.base
    for above_tokens, tier in price.tiers:
        if usage.prompt > above_tokens:
            rates = tier
    cached = min(usage.cached, usage.prompt)
    written = min(usage.cache_written, usage.prompt - cached)
    reasoning = min(usage.reasoning, usage.completion)
    pico = (
        (usage.prompt - cached - written) * rates.prompt
        + cached * _or(rates.cached, rates.prompt)
        + written * _or(rates.cache_written, rates.prompt)
        + (usage.completion - reasoning) * rates.completion
        + reasoning * _or(rates.reasoning, rates.completion)
    )
    return -(-pico // PICO_PER_NANO)


def price_from_row(columns: str) -> Price | None:
    """One row of the table without its handle. None for a row that cannot be read."""
    base: Rates | None = None
    tiers: list[tuple[int, Rates]] = []
    figures = columns.split("\t")
    try:
        base = _rates(figures[:5])
        for tier in figures[5:]:
            _, above_tokens, *rates = tier.split(":")
            tiers.append((int(above_tokens), _rates(rates)))
    except ValueError:
        return None
    return Price(base, tuple(sorted(tiers, key=lambda tier: tier[0])))


def price_from_rates(rates: tuple[int | None, ...]) -> Price | None:
    """As a provider lists them: picodollars for input, output, cache read, cache write. None for an empty list."""
    if len(rates) != 4 or rates[0] is None or rates[1] is None:
        return None
    return Price(Rates(rates[0], rates[1], rates[2], rates[3]))


def price_per_million(
    prompt_usd: float, completion_usd: float, cached_usd: float | None, cache_written_usd: float | None
) -> Price:
    """As a person writes prices down: dollars for a million tokens."""
    return Price(
        Rates(
            _pico(prompt_usd),
            _pico(completion_usd),
            _pico(cached_usd) if cached_usd is not None else None,
            _pico(cache_written_usd) if cache_written_usd is not None else None,
        )
    )


def _pico(usd_per_million: float) -> int:
    return round(usd_per_million * 1_000_000)


def _rates(figures: list[str]) -> Rates:
    """Raises: ValueError."""
    prompt, completion, cached, cache_written, reasoning = (None if f == "-" else int(f) for f in figures)
    if prompt is None or completion is None:
        raise ValueError("a price without its main figures")
    return Rates(prompt, completion, cached, cache_written, reasoning)


def _or(rate: int | None, other: int) -> int:
    return other if rate is None else rate
