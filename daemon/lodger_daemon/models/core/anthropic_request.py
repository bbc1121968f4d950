"""A step as the body of an Anthropic message."""

import re
from typing import Final

from lodger_daemon.models.contract import (
    AssistantMessage,
    ModelMessage,
    ModelRequest,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from lodger_daemon.models.core.json_fields import as_object, as_text, parse_object
from lodger_daemon.models.core.providers import Provider
from lodger_daemon.models.core.thinking import thinking_blocks, unseal
from lodger_daemon.models.core.windows import window_of
from lodger_tools.json_value import Json, JsonObject

_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_-]")
_CACHE_MARK: Final[JsonObject] = {"type": "ephemeral"}
CACHED_USER_MESSAGES: Final = 2
"""The latest two: one is read again by the next step, the other by the next turn. The limit is four marks in all."""

_THINKING_TOKENS: Final = {"low": 2_048, "medium": 8_192, "high": 16_384}
_SMALLEST_THINKING_TOKENS: Final = 1_024


def encode_anthropic(request: ModelRequest, provider: Provider, model: str) -> JsonObject:
    """Prompt-cache marks stand at the end of the fixed prefix and on the latest two user messages."""
    output_tokens = request.max_output_tokens or window_of(model).output_tokens
    messages = _messages(request.messages, provider)
    _mark_latest(messages)
    body: JsonObject = {"model": model, "max_tokens": output_tokens, "messages": list(messages), "stream": True}
    system = "\n\n".join(message.text for message in request.messages if isinstance(message, SystemMessage))
    tools: list[JsonObject] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in request.tools
    ]
    if system:
        body["system"] = [{"type": "text", "text": system, "cache_control": dict(_CACHE_MARK)}]
    elif tools:
        tools[-1]["cache_control"] = dict(_CACHE_MARK)
    if tools:
        body["tools"] = list(tools)
    if request.reasoning_effort is not None:
        budget = min(_THINKING_TOKENS[request.reasoning_effort], output_tokens // 2)
        if budget >= _SMALLEST_THINKING_TOKENS:
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
    return body


def _messages(messages: tuple[ModelMessage, ...], provider: Provider) -> list[JsonObject]:
    """Roles must alternate: results of one step, and a person's words right after them, form one user message."""
    encoded: list[JsonObject] = []
    for message in messages:
        role, blocks = _blocks(message, provider)
        if not blocks:
            continue
        last = encoded[-1] if encoded else None
        content = last["content"] if last and last["role"] == role else None
        if isinstance(content, list):
            content.extend(blocks)
        else:
            encoded.append({"role": role, "content": list(blocks)})
    return encoded


def _blocks(message: ModelMessage, provider: Provider) -> tuple[str, list[JsonObject]]:
    match message:
        case SystemMessage():
            return "user", []
        case UserMessage(parts):
            return "user", [shown for part in parts if (shown := _part(part))]
        case AssistantMessage():
            return "assistant", _assistant(message, provider)
        case ToolMessage(tool_call_id, text, is_error):
            block: JsonObject = {
                "type": "tool_result",
                "tool_use_id": _call_id(tool_call_id),
                "content": text or "(no output)",
            }
            if is_error:
                block["is_error"] = True
            return "user", [block]


def _part(part: JsonObject) -> JsonObject:
    """Empty for a text without a word, which the provider refuses."""
    if part.get("type") == "image":
        return {"type": "image", "source": as_object(part.get("source"))}
    text = as_text(part.get("text"))
    return {"type": "text", "text": text} if text.strip() else {}


def _assistant(message: AssistantMessage, provider: Provider) -> list[JsonObject]:
    blocks = thinking_blocks(unseal(message.reasoning_signature, provider.name))
    if text := message.text.rstrip():
        blocks.append({"type": "text", "text": text})
    for call in message.tool_calls:
        blocks.append(
            {
                "type": "tool_use",
                "id": _call_id(call.tool_call_id),
                "name": call.name,
                "input": _input(call.arguments_json),
            }
        )
    return blocks


def _call_id(tool_call_id: str) -> str:
    """Other providers name calls by signs that this one refuses, as in `functions.Bash:0`."""
    return _NOT_IN_IDS.sub("_", tool_call_id)


def _input(arguments_json: str) -> Json:
    if not arguments_json.strip():
        return {}
    # Broken arguments were answered with an error; the model must see what it wrote, not an empty object.
    arguments = parse_object(arguments_json)
    return {"invalid_json": arguments_json} if arguments is None else arguments


def _mark_latest(messages: list[JsonObject]) -> None:
    users = [message for message in messages if message["role"] == "user"]
    for message in users[-CACHED_USER_MESSAGES:]:
        content = message["content"]
        if isinstance(content, list) and isinstance(block := content[-1], dict):
            block["cache_control"] = dict(_CACHE_MARK)
