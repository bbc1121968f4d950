"""How litellm calls the providers we know, and where it expects them."""

from collections.abc import Collection, Mapping
from typing import Final

from lodger_daemon.models.core.providers import LITELLM_PREFIX, Provider

_NAMES: Final[Mapping[str, str]] = {
    "together": "together_ai",
    "fireworks": "fireworks_ai",
    "lmstudio": "lm_studio",
    "llamacpp": "openai",
    # The other of its two takes no tools.
    "ollama": "ollama_chat",
}


def litellm_place(provider: Provider, model: str, known: Collection[str]) -> tuple[str, str]:
    """The model as litellm names it, and the address it is to use; an empty one is litellm's own.

    Args:
        known: litellm's own list of providers.
    """
    name = provider.name.removeprefix(LITELLM_PREFIX)
    theirs = _NAMES.get(name, name)
    if theirs not in known and provider.base_url:
        # A name of the person's own: a server that speaks chat completions.
        theirs = "openai"
    base_url = provider.base_url.removesuffix("/v1") if theirs == "ollama_chat" else provider.base_url
    return f"{theirs}/{model}", base_url
