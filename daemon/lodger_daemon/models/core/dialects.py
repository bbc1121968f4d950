"""Which encoder and decoder speak for a provider."""

from typing import Protocol, assert_never

from lodger_daemon.models.contract import ModelChunk, ModelRequest
from lodger_daemon.models.core.anthropic_request import encode_anthropic
from lodger_daemon.models.core.anthropic_stream import AnthropicStream
from lodger_daemon.models.core.openai_request import encode_openai
from lodger_daemon.models.core.openai_stream import OpenAiStream
from lodger_daemon.models.core.providers import Dialect, Provider
from lodger_tools.json_value import JsonObject


class StreamDecoder(Protocol):
    """From the bytes of one answer to its chunks. Every method raises `ModelFailure`."""

    ended: bool
    """`StepEnded` was given out, or a failure waits to be raised by `finish`; what still comes is noise."""

    def feed(self, data: bytes) -> list[ModelChunk]: ...

    def finish(self) -> list[ModelChunk]: ...

    def whole(self, body: bytes) -> list[ModelChunk]: ...


def encode(request: ModelRequest, provider: Provider, model: str) -> JsonObject:
    match provider.dialect:
        case Dialect.OPENAI | Dialect.LITELLM:
            return encode_openai(request, provider, model)
        case Dialect.ANTHROPIC:
            return encode_anthropic(request, provider, model)
        case _:
            assert_never(provider.dialect)


def decoder_for(provider: Provider, id_prefix: str) -> StreamDecoder:
    if provider.dialect is Dialect.ANTHROPIC:
        return AnthropicStream(provider.name, id_prefix)
    return OpenAiStream(provider.name, id_prefix)
