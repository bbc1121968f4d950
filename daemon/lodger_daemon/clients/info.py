"""What this daemon says it can do (PROTOCOL.md 2.3)."""

from typing import Final

from lodger_daemon.clients.facts import DeviceFacts
from lodger_tools.json_value import JsonObject

PROTOCOL_VERSION: Final = 1


def app_server_info(facts: DeviceFacts, request_id: str) -> JsonObject:
    """Official clients check the type of each of these; the last object is for clients of ours."""
    return {
        "type": "app_server_info_response",
        "request_id": request_id,
        "success": True,
        "backend": "local",
        "letta_code_version": facts.version,
        "protocol_version": PROTOCOL_VERSION,
        "capabilities": {
            "agent_management": True,
            "conversation_management": True,
            "memory_management": True,
            "runtime_start": True,
            "runtime_workspace_sandbox": False,
            "runtime_external_tools_update": True,
            "split_channels": False,
        },
        "lodger": {
            "version": facts.version,
            "capabilities": ["resume", "batch_deltas", "receipts", "questions", "batch_questions"],
        },
    }
