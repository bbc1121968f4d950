"""The device status (PROTOCOL.md 5.1): one full snapshot, with empty values for what does not exist here."""

from dataclasses import dataclass
from typing import Final

from lodger_daemon.clients.core.rendering import can_use_tool
from lodger_daemon.turns.contract import ConversationSnapshot
from lodger_tools.json_value import JsonObject

SUPPORTED_COMMANDS: Final = ("compact", "reload")
"""What `execute_command` does here."""


@dataclass(frozen=True, slots=True)
class DeviceValues:
    """What a device status needs beside the snapshot of its conversation."""

    connection_id: str
    """`app-server` for a client of this machine, else the relay's word for its connection."""
    connection_name: str
    version: str
    memory_directory: str | None
    git_context: JsonObject | None = None
    background_processes: tuple[JsonObject, ...] = ()


def device_status(snapshot: ConversationSnapshot, values: DeviceValues) -> JsonObject:
    """The whole status of one conversation as its clients see it."""
    return {
        "current_connection_id": values.connection_id,
        "connection_name": values.connection_name,
        "is_online": True,
        "is_processing": snapshot.processing,
        "current_permission_mode": snapshot.mode,
        "current_working_directory": snapshot.cwd,
        "git_context": values.git_context,
        "letta_code_version": None,
        "lodger_version": values.version,
        "current_toolset": "default" if snapshot.toolset else None,
        "current_toolset_preference": "auto",
        "current_loaded_tools": [*snapshot.toolset],
        "current_available_skills": [],
        "background_processes": [*values.background_processes],
        "pending_control_requests": [
            {"request_id": question.question_id, "request": can_use_tool(question)} for question in snapshot.questions
        ],
        "experiments": [],
        "memory_directory": values.memory_directory,
        "cwd_revision": snapshot.cwd_revision,
        "should_doctor": False,
        "supported_commands": [*SUPPORTED_COMMANDS],
        "reflection_settings": None,
    }
