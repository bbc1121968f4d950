"""The one path from a tool call to its result."""

import asyncio
import json
import posixpath
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from lodger_tools.box.contract import (
    BoxCall,
    Boxes,
    BoxKey,
    BoxLost,
    BoxOutcome,
    BoxUnavailable,
    ChangesFiles,
    EditFile,
    LookAtFiles,
    Operation,
    OutputSink,
    PinnedFile,
    PreviewChange,
    RunCommand,
    SearchFiles,
    StillRuns,
    WriteFile,
)
from lodger_tools.catalogue.arguments import BadArguments, parse_arguments
from lodger_tools.catalogue.background_tasks import TASK_TOOLS, check_task_tool
from lodger_tools.catalogue.binding import bind, in_foreground
from lodger_tools.catalogue.descriptions import SESSION_TOOLS, TOOLS
from lodger_tools.catalogue.environment import referenced_secrets, refused_names
from lodger_tools.catalogue.exec_sessions import EXEC_TOOL, INPUT_TOOL
from lodger_tools.catalogue.person_questions import ASK_TOOL, answers_in_words, check_questions
from lodger_tools.json_value import JsonObject
from lodger_tools.output.core.truncation import (
    ANY_LIMIT_CHARS,
    BASH_LIMIT_CHARS,
    SEARCH_LIMIT_CHARS,
    truncate_middle,
)
from lodger_tools.output.live import LiveOutput
from lodger_tools.output.overflow import OverflowFolder
from lodger_tools.permissions.core.rules import COMMAND_TOOL, FILE_TOOLS
from lodger_tools.permissions.core.script_files import script_files
from lodger_tools.permissions.core.shell import parse_script
from lodger_tools.redaction.core.escapes import strip_escapes
from lodger_tools.redaction.core.redactor import Redactor
from lodger_tools.toolbox_contract import EffectUnknown, ToolDescription, ToolOutcome, ToolRequest

ARGUMENTS_LIMIT_CHARS: Final = 16 * 1024 * 1024
IN_THREAD_CHARS: Final = 200_000
"""From here on redaction takes longer than the loop may be held."""
PREVIEW_LIMIT_CHARS: Final = 512 * 1024

TOLD_REFUSALS: Final = 10


class NetworkLedger(Protocol):
    """What the network has refused to boxes so far."""

    def refused_count(self, key: BoxKey) -> int:
        """To be given to `refused_since` after a call."""
        ...

    async def refused_since(self, key: BoxKey, count: int) -> tuple[tuple[str, str], ...]:
        """Destination and reason, each destination once."""
        ...


Perform: TypeAlias = Callable[[BoxCall, OutputSink | None], Awaitable[BoxOutcome | StillRuns]]
SecretsOf: TypeAlias = Callable[[str], Mapping[str, str]]


def no_secrets(agent_id: str) -> Mapping[str, str]:
    return {}


class LodgerToolbox:
    """Implements `Toolbox` on boxes."""

    def __init__(
        self,
        boxes: Boxes,
        overflow: OverflowFolder,
        secrets_of: SecretsOf = no_secrets,
        hidden_of: Callable[[], Mapping[str, str]] = dict,
        network: NetworkLedger | None = None,
        checkout: str = "",
    ) -> None:
        """
        Args:
            secrets_of: the whole store of one agent, by name; asked at each call, so it should be quick. A command
                that names one gets it in its environment.
            hidden_of: what is redacted in every output and never given to any command: the machine's own secrets.
            checkout: where in a box the agent's memory lies.
        """
        self._hidden_of = hidden_of
        self._network = network
        self._boxes = boxes
        self._overflow = overflow
        self._secrets_of = secrets_of
        self._checkout = checkout
        self._redactor = Redactor({})
        self._redactor_secrets: dict[str, str] = {}

    def tools(self, allowlist: tuple[str, ...] | None = None) -> tuple[ToolDescription, ...]:
        if allowlist is None:
            return TOOLS
        return tuple(tool for tool in (*TOOLS, *SESSION_TOOLS) if tool.name in allowlist)

    def check(self, tool_name: str, arguments_json: str) -> JsonObject | str:
        if len(arguments_json) > ARGUMENTS_LIMIT_CHARS:
            return f"The arguments of {tool_name} are longer than {ARGUMENTS_LIMIT_CHARS} characters."
        try:
            arguments = parse_arguments(arguments_json)
        except (ValueError, RecursionError) as error:
            return f"The arguments of {tool_name} are not valid JSON ({error}); nothing was run. Send the call again."
        if not isinstance(arguments, dict):
            return f"The arguments of {tool_name} must be a JSON object; nothing was run."
        try:
            if tool_name == ASK_TOOL:
                check_questions(arguments)
            elif tool_name in TASK_TOOLS or tool_name == INPUT_TOOL:
                check_task_tool(tool_name, arguments)
            else:
                bind(tool_name, arguments)
        except BadArguments as error:
            return str(error)
        return arguments

    async def run(self, request: ToolRequest, on_output: Callable[[str], None] | None = None) -> ToolOutcome:
        if request.tool_name == ASK_TOOL:
            return self._answered(request)
        boxes = self._boxes

        async def run(call: BoxCall, sink: OutputSink | None) -> BoxOutcome:
            return await boxes.run(request.box, call, sink)

        outcome = await self.perform(request, on_output, run)
        assert not isinstance(outcome, StillRuns)  # nobody left it running
        return outcome

    async def perform(
        self,
        request: ToolRequest,
        on_output: Callable[[str], None] | None,
        run: Perform,
        bind_it: Callable[[ToolRequest], Operation] | None = None,
    ) -> ToolOutcome | StillRuns:
        """The path of every call: bound, run as `run` does it, redacted, cut. Raises: EffectUnknown."""
        try:
            operation = (bind_it or bound)(request)
            call = self._call(request, operation)
        except BadArguments as error:
            return ToolOutcome("error", str(error), refused=True)
        redactor = self.redactor_for(request.box.agent_id)
        live = None if on_output is None or not isinstance(operation, RunCommand) else LiveOutput(redactor, on_output)
        refused_before = self.refused_before(request.box)
        try:
            outcome = await run(call, None if live is None else live.take)
        except BoxUnavailable as error:
            return ToolOutcome("error", str(error), refused=True)
        except BoxLost as error:
            raise EffectUnknown(str(error)) from error
        finally:
            if live is not None:
                live.close()
        if isinstance(outcome, StillRuns):
            return outcome
        result = await self.result(request, operation, outcome, redactor)
        if not isinstance(operation, RunCommand):
            return replace(result, memory_head=outcome.head)
        text = result.text + await self.refusals(request.box, refused_before)
        return replace(result, text=text, memory_head=outcome.head)

    async def collect(self, request: ToolRequest) -> ToolOutcome | None:
        if request.tool_name == ASK_TOOL:
            return self._answered(request)
        try:
            operation = bound(request)
        except BadArguments:
            return None
        outcome = await self._boxes.collect(request.box, request.call_key)
        if outcome is None:
            return None
        return await self.result(request, operation, outcome, self.redactor_for(request.box.agent_id))

    def refused_before(self, box: BoxKey) -> int:
        """To be given to `refusals` after a call."""
        return 0 if self._network is None else self._network.refused_count(box)

    async def refusals(self, box: BoxKey, before: int) -> str:
        """Some programs hide why a connection failed, so the result says it."""
        refused = () if self._network is None else await self._network.refused_since(box, before)
        if not refused:
            return ""
        lines = [f"\n[No connection to {to}: {reason}.]" for to, reason in refused[:TOLD_REFUSALS]]
        more = len(refused) - TOLD_REFUSALS
        return "".join(lines) + (f"\n[And {more} more.]" if more > 0 else "")

    async def real_path(self, request: ToolRequest) -> str | None:
        path = request.arguments.get(FILE_TOOLS.get(request.tool_name, ""))
        if not isinstance(path, str):
            return None
        found = await self._look(request, LookAtFiles((path,)))
        return found[0][1] if found else None

    async def pin(self, request: ToolRequest) -> tuple[PinnedFile, ...]:
        command = request.arguments.get({COMMAND_TOOL: "command", EXEC_TOOL: "cmd"}.get(request.tool_name, ""))
        if not isinstance(command, str):
            return ()
        paths = script_files(parse_script(command))
        found = await self._look(request, LookAtFiles(paths, marks=True)) if paths else ()
        return tuple(PinnedFile(path, mark) for path, _, mark in found)

    async def _look(self, request: ToolRequest, operation: LookAtFiles) -> tuple[tuple[str, str, str], ...]:
        """One row for each path; empty when no box can tell."""
        call = BoxCall(f"look/{uuid.uuid4()}", operation, request.cwd)
        try:
            outcome = await self._boxes.run(request.box, call)
        except (BoxUnavailable, BoxLost):
            return ()
        return looked_at(outcome.details.get("files"), operation.paths)

    def _answered(self, request: ToolRequest) -> ToolOutcome:
        text = self.redactor_for(request.box.agent_id).redact(answers_in_words(request.arguments))
        return ToolOutcome("success", truncate_middle(text, ANY_LIMIT_CHARS, None))

    async def preview(self, request: ToolRequest) -> tuple[JsonObject, ...]:
        if request.tool_name == ASK_TOOL:
            return ()
        try:
            operation = bind(request.tool_name, request.arguments)
            if not isinstance(operation, WriteFile | EditFile):
                return ()
            # A key of its own each time: the file may have changed since the last preview of the same call.
            call = BoxCall(f"preview/{uuid.uuid4()}", PreviewChange(operation), request.cwd)
            outcome = await self._boxes.run(request.box, call)
        except (BadArguments, BoxUnavailable, BoxLost) as error:
            return (unpreviewable(request, str(error)),)
        text = self.redactor_for(request.box.agent_id).redact(outcome.text)
        return (diff_in(text) or unpreviewable(request, "No preview could be made."),)

    def _call(self, request: ToolRequest, operation: Operation) -> BoxCall:
        """Raises: BadArguments when the environment is not allowed."""
        refused = refused_names(request.environment)
        if refused:
            raise BadArguments(f"A tool call may not set {', '.join(refused)}; nothing was run.")
        environment = dict(request.environment)
        if isinstance(operation, RunCommand):
            environment |= referenced_secrets(operation.command, self._secrets_of(request.box.agent_id))
        cwd = request.cwd
        if isinstance(operation, RunCommand) and operation.session is not None and operation.session.workdir:
            cwd = posixpath.normpath(posixpath.join(cwd, operation.session.workdir))
        checkout = self._checkout if isinstance(operation, ChangesFiles) else ""
        return BoxCall(request.call_key, operation, cwd, environment, checkout)

    async def result(
        self, request: ToolRequest, operation: Operation, outcome: BoxOutcome, redactor: Redactor
    ) -> ToolOutcome:
        """Redacted before anything else is done with it, then cut; the whole goes to an overflow file."""
        if len(outcome.text) > IN_THREAD_CHARS:
            text = await asyncio.to_thread(cleaned, outcome.text, operation, redactor)
        else:
            text = cleaned(outcome.text, operation, redactor)
        limit = limit_for(operation)
        before, after = around(operation, outcome)
        path = None
        if len(before) + len(text) + len(after) > limit:
            path = await self.keep_whole(request.box.agent_id, request.tool_name, text)
            text = truncate_middle(text, limit - len(before) - len(after), path)
        return ToolOutcome(outcome.status, before + (text or empty_words(operation)) + after, overflow_path=path)

    async def keep_whole(self, agent_id: str, tool_name: str, text: str) -> str | None:
        """Where a box of this agent finds a text that was redacted; None when it cannot be stored."""
        return await asyncio.to_thread(self._overflow.write, agent_id, tool_name, text)

    def redactor_for(self, agent_id: str) -> Redactor:
        """Kept while the secrets stay the same: making one costs more than using it."""
        secrets = {**self._hidden_of(), **self._secrets_of(agent_id)}
        if secrets != self._redactor_secrets:
            self._redactor = Redactor(secrets)
            self._redactor_secrets = secrets
        return self._redactor


def bound(request: ToolRequest) -> Operation:
    """What a call asks for when its end is waited for. Raises: BadArguments."""
    if request.tool_name in TASK_TOOLS or request.tool_name in (EXEC_TOOL, INPUT_TOOL):
        raise BadArguments(f"{request.tool_name} is not available here: nothing runs in the background.")
    operation = bind(request.tool_name, request.arguments)
    if not isinstance(operation, RunCommand):
        return operation
    if operation.background:
        raise BadArguments("Bash: run_in_background is not available here; leave it out.")
    return in_foreground(replace(operation, pinned=request.pinned))


def cleaned(text: str, operation: Operation, redactor: Redactor) -> str:
    if isinstance(operation, RunCommand):
        text = strip_escapes(text)
    return redactor.redact(text)


def limit_for(operation: Operation) -> int:
    match operation:
        case RunCommand():
            return BASH_LIMIT_CHARS
        case SearchFiles():
            return SEARCH_LIMIT_CHARS
        case _:
            return ANY_LIMIT_CHARS


def around(operation: Operation, outcome: BoxOutcome) -> tuple[str, str]:
    """What stands before and after a command's output: how it ended, and what it left running."""
    if not isinstance(operation, RunCommand):
        return "", ""
    before = ""
    if outcome.timed_out:
        # A runner alone says so: nothing is believed of it beyond its shape, not even that there was a limit.
        after_words = "" if operation.timeout_s is None else f" after {operation.timeout_s:g} s"
        before = f"Timed out{after_words}; its processes were ended. Output until then:\n"
    elif outcome.cancelled:
        before = "Cancelled; its processes were ended. Output until then:\n"
    elif outcome.out_of_memory:
        before = "Killed: what runs in this box used more memory together than it may. Output until then:\n"
    elif outcome.exit_code:
        before = f"Exit code: {outcome.exit_code}\n"
    after = ""
    if outcome.leftovers:
        one = outcome.leftovers == 1
        after = f"\n[{outcome.leftovers} {'process still runs' if one else 'processes still run'} in the background.]"
    return before, after


def empty_words(operation: Operation) -> str:
    return "(no output)" if isinstance(operation, RunCommand) else ""


def looked_at(rows: object, paths: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
    """The rows of a look at files, if they have the shape of one: nothing that a box sends is believed beyond that."""
    if not isinstance(rows, list) or len(rows) != len(paths):
        return ()
    good = [row for row in rows if isinstance(row, list) and len(row) == 3 and all(isinstance(x, str) for x in row)]
    if [row[0] for row in good] != list(paths):
        return ()
    return tuple((row[0], row[1], row[2]) for row in good)


def diff_in(text: str) -> JsonObject | None:
    """The diff that a box sent, if it has the shape of one."""
    if len(text) > PREVIEW_LIMIT_CHARS:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("fileName"), str):
        return None
    match value.get("mode"):
        case "advanced" if isinstance(value.get("hunks"), list):
            return {"mode": "advanced", "fileName": value["fileName"], "hunks": value["hunks"]}
        case "fallback" | "unpreviewable" as mode:
            return {"mode": mode, "fileName": value["fileName"], "reason": str(value.get("reason", ""))}
        case _:
            return None


def unpreviewable(request: ToolRequest, reason: str) -> JsonObject:
    path = request.arguments.get("file_path")
    return {"mode": "unpreviewable", "fileName": path if isinstance(path, str) else "", "reason": reason}
