"""The local backend: this machine keeps the transcript, builds each request and compacts when it grows too long."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from lodger_daemon.backends.core.compaction import Budget, budget_of, estimate, plan, summary_text
from lodger_daemon.backends.core.reminders import MemoryUpdate, Surroundings, reminders_for
from lodger_daemon.backends.core.request_view import user_parts
from lodger_daemon.backends.core.system_prompt import PromptFacts, compile_system_prompt
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.backends.local.conversation import LocalConversation
from lodger_daemon.backends.local.summariser import summarise
from lodger_daemon.clock import Clock, MonoTime, WallTime
from lodger_daemon.identity import AgentId, ConversationKey, MessageId
from lodger_daemon.memory.contract import AgentMemory
from lodger_daemon.models.contract import (
    ModelFailure,
    ModelGateway,
    ModelInfo,
    ModelMessage,
    ModelRequest,
    SystemMessage,
    ToolSchema,
    UserMessage,
)
from lodger_daemon.randomness import Rng
from lodger_daemon.turns.contract import AgentRecord, ExternalTools
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.toolbox_contract import Toolbox, ToolDescription

DEFAULT_WINDOW_TOKENS: Final = 128_000
"""For a model nobody knows the window of."""

DESCRIPTION_HOLDS_S: Final = 60.0
"""How long what the gateway said of a model is taken as still true."""

PREPARE_AHEAD: Final = 0.98
"""Compact before a request that fills this much of its budget: the estimate is rough."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is true of the conversation as a request is built."""

    key: ConversationKey
    agent: AgentRecord
    handle: str
    system_prompt: str | None
    shown_memory_commit: str | None
    mode: Mode
    cwd: str
    tool_allowlist: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class BuiltRequest:
    """A request, and what becomes true once it is admitted."""

    request: ModelRequest
    user_message: TranscriptMessage | None
    """As it will be stored: with its reminders."""
    new_system_prompt: str | None
    toolset: tuple[str, ...]
    tools: dict[str, ToolDescription]
    memory_shown: bool
    memory_commit: str | None


@dataclass(frozen=True, slots=True)
class Compaction:
    """To be committed: the summary takes the place of everything but `kept`."""

    summary: TranscriptMessage
    kept: tuple[TranscriptMessage, ...]


class LocalBackend:
    """Reads; what it builds is committed by the caller."""

    def __init__(
        self,
        models: ModelGateway,
        memory: AgentMemory,
        toolbox: Toolbox,
        external: ExternalTools,
        memory_directory: Callable[[AgentId], str],
        machine_name: str,
        operating_system: str,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._models = models
        self._memory = memory
        self._toolbox = toolbox
        self._external = external
        self._memory_directory = memory_directory
        self._machine_name = machine_name
        self._operating_system = operating_system
        self._clock = clock
        self._rng = rng
        self._known_models: dict[str, tuple[MonoTime, ModelInfo | None]] = {}
        self._known_budget: tuple[object, Budget] | None = None

    async def build(
        self,
        standing: Standing,
        transcript: LocalConversation,
        user_message: TranscriptMessage | None,
        reminder: str | None = None,
    ) -> BuiltRequest:
        """One request.

        Args:
            user_message: what the person wrote, not yet in the transcript; gets its reminders here.
            reminder: said to the model in this request only.
        """
        prompt, memory_commit, memory_shown = standing.system_prompt, standing.shown_memory_commit, False
        if prompt is None:
            prompt, memory_commit = await self._compile(standing)
            memory_shown = True
        if user_message is not None:
            update = None if memory_shown else await self._memory_update(standing)
            if update is not None:
                memory_commit, memory_shown = update.commit, True
            user_message = self._remind(standing, transcript, user_message, update)
        tools = self.tools(standing)
        messages: list[ModelMessage] = [SystemMessage(prompt), *transcript.messages()]
        if user_message is not None:
            messages.append(UserMessage(user_parts(user_message)))
        if reminder is not None:
            messages.append(UserMessage(({"type": "text", "text": reminder},)))
        return BuiltRequest(
            request=ModelRequest(
                handle=standing.handle,
                messages=tuple(messages),
                tools=schemas_of(tools),
                cache_key=str(standing.key),
            ),
            user_message=user_message,
            new_system_prompt=prompt if prompt is not standing.system_prompt else None,
            toolset=tuple(tool.name for tool in tools),
            tools={tool.name: tool for tool in tools},
            memory_shown=memory_shown,
            memory_commit=memory_commit,
        )

    def tools(self, standing: Standing) -> tuple[ToolDescription, ...]:
        """The machine's own first, in their fixed order, then those of clients."""
        own = self._toolbox.tools(standing.tool_allowlist)
        allowed = standing.tool_allowlist
        brought = self._external.tools(standing.key)
        taken = {tool.name for tool in own}
        return (*own, *(t for t in brought if t.name not in taken and (allowed is None or t.name in allowed)))

    async def too_long(self, built: BuiltRequest, transcript: LocalConversation) -> bool:
        """Whether the request should be compacted before it is sent."""
        budget = await self._budget(built.request)
        waiting = estimate(built.user_message) if built.user_message is not None else 0
        return transcript.tokens + waiting > budget.messages * PREPARE_AHEAD

    async def compact(self, standing: Standing, transcript: LocalConversation) -> Compaction | None:
        """One summary call; None when nothing can be hidden, the model fails, or it would not get shorter."""
        request = ModelRequest(
            handle=standing.handle,
            messages=(SystemMessage(standing.system_prompt or ""),),
            tools=schemas_of(self.tools(standing)),
        )
        planned = plan(transcript.in_context, await self._budget(request))
        if planned is None:
            return None
        hidden = planned.hidden
        try:
            text = await summarise(self._models, standing.handle, hidden, f"{standing.key}/summary")
        except ModelFailure:
            return None
        content: JsonObject = {"text": summary_text(text, len(hidden)), "hidden": len(hidden)}
        summary = TranscriptMessage(
            MessageId(f"message-{self._rng.uuid()}"), MessageKind.SUMMARY, content, self._clock.wall()
        )
        if not text.strip() or estimate(summary) >= sum(estimate(message) for message in hidden):
            return None
        return Compaction(summary, planned.kept)

    async def _budget(self, request: ModelRequest) -> Budget:
        info = await self._describe(request.handle)
        first = request.messages[0]
        prompt = first.text if isinstance(first, SystemMessage) else ""
        known = (request.handle, len(prompt), tuple(tool.name for tool in request.tools))
        if self._known_budget is None or self._known_budget[0] != known:
            window = info.context_window if info is not None else DEFAULT_WINDOW_TOKENS
            most_output = info.max_output_tokens if info is not None else None
            self._known_budget = (known, budget_of(window, prompt, request.tools, most_output))
        return self._known_budget[1]

    async def _describe(self, handle: str) -> ModelInfo | None:
        now = self._clock.mono()
        known = self._known_models.get(handle)
        if known is None or now - known[0] > DESCRIPTION_HOLDS_S:
            known = self._known_models[handle] = (now, await self._models.describe(handle))
            self._known_budget = None
        return known[1]

    async def system_prompt(self, standing: Standing) -> tuple[str, str | None]:
        """As it would be made now, and the commit of memory in it."""
        return await self._compile(standing)

    async def _compile(self, standing: Standing) -> tuple[str, str | None]:
        compiled = await self._memory.compiled(standing.agent.id)
        facts = PromptFacts(
            agent_name=standing.agent.name,
            person_instructions=standing.agent.system,
            memory_folder=self._memory_directory(standing.agent.id),
            memory_text=compiled.text,
        )
        return compile_system_prompt(facts), compiled.commit

    async def _memory_update(self, standing: Standing) -> MemoryUpdate | None:
        if self._memory.status(standing.agent.id).head == standing.shown_memory_commit:
            return None
        head, summary = await self._memory.changed_since(standing.agent.id, standing.shown_memory_commit)
        return MemoryUpdate(head, summary) if head != standing.shown_memory_commit else None

    def _remind(
        self,
        standing: Standing,
        transcript: LocalConversation,
        message: TranscriptMessage,
        update: MemoryUpdate | None,
    ) -> TranscriptMessage:
        now = Surroundings(
            date=_day(self._clock.wall()),
            operating_system=self._operating_system,
            machine=self._machine_name,
            cwd=standing.cwd,
            agent_id=standing.agent.id,
            agent_name=standing.agent.name,
            memory_folder=self._memory_directory(standing.agent.id),
            mode=standing.mode,
            memory_states=self._memory.reminders(standing.agent.id),
        )
        reminders, shown = reminders_for(now, transcript.shown, update)
        content: JsonObject = {**message.content, "reminders": reminders, "shown": shown}
        return replace(message, content=content)


def schemas_of(tools: Sequence[ToolDescription]) -> tuple[ToolSchema, ...]:
    return tuple(ToolSchema(tool.name, tool.description, tool.parameters) for tool in tools)


def _day(now: WallTime) -> str:
    return datetime.fromtimestamp(now, UTC).astimezone().date().isoformat()
