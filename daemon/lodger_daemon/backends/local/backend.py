"""The local backend: this machine keeps the transcript, builds each request and compacts when it grows too long."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from lodger_daemon.backends.core.budget import Budget, Calibration, estimate, estimate_all
from lodger_daemon.backends.core.compaction import Options, Plan, plan, summary_text
from lodger_daemon.backends.core.images import holds_image, in_words, refuses_images
from lodger_daemon.backends.core.reminders import MemoryUpdate, Surroundings, reminders_for
from lodger_daemon.backends.core.request_view import user_parts
from lodger_daemon.backends.core.system_prompt import PromptFacts, compile_system_prompt
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, text_of
from lodger_daemon.backends.local.conversation import LocalConversation
from lodger_daemon.backends.local.model_windows import ModelWindows, too_large
from lodger_daemon.backends.local.summariser import Spent, Summariser
from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.identity import AgentId, ConversationKey, MessageId
from lodger_daemon.memory.contract import AgentMemory
from lodger_daemon.models.contract import (
    ModelFailure,
    ModelGateway,
    ModelMessage,
    ModelRequest,
    SystemMessage,
    ToolSchema,
    Usage,
    UserMessage,
)
from lodger_daemon.randomness import Rng
from lodger_daemon.turns.contract import AgentRecord, ExternalTools, PlaceFacts
from lodger_tools.catalogue.history_search import HISTORY_TOOL
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.toolbox_contract import Toolbox, ToolDescription

logger = logging.getLogger(__name__)

TOO_MANY_BYTES: Final = 413
"""HTTP's status for a body that a provider does not take."""

REMINDED_COMMAND_CHARS: Final = 100
"""Of each process in the background, which the model knows by its id."""

REMINDERS_TOKENS: Final = 300
"""What reminders add to a message that waits, when a compaction is planned before they are known."""


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
    estimated_tokens: int
    """Of the whole request, as `budget` estimates."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """To be committed: the summary takes the place of everything but `kept`."""

    summary: TranscriptMessage
    kept: tuple[TranscriptMessage, ...]


@dataclass(frozen=True, slots=True)
class NotCompacted:
    """Nothing changed; the reason is for the person."""

    reason: str


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
        places: PlaceFacts | None = None,
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
        self._places = places
        self._windows = ModelWindows(models, clock)
        self._without_images: set[str] = set()
        """Models that refused some; asked anew after a restart, for a server may have learned to see."""

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
        if standing.handle in self._without_images:
            messages = [in_words(message) for message in messages]
        if reminder is not None:
            messages.append(UserMessage(({"type": "text", "text": reminder},)))
        request = ModelRequest(
            handle=standing.handle, messages=tuple(messages), tools=schemas_of(tools), cache_key=str(standing.key)
        )
        waiting = estimate(user_message) if user_message is not None else 0
        estimated_tokens = self._windows.floor_of(request) + transcript.tokens + waiting
        request = await self._windows.with_answer_limit(request, estimated_tokens, _calibration(request, transcript))
        return BuiltRequest(
            request=request,
            user_message=user_message,
            new_system_prompt=prompt if prompt is not standing.system_prompt else None,
            toolset=tuple(tool.name for tool in tools),
            tools={tool.name: tool for tool in tools},
            memory_shown=memory_shown,
            memory_commit=memory_commit,
            estimated_tokens=estimated_tokens,
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
        budget = await self._windows.budget_of(built.request, _calibration(built.request, transcript))
        return budget.is_tight(built.estimated_tokens - budget.floor) and transcript.worth_compacting

    async def unsendable(self, built: BuiltRequest, transcript: LocalConversation) -> str | None:
        """Why this request leaves its answer no room, in words for the person; None when it may be sent.

        Asked after compaction. Whoever sends such a request gets an answer that is cut off after a token, for ever.
        """
        budget = await self._windows.budget_of(built.request, _calibration(built.request, transcript))
        messages = built.estimated_tokens - budget.floor
        if budget.can_be_sent(messages):
            return None
        return too_large(built.request.handle, budget, messages)

    async def compact(
        self,
        standing: Standing,
        transcript: LocalConversation,
        waiting: TranscriptMessage | None = None,
        options: Options | None = None,
        begins: Callable[[], None] = lambda: None,
        spent: Spent = lambda request, usage, characters: None,
    ) -> Compaction | NotCompacted:
        """At most one summary, and only if the conversation gets shorter by it.

        Args:
            waiting: the person's message that will follow.
            begins: called before the model is asked, which may take minutes.
            spent: told of every request to the model.
        """
        options = options or Options()
        budget = await self._standing_budget(standing, transcript)
        waiting_tokens = estimate(waiting) + REMINDERS_TOKENS if waiting is not None else None
        planned = plan(transcript.in_context, budget, waiting_tokens, options, transcript.elision)
        if planned is None:
            return NotCompacted("There is nothing to shorten in this conversation.")
        if planned.hidden:
            begins()
        try:
            summary = await self._summary(standing, planned, budget, options, spent)
        except ModelFailure as error:
            transcript.compaction_was_fruitless()
            return NotCompacted(f"The model could not summarise the conversation: {error.message}")
        before = estimate_all(transcript.in_context)
        if summary is None or estimate(summary) + estimate_all(planned.kept) >= before:
            transcript.compaction_was_fruitless()
            return NotCompacted("A summary of this conversation would be no shorter than what it stands for.")
        return Compaction(summary, planned.kept)

    async def _summary(
        self, standing: Standing, planned: Plan, budget: Budget, options: Options, spent: Spent
    ) -> TranscriptMessage | None:
        """The message that begins the conversation from now on. Raises: ModelFailure."""
        text = ""
        if planned.hidden:
            can_search = self._search_tool(standing) is not None
            summariser = Summariser(self._models, self._clock, self._rng, can_search, spent)
            cache_key = f"{standing.key}/summary"
            text = await summariser.summarise(standing.handle, planned.hidden, budget, options.instructions, cache_key)
            if not text.strip():
                return None
        content: JsonObject = {
            "text": summary_text(text, planned.hidden, self._search_tool(standing)),
            "hidden": len(planned.hidden),
            **planned.elision.as_content(),
        }
        message_id = MessageId(f"message-{self._rng.uuid()}")
        return TranscriptMessage(message_id, MessageKind.SUMMARY, content, self._clock.wall())

    def _search_tool(self, standing: Standing) -> str | None:
        return next((tool.name for tool in self.tools(standing) if tool.name == HISTORY_TOOL), None)

    def answered(self, built: BuiltRequest, transcript: LocalConversation, usage: Usage) -> None:
        """Learn from what the provider counted."""
        handle = built.request.handle
        known = transcript.calibration(handle)
        transcript.calibrate(handle, known.reported(built.estimated_tokens, usage.prompt))

    def refused_as_too_long(self, built: BuiltRequest, transcript: LocalConversation, failure: ModelFailure) -> None:
        """Learn from a refusal; the catalogue is asked again, since the answer may have told the true window."""
        handle = built.request.handle
        if failure.status == TOO_MANY_BYTES and any(map(holds_image, built.request.messages)):
            # The bytes of the images were too many: that says nothing about tokens.
            return
        transcript.calibrate(handle, transcript.calibration(handle).refused(built.estimated_tokens))
        self._windows.forget(handle)

    def refused_images(self, built: BuiltRequest, failure: ModelFailure) -> bool:
        """Whether this failure means that the model takes no images; from then on it gets words in their place."""
        if not refuses_images(built.request.messages, failure):
            return False
        logger.info("%s takes no images: %s", built.request.handle, failure.message)
        self._without_images.add(built.request.handle)
        return True

    async def _standing_budget(self, standing: Standing, transcript: LocalConversation) -> Budget:
        prompt = standing.system_prompt
        if prompt is None:
            prompt, _ = await self._compile(standing)
        floor = self._windows.floor(prompt, schemas_of(self.tools(standing)))
        return await self._windows.budget(standing.handle, floor, transcript.calibration(standing.handle))

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
            memory_layout=compiled.layout,
        )
        return compile_system_prompt(facts), compiled.standing

    async def _memory_update(self, standing: Standing) -> MemoryUpdate | None:
        if self._memory.standing(standing.agent.id) == standing.shown_memory_commit:
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
        agent_id, places = standing.agent.id, self._places
        git = places.git_context(agent_id, standing.cwd, _nobody_waits) if places is not None else None
        left = places.background_processes(standing.key, standing.cwd) if places is not None else ()
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
            toolset=tuple(tool.name for tool in self.tools(standing)),
            git_branch=(text_of(git, "branch") or None) if git is not None else None,
            background=tuple(map(_in_short, left)),
        )
        reminders, shown = reminders_for(now, transcript.shown, update)
        content: JsonObject = {**message.content, "reminders": reminders, "shown": shown}
        return replace(message, content=content)


def _calibration(request: ModelRequest, transcript: LocalConversation) -> Calibration:
    return transcript.calibration(request.handle)


def _in_short(process: JsonObject) -> str:
    command = " ".join(text_of(process, "command").split())[:REMINDED_COMMAND_CHARS]
    return f"{text_of(process, 'process_id')}: {command}"


def _nobody_waits() -> None:
    """The next message is reminded of what is found out meanwhile."""


def schemas_of(tools: Sequence[ToolDescription]) -> tuple[ToolSchema, ...]:
    return tuple(ToolSchema(tool.name, tool.description, tool.parameters) for tool in tools)


def _day(now: WallTime) -> str:
    return datetime.fromtimestamp(now, UTC).astimezone().date().isoformat()
