"""A step as the body of an OpenAI chat completion."""

from lodger_daemon.models.contract import (
    AssistantMessage,
    ModelMessage,
    ModelRequest,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from lodger_daemon.models.core.anthropic_request import CACHED_USER_MESSAGES
from lodger_daemon.models.core.json_fields import as_list, as_object, as_text
from lodger_daemon.models.core.providers import Dialect, Provider
from lodger_daemon.models.core.thinking import thinking_blocks, unseal
from lodger_tools.json_value import Json, JsonObject


def encode_openai(request: ModelRequest, provider: Provider, model: str) -> JsonObject:
    """Also the form that litellm takes, which gets Anthropic's thinking blocks beside the text."""
    # OpenAI itself refuses max_tokens for its newer models; other servers know nothing else.
    is_openai = provider.base_url.startswith("https://api.openai.com/")
    messages = _messages(request.messages, provider)
    if _takes_cache_marks(provider, model):
        _mark_prefix(messages)
    body: JsonObject = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in request.tools
        ]
    if request.max_output_tokens is not None:
        body["max_completion_tokens" if is_openai else "max_tokens"] = request.max_output_tokens
    if request.reasoning_effort is not None:
        body["reasoning_effort"] = request.reasoning_effort
    if request.cache_key and is_openai:
        body["prompt_cache_key"] = request.cache_key
    return body


def _takes_cache_marks(provider: Provider, model: str) -> bool:
    """Claude caches what is marked only, also behind those who speak this dialect for it."""
    passes_marks_on = provider.dialect is Dialect.LITELLM or provider.base_url.startswith("https://openrouter.ai/")
    return passes_marks_on and "claude" in model.lower()


def _mark_prefix(messages: list[Json]) -> None:
    """Mark the system prompt and the latest two messages of a user, as for Anthropic itself."""
    encoded = [as_object(message) for message in messages]
    users = [message for message in encoded if message.get("role") == "user"]
    for message in (*encoded[:1], *users[-CACHED_USER_MESSAGES:]):
        content = message.get("content")
        parts: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
        last = as_object(parts[-1] if parts else None)
        if last.get("type") != "text" or as_text(last.get("text")).strip():
            last["cache_control"] = {"type": "ephemeral"}
            message["content"] = parts


def _messages(messages: tuple[ModelMessage, ...], provider: Provider) -> list[Json]:
    # Reasoning is only read back within the tool loop it belongs to; older reasoning would be paid for in vain.
    last_user = max((i for i, message in enumerate(messages) if isinstance(message, UserMessage)), default=0)
    return [_message(message, provider, i > last_user) for i, message in enumerate(messages)]


def _message(message: ModelMessage, provider: Provider, in_tool_loop: bool) -> JsonObject:
    match message:
        case SystemMessage(text):
            return {"role": "system", "content": text}
        case UserMessage(parts):
            return {"role": "user", "content": _user_content(parts)}
        case AssistantMessage():
            return _assistant(message, provider, in_tool_loop)
        case ToolMessage(tool_call_id, text):
            return {"role": "tool", "tool_call_id": tool_call_id, "content": text}


def _user_content(parts: tuple[JsonObject, ...]) -> Json:
    if all(part.get("type") == "text" for part in parts):
        # Plain text is the one form that every server takes; reminders are parts of their own and stay apart.
        return "\n\n".join(as_text(part.get("text")) for part in parts)
    return [_part(part) for part in parts]


def _part(part: JsonObject) -> JsonObject:
    if part.get("type") != "image":
        return {"type": "text", "text": as_text(part.get("text"))}
    source = as_object(part.get("source"))
    url = as_text(source.get("url")) or f"data:{as_text(source.get('media_type'))};base64,{as_text(source.get('data'))}"
    return {"type": "image_url", "image_url": {"url": url}}


def _assistant(message: AssistantMessage, provider: Provider, in_tool_loop: bool) -> JsonObject:
    encoded: JsonObject = {"role": "assistant", "content": message.text}
    if message.tool_calls:
        encoded["content"] = message.text or None
        encoded["tool_calls"] = [
            {
                "id": call.tool_call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_json or "{}"},
            }
            for call in message.tool_calls
        ]
    state = unseal(message.reasoning_signature, provider.name)
    if provider.dialect is Dialect.LITELLM:
        if blocks := thinking_blocks(state):
            encoded["thinking_blocks"] = list(blocks)
    elif in_tool_loop and isinstance(state, str) and message.reasoning and message.tool_calls:
        encoded[state] = message.reasoning
    return encoded
