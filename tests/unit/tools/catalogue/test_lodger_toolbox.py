"""The toolbox over another room's contract: boxes that answer what a test says."""

from pathlib import Path

import pytest

from lodger_tools.box.contract import (
    BoxCall,
    BoxKey,
    BoxLost,
    BoxOutcome,
    BoxStatus,
    BoxUnavailable,
    OutputSink,
    PreviewChange,
    RunCommand,
)
from lodger_tools.json_value import JsonObject
from lodger_tools.output.overflow import OverflowFolder
from lodger_tools.toolbox import LodgerToolbox
from lodger_tools.toolbox_contract import EffectUnknown, Scheduling, ToolOutcome, ToolRequest

KEY = BoxKey("agent-1", "/workspace")
READERS_AND_WRITERS = ("Bash", "Read", "Write", "Edit", "Glob", "Grep")
SECRETS = {"TOKEN": "hunter2-hunter2", "OTHER": "swordfish-9"}


class ScriptedBoxes:
    def __init__(self, answer: BoxOutcome | Exception, output: bytes = b"") -> None:
        self.answer = answer
        self.output = output
        self.calls: list[BoxCall] = []

    async def run(self, key: BoxKey, call: BoxCall, on_output: OutputSink | None = None) -> BoxOutcome:
        self.calls.append(call)
        if on_output is not None:
            on_output(self.output)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def collect(self, key: BoxKey, call_key: str) -> BoxOutcome | None:
        return self.answer if isinstance(self.answer, BoxOutcome) else None

    async def stop_all(self, key: BoxKey) -> int:
        return 0

    async def end(self, key: BoxKey) -> None:
        return None

    def statuses(self) -> tuple[BoxStatus, ...]:
        return ()

    async def aclose(self) -> None:
        return None


class Rig:
    def __init__(self, folder: Path, answer: BoxOutcome | Exception, output: bytes = b"") -> None:
        self.boxes = ScriptedBoxes(answer, output)
        self.toolbox = LodgerToolbox(self.boxes, OverflowFolder(folder), lambda agent_id: SECRETS)
        self.shown: list[str] = []

    async def run(self, tool: str, arguments: JsonObject, environment: dict[str, str] | None = None) -> ToolOutcome:
        return await self.toolbox.run(request(tool, arguments, environment or {}), self.shown.append)


def request(tool: str, arguments: JsonObject, environment: dict[str, str] | None = None) -> ToolRequest:
    return ToolRequest("key", tool, arguments, KEY, "/workspace", environment or {})


@pytest.mark.parametrize(
    ("outcome", "status", "text"),
    [
        (BoxOutcome("success", "hi\n", exit_code=0), "success", "hi\n"),
        (BoxOutcome("success", "", exit_code=0), "success", "(no output)"),
        (BoxOutcome("error", "bad\n", exit_code=3), "error", "Exit code: 3\nbad\n"),
        (
            BoxOutcome("error", "so far\n", exit_code=143, timed_out=True),
            "error",
            "Timed out after 120 s; its processes were ended. Output until then:\nso far\n",
        ),
        (
            BoxOutcome("success", "up", exit_code=0, leftovers=2),
            "success",
            "up\n[2 processes still run in the background.]",
        ),
        (BoxOutcome("success", "\x1b[31mred\x1b[0m hunter2-hunter2"), "success", "red TOKEN=<REDACTED>"),
    ],
)
async def test_what_a_command_says(tmp_path: Path, outcome: BoxOutcome, status: str, text: str) -> None:
    result = await Rig(tmp_path, outcome).run("Bash", {"command": "x"})
    assert (result.status, result.text, result.overflow_path, result.refused) == (status, text, None, False)


async def test_a_long_result_is_redacted_before_it_reaches_the_disk(tmp_path: Path) -> None:
    text = "x" * 20_000 + SECRETS["OTHER"] + "y" * 20_000
    result = await Rig(tmp_path, BoxOutcome("success", text, exit_code=0)).run("Bash", {"command": "x"})
    (file,) = (tmp_path / "agent-1").iterdir()
    assert result.overflow_path == f"/run/lodger/overflow/{file.name}"
    assert file.read_text() == "x" * 20_000 + "OTHER=<REDACTED>" + "y" * 20_000
    assert len(result.text) <= 30_000 and file.name in result.text


async def test_secrets_go_into_the_environment_by_name_only(tmp_path: Path) -> None:
    rig = Rig(tmp_path, BoxOutcome("success", "", exit_code=0))
    await rig.run("Bash", {"command": "curl $TOKEN"}, {"LANG": "C"})
    assert rig.boxes.calls == [
        BoxCall("key", RunCommand("curl $TOKEN"), "/workspace", {"LANG": "C", "TOKEN": SECRETS["TOKEN"]})
    ]


async def test_a_forbidden_variable_stops_the_call(tmp_path: Path) -> None:
    """A6."""
    rig = Rig(tmp_path, BoxOutcome("success", ""))
    result = await rig.run("Bash", {"command": "x"}, {"LD_PRELOAD": "/x.so"})
    assert result == ToolOutcome("error", "A tool call may not set LD_PRELOAD; nothing was run.", refused=True)
    assert rig.boxes.calls == []


async def test_no_box_refuses_and_a_lost_one_is_unknown(tmp_path: Path) -> None:
    refused = await Rig(tmp_path, BoxUnavailable("no bwrap")).run("Bash", {"command": "x"})
    assert refused == ToolOutcome("error", "no bwrap", refused=True)
    with pytest.raises(EffectUnknown):
        await Rig(tmp_path, BoxLost("gone")).run("Bash", {"command": "x"})


async def test_live_output_is_redacted(tmp_path: Path) -> None:
    rig = Rig(tmp_path, BoxOutcome("success", ""), b"a hunter2-hunter2 b")
    await rig.run("Bash", {"command": "x"})
    assert rig.shown == ["a TOKEN=<REDACTED> b"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"command": "ls"', "not valid JSON"),
        ("[]", "must be a JSON object"),
        ('{"cmd": "ls"}', "needs the argument command"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_broken_arguments_are_named_as_such(tmp_path: Path, text: str, words: str) -> None:
    answer = Rig(tmp_path, BoxOutcome("success", "")).toolbox.check("Bash", text)
    assert isinstance(answer, str) and words in answer


def test_good_arguments_come_back_as_they_are(tmp_path: Path) -> None:
    toolbox = Rig(tmp_path, BoxOutcome("success", "")).toolbox
    assert toolbox.check("Bash", '{"command": "ls", "odd": 1}') == {"command": "ls", "odd": 1}
    assert "no tool" in str(toolbox.check("Nothing", "{}"))


def test_tools_keep_their_order_and_writers_are_barriers(tmp_path: Path) -> None:
    toolbox = Rig(tmp_path, BoxOutcome("success", "")).toolbox
    assert [tool.name for tool in toolbox.tools()] == [
        *READERS_AND_WRITERS,
        "AskUserQuestion",
        "TaskOutput",
        "TaskStop",
    ]
    assert [tool.name for tool in toolbox.tools(("Grep", "Bash"))] == ["Bash", "Grep"]
    assert toolbox.tools(()) == ()
    barriers = [tool.name for tool in toolbox.tools() if tool.scheduling is Scheduling.BARRIER]
    assert barriers == ["Bash", "Write", "Edit", "TaskStop"]


async def test_previews_never_raise_and_are_redacted(tmp_path: Path) -> None:
    write: JsonObject = {"file_path": "a", "content": "x"}
    good = Rig(tmp_path, BoxOutcome("success", '{"mode":"advanced","fileName":"a","hunks":["hunter2-hunter2"]}'))
    expected: JsonObject = {"mode": "advanced", "fileName": "a", "hunks": ["TOKEN=<REDACTED>"]}
    assert await good.toolbox.preview(request("Write", write)) == (expected,)
    assert isinstance(good.boxes.calls[0].operation, PreviewChange)
    assert await good.toolbox.preview(request("Bash", {"command": "x"})) == ()
    for answer in (BoxOutcome("success", "[]"), BoxOutcome("error", "no"), BoxLost("gone"), BoxUnavailable("none")):
        (diff,) = await Rig(tmp_path, answer).toolbox.preview(request("Write", write))
        assert (diff["mode"], diff["fileName"]) == ("unpreviewable", "a")


async def test_collected_outcomes_are_cleaned_alike(tmp_path: Path) -> None:
    rig = Rig(tmp_path, BoxOutcome("error", "swordfish-9\n", exit_code=1))
    collected = await rig.toolbox.collect(request("Bash", {"command": "x"}))
    assert collected == ToolOutcome("error", "Exit code: 1\nOTHER=<REDACTED>\n")
    assert await Rig(tmp_path, BoxLost("gone")).toolbox.collect(request("Bash", {"command": "x"})) is None
