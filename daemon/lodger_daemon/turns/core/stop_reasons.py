"""The one table of stop reasons (BEHAVIOUR.md A4). Values are words of the wire."""

from enum import StrEnum


class StopReason(StrEnum):
    END_TURN = "end_turn"
    REQUIRES_APPROVAL = "requires_approval"
    CANCELLED = "cancelled"
    MAX_STEPS = "max_steps"
    MAX_TOKENS_EXCEEDED = "max_tokens_exceeded"
    CONTEXT_WINDOW_OVERFLOW = "context_window_overflow_in_system_prompt"
    TOOL_RULE = "tool_rule"
    NO_TOOL_CALL = "no_tool_call"
    INVALID_TOOL_CALL = "invalid_tool_call"
    INSUFFICIENT_CREDITS = "insufficient_credits"
    LLM_API_ERROR = "llm_api_error"
    ERROR = "error"
