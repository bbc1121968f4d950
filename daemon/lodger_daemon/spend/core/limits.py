"""Whether a limit stands in the way, and how that is said."""

from dataclasses import dataclass
from typing import Final

from lodger_daemon.spend.contract import LimitReached, SpendScope, SpendUnit

NANO_PER_USD: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one scope. None = no limit."""

    tokens: int | None = None
    nano_usd: int | None = None


@dataclass(frozen=True, slots=True)
class SpendLimits:
    """What the person set."""

    turn: Limits = Limits()
    agent: Limits = Limits()
    day: Limits = Limits()
    unpriced_allowed: bool = False
    """Whether models without a known price may be used while a money limit is set."""

    def of(self, scope: SpendScope) -> Limits:
        match scope:
            case SpendScope.TURN:
                return self.turn
            case SpendScope.AGENT:
                return self.agent
            case SpendScope.DAY:
                return self.day

    @property
    def any_money(self) -> bool:
        return any(self.of(scope).nano_usd is not None for scope in SpendScope)

    @property
    def any(self) -> bool:
        return self.any_money or any(self.of(scope).tokens is not None for scope in SpendScope)


@dataclass(frozen=True, slots=True)
class Standing:
    """One scope as it stands: what was spent, and how far a person raised its limits."""

    scope: SpendScope
    subject: str
    tokens: int
    nano_usd: int
    tokens_raised_to: int
    nano_usd_raised_to: int


def first_reached(limits: SpendLimits, standings: tuple[Standing, ...]) -> LimitReached | None:
    for standing in standings:
        of = limits.of(standing.scope)
        for unit, setting, spent, raised_to in (
            (SpendUnit.TOKENS, of.tokens, standing.tokens, standing.tokens_raised_to),
            (SpendUnit.MONEY, of.nano_usd, standing.nano_usd, standing.nano_usd_raised_to),
        ):
            if setting is None:
                continue
            limit = max(setting, raised_to)
            if spent >= limit:
                return _reached(standing, unit, spent, limit, spent + setting)
    return None


def unpriced(handle: str, day: str, steps: int) -> LimitReached:
    """A model without a price, while a money limit is set."""
    return LimitReached(
        SpendScope.DAY,
        SpendUnit.UNPRICED,
        f"{handle} {day}",
        spent=steps,
        limit=0,
        raised_to=steps + 1,
        words=(
            f"The price of {handle} is not known, so the money limit of this machine cannot be kept with it. "
            f"Going on lets it be used today without counting; a price can be set under [spend.prices] in the settings."
        ),
    )


def in_words(unit: SpendUnit, amount: int) -> str:
    """`1,234 tokens`, `$1.23`; less than a cent in as many digits as it takes."""
    if unit is not SpendUnit.MONEY:
        return f"{amount:,} tokens"
    usd = amount / NANO_PER_USD
    return f"${usd:,.2f}" if usd >= 0.01 or usd == 0 else f"${usd:.6f}"


def _reached(standing: Standing, unit: SpendUnit, spent: int, limit: int, raised_to: int) -> LimitReached:
    whose = _WHOSE[standing.scope]
    words = (
        f"{whose} has used {in_words(unit, spent)}, and the limit is {in_words(unit, limit)}. "
        f"Going on allows up to {in_words(unit, raised_to)}."
    )
    return LimitReached(standing.scope, unit, standing.subject, spent, limit, raised_to, words)


_WHOSE: Final = {
    SpendScope.TURN: "This turn",
    SpendScope.AGENT: "This agent today",
    SpendScope.DAY: "This machine today",
}
