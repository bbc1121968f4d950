"""By whose price list a provider's steps are paid."""

from enum import StrEnum

from lodger_daemon.models.core.providers import KNOWN, LOCAL_SERVERS, Dialect, Provider


class Billing(StrEnum):
    PUBLIC = "public"
    """The provider itself, at the address everybody uses: public price lists hold."""
    OWN_MACHINE = "own_machine"
    """Computed here; nobody sends a bill."""
    ELSEWHERE = "elsewhere"
    """A gateway, a proxy, somebody's server: only its owner knows."""


def billing_of(provider: Provider, model: str) -> Billing:
    if provider.source == "practice":
        return Billing.OWN_MACHINE
    if provider.is_loopback:
        # Ollama passes models with such names on to its owner's servers.
        is_passed_on = model.endswith(("-cloud", ":cloud"))
        return Billing.OWN_MACHINE if provider.name in LOCAL_SERVERS and not is_passed_on else Billing.ELSEWHERE
    known = KNOWN.get(provider.name)
    if known is not None and provider.base_url == known.base_url:
        return Billing.PUBLIC
    return Billing.PUBLIC if provider.dialect is Dialect.LITELLM and not provider.base_url else Billing.ELSEWHERE
