"""Where a call runs: in the turn's box, or in another box that shows the one folder it was allowed."""

import pytest

from lodger_daemon.turns.call_place import arguments_to_run, place_of_call
from lodger_daemon.turns.live import Place
from lodger_tools.box.contract import BoxKey, BoxProfile
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.verdicts import CallToJudge

HOME = "/home/ada"
TURN = Place(BoxKey("agent-1", "/home/ada/project"), "/home/ada/project")


def judged(tool: str, arguments: JsonObject) -> CallToJudge:
    return CallToJudge(tool, arguments, TURN.cwd, TURN.box.workspace, "/home/ada/memory")


def outside(folder: str, profile: BoxProfile = BoxProfile.AGENT) -> Place:
    return Place(BoxKey("agent-1", folder, profile), folder)


@pytest.mark.parametrize(
    ("tool", "arguments", "place"),
    [
        ("Bash", {"command": "cd / && rm -rf /srv"}, TURN),
        ("Bash", {"command": "make", "folder": "/srv/site"}, outside("/srv/site")),
        ("Bash", {"command": "make", "folder": "/home/ada/project/sub"}, TURN),
        ("Write", {"file_path": "a.txt", "content": ""}, TURN),
        ("Write", {"file_path": "../other/a.txt", "content": ""}, outside("/home/ada/other")),
        ("Edit", {"file_path": "~/notes.md", "old_string": "a", "new_string": "b"}, outside("/home/ada")),
        ("Read", {"file_path": "/srv/site/a"}, outside("/srv/site", BoxProfile.READ_ONLY)),
        ("Read", {"file_path": "~/memory/a.md"}, TURN),
        ("Grep", {"pattern": "x"}, TURN),
    ],
)
def test_the_box_of_a_call(tool: str, arguments: JsonObject, place: Place) -> None:
    assert place_of_call(TURN, judged(tool, arguments), HOME) == place


@pytest.mark.parametrize(
    ("tool", "arguments", "run"),
    [
        ("Read", {"file_path": "../x/./a", "limit": 3}, {"file_path": "/home/ada/x/a", "limit": 3}),
        ("Write", {"file_path": "~/memory/a.md"}, {"file_path": "/home/ada/memory/a.md"}),
        ("Glob", {"pattern": "*.py"}, {"pattern": "*.py"}),
        ("Bash", {"command": "cat ../x"}, {"command": "cat ../x"}),
    ],
)
def test_what_was_judged_is_what_runs(tool: str, arguments: JsonObject, run: JsonObject) -> None:
    assert arguments_to_run(judged(tool, arguments), HOME) == run
