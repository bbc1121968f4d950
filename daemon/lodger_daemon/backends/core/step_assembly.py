"""One model step put together from its chunks."""

from collections.abc import Callable
from dataclasses import dataclass, field

from lodger_daemon.identity import ToolCallId
from lodger_daemon.models.contract import FinishReason, ToolCallChunk, Usage
from lodger_tools.json_value import Json, JsonObject


@dataclass(frozen=True, slots=True)
class AssembledCall:
    """`cut` when the token limit ended it in mid-arguments; then it must not run."""

    tool_call_id: ToolCallId
    name: str
    arguments_json: str
    cut: bool = False


@dataclass(slots=True)
class _CallInProgress:
    tool_call_id: str = ""
    name: str = ""
    fragments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class StepAssembly:
    """Mutable while a step streams; read once it ended, was cut or was aborted."""

    texts: list[str] = field(default_factory=list)
    reasonings: list[str] = field(default_factory=list)
    signature: str | None = None
    usage: Usage = field(default_factory=Usage)
    finish: FinishReason | None = None
    _calls: dict[int, _CallInProgress] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def reasoning(self) -> str:
        return "".join(self.reasonings)

    def add_call_fragment(self, chunk: ToolCallChunk) -> None:
        call = self._calls.get(chunk.index)
        if call is None:
            call = self._calls[chunk.index] = _CallInProgress()
        # Some providers repeat id and name with each fragment, so these are set, not joined.
        if chunk.tool_call_id:
            call.tool_call_id = chunk.tool_call_id
        if chunk.name:
            call.name = chunk.name
        if chunk.arguments_fragment:
            call.fragments.append(chunk.arguments_fragment)

    def calls(self, fallback_id: str, complete: Callable[[str], bool]) -> tuple[AssembledCall, ...]:
        """All calls, each with an id that is its own within the step.

        Args:
            fallback_id: begins the ids of calls that came without one.
            complete: whether an argument text is whole JSON; asked only when the step was cut.
        """
        seen: set[str] = set()
        assembled: list[AssembledCall] = []
        last = max(self._calls, default=-1)
        for index in sorted(self._calls):
            call = self._calls[index]
            tool_call_id = call.tool_call_id or f"{fallback_id}-{index}"
            while tool_call_id in seen:
                # Again and again: a model may have chosen the very id that this makes.
                tool_call_id = f"{tool_call_id}-{index}"
            seen.add(tool_call_id)
            arguments = "".join(call.fragments)
            cut = self.finish is FinishReason.LENGTH and index == last and not complete(arguments)
            assembled.append(AssembledCall(ToolCallId(tool_call_id), call.name, arguments, cut))
        return tuple(assembled)

    def content(self, calls: tuple[AssembledCall, ...], calls_message_id: str) -> JsonObject:
        """As the transcript keeps it."""
        content: JsonObject = {"text": self.text}
        if self.reasonings:
            content["reasoning"] = self.reasoning
            content["signature"] = self.signature
        if calls:
            stored: list[Json] = [
                {"id": call.tool_call_id, "name": call.name, "arguments": call.arguments_json} for call in calls
            ]
            content["tool_calls"] = stored
            content["calls_message_id"] = calls_message_id
        return content
