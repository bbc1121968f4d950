"""Who serves models: names, addresses, dialects, and the variables every SDK reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, Literal
from urllib.parse import urlsplit


class Dialect(StrEnum):
    OPENAI = "openai"
    """Chat completions; what most servers speak."""
    ANTHROPIC = "anthropic"
    """Messages."""
    LITELLM = "litellm"
    """Anything else, through litellm in a worker of its own."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider as the gateway and its workers know it. Holds no key of a person."""

    name: str
    base_url: str
    dialect: Dialect
    models: tuple[str, ...] = ()
    """Models named in the settings; they come first in the catalogue."""
    key_variables: tuple[str, ...] = ()
    source: Literal["configured", "environment", "found", "practice"] = "configured"
    context_window: int | None = None
    """Overrides the table and what the provider says."""
    bearer: str = ""
    """The token of the practice model, made afresh at each start; empty for every real provider."""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.base_url)

    @property
    def read_timeout_s(self) -> float:
        """Longest silence while answering. A model on this machine may read a long prompt for many minutes."""
        return 900.0 if self.is_loopback else 300.0


@dataclass(frozen=True, slots=True)
class KnownProvider:
    base_url: str
    dialect: Dialect
    key_variables: tuple[str, ...]
    url_variables: tuple[str, ...] = ()
    default_models: tuple[str, ...] = ()
    """Best first; the first that the provider lists is used."""


KNOWN: Final[Mapping[str, KnownProvider]] = {
    "anthropic": KnownProvider(
        "https://api.anthropic.com",
        Dialect.ANTHROPIC,
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_BASE_URL",),
        ("claude-sonnet-4-5", "claude-sonnet-4-0", "claude-haiku-4-5"),
    ),
    "openai": KnownProvider(
        "https://api.openai.com/v1",
        Dialect.OPENAI,
        ("OPENAI_API_KEY",),
        ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        ("gpt-5", "gpt-4.1", "gpt-4o"),
    ),
    "openrouter": KnownProvider(
        "https://openrouter.ai/api/v1",
        Dialect.OPENAI,
        ("OPENROUTER_API_KEY",),
        ("OPENROUTER_BASE_URL",),
        ("anthropic/claude-sonnet-4.5", "openai/gpt-5"),
    ),
    "deepseek": KnownProvider(
        "https://api.deepseek.com/v1", Dialect.OPENAI, ("DEEPSEEK_API_KEY",), (), ("deepseek-chat",)
    ),
    "groq": KnownProvider(
        "https://api.groq.com/openai/v1", Dialect.OPENAI, ("GROQ_API_KEY",), (), ("openai/gpt-oss-120b",)
    ),
    "mistral": KnownProvider(
        "https://api.mistral.ai/v1", Dialect.OPENAI, ("MISTRAL_API_KEY",), (), ("mistral-large-latest",)
    ),
    "xai": KnownProvider("https://api.x.ai/v1", Dialect.OPENAI, ("XAI_API_KEY",), (), ("grok-4",)),
    "together": KnownProvider("https://api.together.xyz/v1", Dialect.OPENAI, ("TOGETHER_API_KEY",)),
    "fireworks": KnownProvider("https://api.fireworks.ai/inference/v1", Dialect.OPENAI, ("FIREWORKS_API_KEY",)),
    "cerebras": KnownProvider("https://api.cerebras.ai/v1", Dialect.OPENAI, ("CEREBRAS_API_KEY",)),
    "gemini": KnownProvider(
        "", Dialect.LITELLM, ("GEMINI_API_KEY", "GOOGLE_API_KEY"), (), ("gemini-2.5-pro", "gemini-2.5-flash")
    ),
    "bedrock": KnownProvider("", Dialect.LITELLM, ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK")),
    "vertex_ai": KnownProvider("", Dialect.LITELLM, ("GOOGLE_APPLICATION_CREDENTIALS", "VERTEXAI_PROJECT")),
    "azure": KnownProvider("", Dialect.LITELLM, ("AZURE_API_KEY",)),
    "cohere": KnownProvider("", Dialect.LITELLM, ("COHERE_API_KEY", "CO_API_KEY")),
    "watsonx": KnownProvider("", Dialect.LITELLM, ("WATSONX_APIKEY", "WATSONX_API_KEY")),
    "sagemaker": KnownProvider("", Dialect.LITELLM, ()),
    "huggingface": KnownProvider("", Dialect.LITELLM, ("HF_TOKEN", "HUGGINGFACE_API_KEY")),
    "replicate": KnownProvider("", Dialect.LITELLM, ("REPLICATE_API_KEY",)),
    "databricks": KnownProvider("", Dialect.LITELLM, ("DATABRICKS_API_KEY", "DATABRICKS_TOKEN")),
}

COMPATIBLE: Final = "openai-compatible"
"""Any server that speaks chat completions, at an address the person gives."""

LOCAL_SERVERS: Final[Mapping[str, str]] = {
    "ollama": "http://127.0.0.1:11434/v1",
    "lmstudio": "http://127.0.0.1:1234/v1",
    "llamacpp": "http://127.0.0.1:8080/v1",
}
"""Where these programs listen unless told otherwise."""

LISTS_PRICES: Final = frozenset({"openrouter"})
"""Sells the models of many at prices that only its own list tells."""

LITELLM_PREFIX: Final = "litellm:"

_LITELLM_ENVIRONMENT: Final = ("AWS_", "AZURE_", "GOOGLE_", "VERTEX", "WATSONX_", "DATABRICKS_", "CLOUDSDK_")
_NETWORK_ENVIRONMENT: Final = frozenset(
    {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "CREDENTIALS_DIRECTORY"}
    | {"DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
    | {name for word in ("http", "https", "all", "no") for name in (f"{word}_proxy", f"{word}_proxy".upper())}
)


def split_handle(handle: str) -> tuple[str, str]:
    """`provider/model` in two; the model may hold slashes. `litellm:x/y` names the provider `litellm:x`."""
    provider, slash, model = handle.partition("/")
    return (provider, model) if slash else ("", handle)


def provider_from_environment(
    name: str, environment: Mapping[str, str], *, has_credential: bool = False
) -> Provider | None:
    """A provider whose key or address stands in the environment, or whose key the service manager hands us."""
    known = KNOWN[name]
    url = next((environment[v] for v in known.url_variables if environment.get(v)), "")
    if not url and not has_credential and not any(environment.get(v) for v in known.key_variables):
        return None
    return Provider(
        name,
        tidy_url(url or known.base_url, known.dialect),
        known.dialect,
        key_variables=known.key_variables,
        source="environment",
    )


def provider_from_settings(name: str, settings: Mapping[str, object]) -> Provider:
    """A provider as the person's settings or `connect` describe it.

    Args:
        settings: `base_url`, `dialect`, `models`, `context_window`; all optional for a known provider.

    Raises:
        ValueError: in words for the person.
    """
    known = KNOWN.get(name)
    dialect_word = settings.get("dialect") or (known.dialect if known else Dialect.OPENAI)
    try:
        dialect = Dialect(str(dialect_word))
    except ValueError:
        words = ", ".join(Dialect)
        raise ValueError(f"Provider {name}: dialect {dialect_word!r} is not one of {words}.") from None
    base_url = settings.get("base_url") or (known.base_url if known else LOCAL_SERVERS.get(name, ""))
    if not isinstance(base_url, str) or (not base_url and dialect is not Dialect.LITELLM):
        raise ValueError(f"Provider {name} needs a base_url such as http://127.0.0.1:8000/v1.")
    models = settings.get("models") or ()
    window = settings.get("context_window")
    if not isinstance(models, list | tuple) or not (window is None or isinstance(window, int)):
        raise ValueError(f"Provider {name}: models must be a list of names and context_window a number of tokens.")
    return Provider(
        name,
        tidy_url(base_url, dialect),
        dialect,
        models=tuple(str(model) for model in models),
        key_variables=known.key_variables if known else (),
        context_window=window,
    )


def tidy_url(url: str, dialect: Dialect) -> str:
    """The address without what people add or forget: a final slash, the `/v1` of each dialect's habit.

    Raises:
        ValueError: for something that is not an http address.
    """
    if not url and dialect is Dialect.LITELLM:
        return url
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an address such as https://host/v1.")
    url = url.rstrip("/")
    match dialect:
        case Dialect.OPENAI:
            url = url.removesuffix("/chat/completions")
            return url if parts.path.strip("/") else f"{url}/v1"
        case Dialect.ANTHROPIC:
            return url.removesuffix("/messages").removesuffix("/v1")
        case Dialect.LITELLM:
            return url


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def worker_environment(environment: Mapping[str, str], dialect: Dialect) -> dict[str, str]:
    """What a worker process gets of the daemon's environment: network settings and provider keys, nothing else."""
    keys = {v for known in KNOWN.values() for v in known.key_variables}
    passed = {n: v for n, v in environment.items() if n in _NETWORK_ENVIRONMENT or n in keys}
    if dialect is Dialect.LITELLM:
        # litellm knows a hundred providers, each with variables of its own.
        passed |= {n: v for n, v in environment.items() if n.startswith(_LITELLM_ENVIRONMENT) or n.endswith("_API_KEY")}
    return passed
