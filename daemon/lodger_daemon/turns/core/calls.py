"""The tool calls of one model step, what has been decided about each, and which may run now."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias, assert_never

from lodger_daemon.identity import MessageId, RunId, ToolCallId
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.verdicts import Suggestion
from lodger_tools.toolbox_contract import Scheduling


@dataclass(frozen=True, slots=True)
class Undecided:
    """No rule has been asked yet."""


@dataclass(frozen=True, slots=True)
class MustAsk:
    reason: str
    suggestions: tuple[Suggestion, ...] = ()
    rule: str | None = None
    """The rule that wants a person to decide, if it was one."""


@dataclass(frozen=True, slots=True)
class Permitted:
    """May run with exactly these arguments. `by_person` when a question settled it, not a rule."""

    arguments: JsonObject
    by_person: bool = False


class RefusedBy(StrEnum):
    """Values are words of the audit log."""

    ARGUMENTS = "arguments"
    """They could not be used, or there is no such tool."""
    RULES = "rules"
    PERSON = "person"
    NOBODY = "nobody"
    """Nobody answered, or nobody could be asked."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Will not run; `text` is the error result the model gets."""

    text: str
    by: RefusedBy = RefusedBy.ARGUMENTS
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Running:
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Done:
    """The result is in the transcript."""


CallProgress: TypeAlias = Undecided | MustAsk | Permitted | Refused | Running | Done


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the model made it. `arguments` is None when they could not be read; then it is refused."""

    tool_call_id: ToolCallId
    tool_name: str
    arguments_json: str
    arguments: JsonObject | None
    scheduling: Scheduling
    progress: CallProgress = Undecided()


@dataclass(frozen=True, slots=True)
class Batch:
    """All calls of one step, in call order."""

    run_id: RunId
    message_id: MessageId
    calls: tuple[Call, ...]

    def get(self, tool_call_id: ToolCallId) -> Call | None:
        return next((call for call in self.calls if call.tool_call_id == tool_call_id), None)

    def change(self, tool_call_id: ToolCallId, progress: CallProgress) -> "Batch":
        return self.map(lambda call: progress if call.tool_call_id == tool_call_id else call.progress)

    def map(self, new_progress: Callable[[Call], CallProgress]) -> "Batch":
        return replace(self, calls=tuple(replace(call, progress=new_progress(call)) for call in self.calls))

    @property
    def executing(self) -> tuple[ToolCallId, ...]:
        return tuple(call.tool_call_id for call in self.calls if isinstance(call.progress, Running))

    @property
    def unfinished(self) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if not isinstance(call.progress, Done))


def to_ask(batch: Batch, together: bool) -> tuple[Call, ...]:
    """Whom to ask about now, in call order: the first, or all of them at once."""
    waiting = tuple(call for call in batch.calls if isinstance(call.progress, MustAsk))
    return waiting if together else waiting[:1]


def ready_to_run(batch: Batch) -> tuple[Call, ...]:
    """Permitted calls that may start now: readers overlap, a writer waits for all before it and holds all after it.

    A refused call runs nothing, so it holds nobody.
    """
    ready: list[Call] = []
    something_runs = False
    for call in batch.calls:
        match call.progress:
            case Done() | Refused():
                continue
            case Undecided() | MustAsk():
                break
            case Running():
                something_runs = True
            case Permitted():
                if call.scheduling is Scheduling.BARRIER and something_runs:
                    break
                ready.append(call)
                something_runs = True
            case _:
                assert_never(call.progress)
        if call.scheduling is Scheduling.BARRIER:
            break
    return tuple(ready)
