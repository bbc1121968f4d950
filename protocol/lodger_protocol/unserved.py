"""Every command of the protocol that this daemon knows by name only, and how its failed response looks.

A client that waits for an answer gets one: the response's own shape with its payload nulled or emptied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue


@dataclass(frozen=True, slots=True)
class FailedShape:
    """A failed response: `echo` names request fields that it repeats, `empty` holds the emptied payload."""

    response: str
    echo: tuple[str, ...] = ()
    empty: Mapping[str, JsonValue] = field(default_factory=dict)


def _shape(command: str, *echo: str, **empty: JsonValue) -> tuple[str, FailedShape]:
    return command, FailedShape(f"{command}_response", echo, empty)


_NO_SETTINGS: Final = {"reflection_settings": None}

FAILED_SHAPES: Final[Mapping[str, FailedShape]] = dict(
    [
        # 4.2 device state
        _shape("get_reflection_settings", **_NO_SETTINGS),
        _shape("set_reflection_settings", "scope", **_NO_SETTINGS),
        _shape("get_experiments", experiments=[]),
        _shape("set_experiment", experiments=[]),
        # 4.3 toolset and usage
        _shape("update_toolset", "runtime"),
        # 4.4 files
        _shape("grep_in_files", matches=[], total_matches=0, total_files=0, truncated=False),
        _shape("write_file", "path"),
        _shape("edit_file", "file_path", message=None, replacements=0),
        # 4.7 cron
        _shape("cron_list", tasks=[]),
        _shape("cron_add"),
        _shape("cron_get", found=False, task=None),
        _shape("cron_update"),
        _shape("cron_delete", found=False),
        _shape("cron_delete_all", "agent_id", deleted=0),
        _shape("cron_trigger", found=False),
        _shape("cron_runs"),
        _shape("cron_pause", found=False),
        _shape("cron_resume", found=False),
        # 4.8 skills, agents, conversations
        _shape("skill_enable", "skill_path", name="", link_path=""),
        _shape("skill_disable", "name"),
        _shape("create_agent"),
        # 4.9 teleport and newer
        _shape("teleport_probe", "runtime", supported=False),
        _shape("launch_subagent", "runtime"),
        _shape("monitor_stop", "runtime", "process_id", stopped=False),
        _shape("browser_device_mcp_oauth", "handoff_key"),
        # 4.10 secrets, branches, channels
        _shape("secret_list", secrets=[]),
        _shape("secret_apply", names=[]),
        _shape("checkout_branch", "branch"),
        _shape("channel_start", channel=None),
        _shape("channel_stop", channel=None),
        _shape("channel_accounts_list", "channel_id", accounts=[]),
        _shape("channel_account_create", "channel_id", account=None),
        _shape("channel_account_update", "channel_id", account=None),
        _shape("channel_account_bind", "channel_id", account=None),
        _shape("channel_account_unbind", "channel_id", account=None),
        _shape("channel_account_start", "channel_id", account=None),
        _shape("channel_account_stop", "channel_id", account=None),
        _shape("channel_account_delete", "channel_id", "account_id", deleted=False),
        _shape("channel_get_config", config=None),
        _shape("channel_set_config", config=None),
        _shape("channel_pairings_list", "channel_id", pending=[]),
        _shape("channel_pairing_bind", "channel_id"),
        _shape("channel_routes_list", "channel_id", routes=[]),
        _shape("channel_route_update", "channel_id", "chat_id"),
        _shape("channel_route_remove", "channel_id", "chat_id", found=False),
        _shape("channel_targets_list", "channel_id", targets=[]),
        _shape("channel_target_bind", "channel_id", "target_id"),
    ]
)

SILENT_COMMANDS: Final = frozenset(
    {
        "refresh_doctor_state",
        "watch_file",
        "unwatch_file",
        "file_ops",
        "terminal_input",
        "terminal_resize",
        "terminal_kill",
        "teleport_request",
        "teleport_failed",
        "browser_device_mcp_oauth_cancel",
        "pong",
    }
)
"""Commands the protocol gives no response (PROTOCOL.md section 9, item 1)."""

SERVED_SHAPES: Final[Mapping[str, FailedShape]] = dict(
    [
        _shape(
            "runtime_start",
            runtime=None,
            agent=None,
            conversation=None,
            created={"agent": False, "conversation": False},
        ),
        _shape("sync", "runtime"),
        _shape("abort_message", "runtime", aborted=False),
        _shape("remove_queue_item", "item_id"),
        _shape("resume_queue", "runtime", resumed=0),
        _shape("runtime_external_tools_update"),
        _shape("agent_delete", "agent_id"),
        _shape("conversation_list", conversations=[]),
        _shape("conversation_retrieve", conversation=None),
        _shape("conversation_messages_list", messages=[], next_before=None, has_more=False),
        _shape("agent_list", agents=[]),
        _shape("agent_retrieve", agent=None),
        _shape("agent_create", agent=None),
        _shape("agent_update", agent=None),
        _shape("list_models", entries=[], available_handles=None),
        _shape("update_model"),
        _shape("list_connect_providers", "target", providers=[]),
        _shape("connect_provider", "target", providers=[], models_may_have_changed=False),
        _shape("disconnect_provider", "target", providers=[], models_may_have_changed=False),
        _shape("channels_list", channels=[]),
        _shape("get_cwd_map", cwd_map={}, boot_working_directory=None),
        _shape("set_boot_working_directory", boot_working_directory=None, cwd_revision=0),
        _shape("search_files", files=[]),
        _shape("list_in_directory", "path", folders=[], hasMore=False, total=0),
        _shape("get_tree", "path", entries=[], has_more_depth=False),
        _shape("read_file", "path", "encoding", content=None),
        _shape("list_memory", entries=[], done=True, total=0),
        _shape("memory_history", "file_path", commits=[]),
        _shape("memory_file_at_ref", "file_path", "ref", content=None),
        _shape("memory_commit_diff", "sha", diff=None),
        _shape("read_memory_file", "agent_id", "path", "encoding", content=None),
        _shape("write_memory_file", "agent_id", "path"),
        _shape("delete_memory_file", "agent_id", "path"),
        _shape("enable_memfs"),
        _shape("conversation_create", conversation=None),
        _shape("conversation_update", conversation=None),
        _shape("conversation_recompile", result=None),
        _shape("conversation_fork", conversation=None),
        _shape("conversation_compact", compaction=None),
        _shape("search_branches", branches=[]),
    ]
)
"""The same for the commands that are served: for requests that are malformed or cannot be done."""

_ECHO_WHEN_ABSENT: Final[Mapping[str, JsonValue]] = {"encoding": "utf8", "file_path": ""}
"""What an echoed field says when the request left it out, as the reference server answers."""

_NO_RESPONSE_ERROR_FIELD: Final = frozenset({"remove_queue_item"})


def failed_response(command: str, request: Mapping[str, JsonValue], error: str) -> dict[str, JsonValue] | None:
    """The response that tells a client its command failed; None where the protocol has no such response.

    Args:
        request: The frame as it came; its `request_id` and echoed fields are repeated untouched.
    """
    if command == "terminal_spawn":
        return {
            "type": "terminal_exited",
            "terminal_id": request.get("terminal_id", ""),
            "exitCode": 1,
            "error": error,
        }
    if "request_id" not in request and command != "list_in_directory":
        return None
    if command == "execute_command":
        return _answer("execute_command_response", request, output=error)
    if command == "chatgpt_usage_read":
        fault: JsonValue = {"code": "not_connected", "message": error}
        return _answer("chatgpt_usage_read_response", request, target=request.get("target"), error=fault)
    shape = FAILED_SHAPES.get(command) or SERVED_SHAPES.get(command)
    if shape is None:
        return None
    known = {**_ECHO_WHEN_ABSENT, **request}
    response = _answer(shape.response, request, **{name: known[name] for name in shape.echo if name in known})
    response.update(shape.empty)
    if command not in _NO_RESPONSE_ERROR_FIELD:
        response["error"] = error
    return response


def _answer(response_type: str, request: Mapping[str, JsonValue], **fields: JsonValue) -> dict[str, JsonValue]:
    response: dict[str, JsonValue] = {"type": response_type}
    if "request_id" in request:
        response["request_id"] = request["request_id"]
    response["success"] = False
    response.update(fields)
    return response
