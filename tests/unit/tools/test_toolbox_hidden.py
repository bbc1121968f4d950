"""What is hidden is redacted in every output and reaches no command, even one that names it."""

from collections.abc import Mapping
from pathlib import Path

from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, BoxStatus, OutputSink
from lodger_tools.output.overflow import OverflowFolder
from lodger_tools.toolbox import LodgerToolbox
from lodger_tools.toolbox_contract import ToolRequest


class EchoingBoxes:
    """Boxes whose every command prints the environment it was given and one leaked token."""

    async def run(self, key: BoxKey, call: BoxCall, on_output: OutputSink | None = None) -> BoxOutcome:
        self.environment: Mapping[str, str] = call.environment
        return BoxOutcome("success", "leaked: machine-token-1", exit_code=0)

    async def collect(self, key: BoxKey, call_key: str) -> BoxOutcome | None:
        return None

    async def stop_all(self, key: BoxKey) -> int:
        return 0

    async def end(self, key: BoxKey) -> None: ...

    def statuses(self) -> tuple[BoxStatus, ...]:
        return ()

    async def aclose(self) -> None: ...


async def test_hidden_values_are_redacted_and_given_to_no_command(tmp_path: Path) -> None:
    boxes = EchoingBoxes()
    hidden = {"MACHINE_TOKEN": "machine-token-1"}
    toolbox = LodgerToolbox(boxes, OverflowFolder(tmp_path), hidden_of=lambda: hidden)
    request = ToolRequest("call-1", "Bash", {"command": "echo $MACHINE_TOKEN"}, BoxKey("agent-1", "/srv"), "/srv")
    outcome = await toolbox.run(request)
    assert "machine-token-1" not in outcome.text
    assert "MACHINE_TOKEN=<REDACTED>" in outcome.text
    assert "MACHINE_TOKEN" not in boxes.environment
