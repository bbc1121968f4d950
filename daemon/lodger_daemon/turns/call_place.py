"""In which box a call runs: the turn's own, or another one whose workspace is the one folder it was allowed.

The paths of file tools are made absolute here, by the same reading that the permission rules use, so that what was
judged is what runs.
"""

from lodger_daemon.turns.live import Place
from lodger_tools.box.contract import BoxKey, BoxProfile
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.reach import path_of, reach_of
from lodger_tools.permissions.core.rules import FILE_TOOLS
from lodger_tools.permissions.core.verdicts import CallToJudge


def place_of_call(turn: Place, call: CallToJudge, home: str) -> Place:
    """Never the turn's box with more in it: an approval opens one folder, for one call (ATTACKS.md F6)."""
    reach = reach_of(call, home)
    if reach.inside:
        return turn
    profile = BoxProfile.READ_ONLY if reach.read_only else turn.box.profile
    return Place(BoxKey(turn.box.agent_id, reach.folder, profile), reach.folder)


def arguments_to_run(call: CallToJudge, home: str) -> JsonObject:
    """The arguments with the path of a file tool as the rules read it."""
    name = FILE_TOOLS.get(call.tool_name)
    if name is None or not isinstance(call.arguments.get(name), str):
        return call.arguments
    return {**call.arguments, name: path_of(call, home)}
