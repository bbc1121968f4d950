"""Calls that are shell commands under another name, as the rules read them. Pure."""

from dataclasses import replace

from lodger_tools.catalogue.exec_sessions import EXEC_TOOL, INPUT_TOOL
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.rules import COMMAND_TOOL
from lodger_tools.permissions.core.verdicts import CallToJudge


def as_command(call: CallToJudge) -> CallToJudge:
    """The same call as one of the shell tool; any other as it is.

    What is typed into a session is judged like a command whatever runs there: that an interpreter does is not always
    to be seen from its name (BEHAVIOUR.md C6).
    """
    match call.tool_name:
        case name if name == EXEC_TOOL:
            arguments: JsonObject = {"command": call.arguments.get("cmd")}
            if call.arguments.get("workdir"):
                arguments["folder"] = call.arguments["workdir"]
        case name if name == INPUT_TOOL:
            arguments = {"command": call.arguments.get("chars")}
        case _:
            return call
    return replace(call, tool_name=COMMAND_TOOL, arguments=arguments)


def typed_text(call: CallToJudge) -> str | None:
    """What a call types into a session; None for other tools."""
    if call.tool_name != INPUT_TOOL:
        return None
    text = call.arguments.get("chars")
    return text if isinstance(text, str) else ""
