"""The catalogue's entries, and which model a provider offers first."""

from collections.abc import Sequence

from lodger_daemon.models.contract import ModelInfo
from lodger_daemon.models.core.frames import ListedModel
from lodger_daemon.models.core.providers import KNOWN, LOCAL_SERVERS, Provider
from lodger_daemon.models.core.windows import window_of


def entry(
    provider: Provider, listed: ListedModel, description: str, is_default: bool = False, learned_window: int = 0
) -> ModelInfo:
    """A setting wins over what the provider says, that over the table.

    Args:
        learned_window: what a refused request taught, 0 for nothing. It wins over all but a smaller setting.
    """
    guess = window_of(
        listed.name, is_local=provider.source == "found" or (provider.is_loopback and provider.name in LOCAL_SERVERS)
    )
    window = provider.context_window or listed.context_window or guess.context_tokens
    if learned_window:
        window = min(learned_window, provider.context_window or learned_window)
    return ModelInfo(
        handle=f"{provider.name}/{listed.name}",
        label=listed.name,
        description=description,
        context_window=window,
        # A model cannot write more than fits; half the window leaves room for what it reads.
        max_output_tokens=min(listed.max_output_tokens or guess.output_tokens, max(1, window // 2)),
        provider=provider.name,
        is_default=is_default,
        source=provider.source,
    )


def models_of(provider: Provider, listed: Sequence[ListedModel]) -> tuple[ListedModel, ...]:
    """Those of the settings first, then what the provider lists, else what it is known for; each once."""
    by_name = {model.name: model for model in listed}
    names = [*provider.models, *by_name]
    if not names and provider.name in KNOWN:
        names = list(KNOWN[provider.name].default_models)
    return tuple(by_name.get(name, ListedModel(name)) for name in dict.fromkeys(names))


def first_model(provider: Provider, listed: Sequence[ListedModel]) -> str | None:
    """The model a new agent gets from this provider; None when it names none."""
    if provider.models:
        return provider.models[0]
    known = KNOWN.get(provider.name)
    favourites = known.default_models if known else ()
    names = [model.name for model in listed]
    for favourite in favourites:
        # Providers list dated names: gpt-5-2025-08-07.
        if match := next((name for name in names if name == favourite or name.startswith(f"{favourite}-")), None):
            return match
    if names:
        return names[0]
    is_usual_place = known is not None and known.base_url.removesuffix("/v1") == provider.base_url.removesuffix("/v1")
    return favourites[0] if favourites and is_usual_place else None
