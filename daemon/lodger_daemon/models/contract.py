"""One model step, whoever serves it: the request, the chunks, the failures.

The gateway is implemented in this room by a worker process per kind of provider (lean adapters, litellm). The contract
is the same for all: chunks in order, then exactly one `StepEnded`, or one `ModelFailure`. Closing the iterator early
closes the request at the provider.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, Protocol, TypeAlias

from lodger_tools.json_value import JsonObject

PRACTICE_HANDLE: Final = "practice/practice"
"""The model that answers while no other can be had; nobody's choice, so an agent gives it up for any other default."""


@dataclass(frozen=True, slots=True)
class SystemMessage:
    text: str


@dataclass(frozen=True, slots=True)
class UserMessage:
    """Parts as on the wire: `{"type": "text", "text": …}`, or
    `{"type": "image", "source": {"type": "base64", "media_type": …, "data": …}}`."""

    parts: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    tool_call_id: str
    name: str
    arguments_json: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    text: str
    tool_calls: tuple[ToolCallPart, ...] = ()
    reasoning: str = ""
    reasoning_signature: str | None = None
    """Given back to the provider that made it, together with `reasoning`; dropped for any other."""


@dataclass(frozen=True, slots=True)
class ToolMessage:
    tool_call_id: str
    text: str
    is_error: bool


ModelMessage: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True)
class ToolSchema:
    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything of one step. The first message is the system prompt; every call in the history has one result."""

    handle: str
    """`provider/model`."""
    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSchema, ...]
    max_output_tokens: int | None = None
    cache_key: str = ""
    """Names the conversation, for providers that route by it."""
    reasoning_effort: Literal["low", "medium", "high"] | None = None
    """None = as the provider does by itself."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    text: str
    signature: str | None = None
    """Opaque, and whole each time it comes: the latest one of a step belongs into `AssistantMessage`. The chunk that
    brings it may have no text."""


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """A fragment of a call. `index` tells calls of one step apart; id and name come with the first fragment."""

    index: int
    tool_call_id: str | None
    name: str | None
    arguments_fragment: str


class FinishReason(StrEnum):
    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    UNKNOWN = "unknown"
    """The stream ended in good order without naming a reason."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider reports them; zero where it says nothing. `prompt` includes the cached ones."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0
    """Contained in `completion`."""
    cost_nano_usd: int | None = None
    """What the provider says it charges for the step, in 1e-9 USD; few do."""


@dataclass(frozen=True, slots=True)
class StepEnded:
    finish: FinishReason
    usage: Usage


ModelChunk: TypeAlias = TextChunk | ReasoningChunk | ToolCallChunk | StepEnded


class FailureKind(StrEnum):
    """The one table of what can go wrong at a provider."""

    NETWORK = "network"
    TIMEOUT = "timeout"
    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    SERVER = "server"
    CUT_SHORT = "cut_short"
    """The stream broke off before its end."""
    WORKER_LOST = "worker_lost"
    AUTHENTICATION = "authentication"
    QUOTA = "quota"
    CONTEXT_OVERFLOW = "context_overflow"
    BAD_REQUEST = "bad_request"
    UNKNOWN_MODEL = "unknown_model"


RETRYABLE = frozenset(
    {
        FailureKind.NETWORK,
        FailureKind.TIMEOUT,
        FailureKind.RATE_LIMIT,
        FailureKind.OVERLOADED,
        FailureKind.SERVER,
        FailureKind.CUT_SHORT,
        FailureKind.WORKER_LOST,
    }
)


class ModelFailure(Exception):
    """A step that did not end in good order."""

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        output_seen: bool = False,
        context_window: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        self.retry_after_s = retry_after_s
        self.output_seen = output_seen
        """Whether any chunk had arrived: then a blind repeat would show text twice."""
        self.context_window = context_window
        """Of CONTEXT_OVERFLOW: how many tokens fit, where the provider says so."""

    @property
    def retryable(self) -> bool:
        return self.kind in RETRYABLE


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One entry of the catalogue."""

    handle: str
    label: str
    description: str
    context_window: int
    max_output_tokens: int
    provider: str
    is_default: bool = False
    source: Literal["configured", "environment", "found", "practice"] = "configured"


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """What `status`, `doctor` and `models` show of one provider. Never holds a key."""

    name: str
    base_url: str
    reachable: bool | None
    key_from: Literal["keyring", "file", "credential", "environment", "none"]
    detail: str = ""


class ModelGateway(Protocol):
    def stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        """Run one step. Raises: ModelFailure. `aclose()` of the iterator ends the request within 100 ms."""
        ...

    async def default_handle(self) -> str:
        """The model a new agent gets: the setting, else a configured key, else a local server, else practice."""
        ...

    async def list_models(self, refresh: bool = False) -> tuple[ModelInfo, ...]: ...

    async def describe(self, handle: str) -> ModelInfo | None:
        """The entry of this handle; None for one that no connected provider serves."""
        ...

    async def connect(self, provider: str, fields: dict[str, str]) -> None:
        """Store a provider's address and key on this machine. Raises: ValueError with words for the person."""
        ...

    async def disconnect(self, provider: str) -> bool: ...

    async def providers(self) -> tuple[ProviderStatus, ...]: ...
