"""What clients, schedules and the command line may ask of conversations.

`ConversationService` is implemented in this room; `clients/` and `uplink/` drive it. Nobody else owns a turn loop.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ClientMessageId, ConversationKey, QuestionId, QueueItemId, RunId
from lodger_daemon.turns.core.events import LoopStatusChanged, NumberedEvent, QuestionAsked, QueuedItem
from lodger_tools.json_value import Json, JsonObject
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.toolbox_contract import ToolDescription, ToolOutcome


@dataclass(frozen=True, slots=True)
class InputMessage:
    """One message of a person: text, or parts as on the wire (`{"type": "text", …}` and images)."""

    client_message_id: ClientMessageId
    content: Json
    otid: str


@dataclass(frozen=True, slots=True)
class Submission:
    """One `input`/`create_message`: what becomes one inbox row."""

    messages: tuple[InputMessage, ...]
    can_answer_questions: bool = True
    """False for a client that cannot show a question: its turn's questions are denied at once, and say so."""
    tool_allowlist: tuple[str, ...] | None = None
    """None = every tool; empty = none."""
    delivery: Literal["tool_boundary", "turn_end"] = "tool_boundary"
    connection_group: str = ""
    """Messages coalesce only within one group (BEHAVIOUR.md A13)."""
    sender: str = ""
    """The hub's id of the device it came from: what waits of it is dropped when that device is revoked."""
    ask_together: bool = False
    """For a client that can show several questions at once: all of a step are open together."""
    max_steps: int | None = None
    """Model steps the turn may take at most; the machine's own limit holds all the same."""
    offer_questions: bool = True
    """Whether the model is offered the tool by which it asks the person something of its own."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The row is committed. `resent` when this client message id was accepted before and nothing was added."""

    disposition: Literal["started", "queued"]
    resent: bool = False


@dataclass(frozen=True, slots=True)
class SendersDropped:
    """What became of what revoked devices had sent."""

    removed: int
    """Messages that waited."""
    stopped: int
    """Turns."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was stored; the reason is for the person."""

    reason: str


Receipt: TypeAlias = Accepted | Refused


@dataclass(frozen=True, slots=True)
class Allow:
    message: str = ""
    updated_input: JsonObject | None = None
    suggestion_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deny:
    message: str


Answer: TypeAlias = Allow | Deny


@dataclass(frozen=True, slots=True)
class ConversationSnapshot:
    """Everything a client that just arrived is shown."""

    key: ConversationKey
    loop: LoopStatusChanged
    processing: bool
    queue: tuple[QueuedItem, ...]
    questions: tuple[QuestionAsked, ...]
    mode: Mode
    cwd: str
    cwd_revision: int
    toolset: tuple[str, ...]
    """Names of the tools of the latest turn; empty before the first."""
    last_event_number: int


@dataclass(frozen=True, slots=True)
class AgentRecord:
    id: AgentId
    name: str
    description: str
    model: str
    """A model handle such as `openai/gpt-5`, or `practice/practice`."""
    system: str
    tags: tuple[str, ...]
    created_at: WallTime
    updated_at: WallTime
    hidden: bool = False
    last_run_completion: WallTime | None = None


@dataclass(frozen=True, slots=True)
class ConversationRecord:
    key: ConversationKey
    created_at: WallTime
    updated_at: WallTime
    last_message_at: WallTime | None
    summary: str | None
    tags: tuple[str, ...]
    archived_at: WallTime | None
    model: str | None
    """Overrides the agent's model in this conversation."""
    in_context_message_ids: tuple[str, ...] = ()
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class NewAgent:
    name: str = "Lodger"
    description: str = ""
    model: str | None = None
    """None = the machine's default model."""
    system: str = ""
    tags: tuple[str, ...] = ()
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class StartRuntime:
    """Open or create; exactly one of `agent_id` and `new_agent`."""

    agent_id: AgentId | None = None
    new_agent: NewAgent | None = None
    conversation_id: str | None = None
    """`default`, an id, or None: then a new conversation is made."""
    mode: Mode | None = None
    cwd: str | None = None
    reset_cwd: bool = False
    conversation_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartedRuntime:
    key: ConversationKey
    agent: AgentRecord
    conversation: ConversationRecord
    agent_created: bool
    conversation_created: bool


@dataclass(frozen=True, slots=True)
class Folders:
    """Where conversations of this machine work."""

    workspace: str
    """The machine's own default."""
    boot: str
    """In use for conversations that have none of their own."""
    boot_revision: int
    """Grows with each choice of a boot folder."""
    own: Mapping[ConversationKey, str]
    """Conversations that have one of their own, last used first; some thousand at most."""


class ConversationError(Exception):
    """A request that cannot be done; its text is for the person. Nothing was changed."""


EventSink: TypeAlias = Callable[[NumberedEvent], None]
"""Called on the event loop for each new event, in order; must not block or raise."""


class ConversationService(Protocol):
    """The one door to conversations."""

    async def start_runtime(self, request: StartRuntime) -> StartedRuntime:
        """Raises: ConversationError naming what was not found or cannot be used."""
        ...

    async def submit(self, key: ConversationKey, submission: Submission) -> Receipt:
        """Store one input. On return of `Accepted` it survives any crash, and will be answered once."""
        ...

    async def answer(self, key: ConversationKey, question_id: QuestionId, answer: Answer, by: str = "client") -> bool:
        """Settle a pending question; False when it is no longer pending. One effect however often it is called.

        Args:
            by: the name of the client a person answered from, for the audit log.
        """
        ...

    async def abort(self, key: ConversationKey, run_id: RunId | None = None) -> bool:
        """Interrupt the turn; False when none runs. Returns before its tools have died."""
        ...

    async def remove_queued(self, key: ConversationKey, item_id: QueueItemId) -> bool: ...

    async def drop_senders(self, device_ids: Sequence[str]) -> SendersDropped:
        """Devices were revoked: nothing of theirs is begun any more, and turns they began or steered are stopped."""
        ...

    async def resume_queue(self, key: ConversationKey) -> int:
        """Release items that an abort parked; returns how many."""
        ...

    async def change_state(self, key: ConversationKey, mode: Mode | None, cwd: str | None) -> None:
        """Raises: ConversationError for a folder that is not one or a mode above the machine's ceiling."""
        ...

    async def compact(self, key: ConversationKey, wishes: JsonObject | None = None) -> JsonObject:
        """Replace the older part of a conversation by a summary, now.

        `compacted` true with `num_messages_before`, `num_messages_after` and `summary`, or false with a `reason`.
        Args:
            wishes: `mode` (`sliding_window` or `all`), `sliding_window_percentage` (the share to hide first, above 0
                and below 1), `prompt` (what the summary should look at); also inside `compaction_settings`.
        Raises: ConversationError, also for wishes that mean nothing.
        """
        ...

    async def snapshot(self, key: ConversationKey, *, with_queue: bool = True) -> ConversationSnapshot:
        """Also for a pair nobody has used: that is idle and empty.

        Args:
            with_queue: the queue is read from the disk; without it, it is left empty.
        """
        ...

    def subscribe(self, key: ConversationKey, sink: EventSink) -> Callable[[], None]:
        """Deliver every event from now on; returns the function that ends it."""
        ...

    async def events_after(self, key: ConversationKey, number: int, limit: int = 1000) -> tuple[NumberedEvent, ...]:
        """Stored events with a greater number, oldest first: a returning client resumes from its cursor."""
        ...

    async def resume_point(self, key: ConversationKey, number: int) -> int:
        """The number itself where a client that has seen events up to it can go on without a gap.

        Else the number after which it can: what happened up to there is no longer kept as events, or never bore such
        a number, and must be read from the transcript.
        """
        ...

    async def list_agents(self) -> tuple[AgentRecord, ...]: ...

    async def get_agent(self, agent_id: AgentId) -> AgentRecord | None: ...

    async def create_agent(self, agent: NewAgent) -> AgentRecord: ...

    async def update_agent(self, agent_id: AgentId, changes: JsonObject) -> AgentRecord: ...

    async def delete_agent(self, agent_id: AgentId) -> None:
        """Gone for every client from then on. Its memory and what was said stay on disk.

        Raises: ConversationError for an agent that is not there, is at work or has messages waiting.
        """
        ...

    async def list_conversations(
        self, agent_id: AgentId | None, limit: int = 50, hidden: bool = True
    ) -> tuple[ConversationRecord, ...]:
        """Last used first; hidden ones only if they are wanted too."""
        ...

    async def get_conversation(self, key: ConversationKey) -> ConversationRecord | None: ...

    async def find_conversation(self, conversation_id: str) -> ConversationRecord | None:
        """By its id alone; `default` names none."""
        ...

    async def create_conversation(self, agent_id: AgentId, changes: JsonObject) -> ConversationRecord:
        """A new conversation of an agent, described by `changes` (`summary`, `tags`, `archived`, `hidden`, `model`).

        Raises: ConversationError.
        """
        ...

    async def update_conversation(self, key: ConversationKey, changes: JsonObject) -> ConversationRecord:
        """Raises: ConversationError."""
        ...

    async def fork_conversation(
        self, key: ConversationKey, last_message_id: str | None = None, hidden: bool = False
    ) -> ConversationKey:
        """A new conversation that begins with this one's transcript, to its end or up to that message.

        Raises: ConversationError.
        """
        ...

    async def recompile(self, key: ConversationKey) -> str:
        """Make the system prompt anew, from memory as it is now; the next request has it. Returns it."""
        ...

    async def folders(self) -> Folders: ...

    async def set_boot_folder(self, folder: str) -> Folders:
        """Where conversations work for which nobody chose a folder; kept over restarts.

        Raises: ConversationError for a folder that is not one.
        """
        ...

    async def set_model(self, key: ConversationKey, handle: str) -> Literal["agent", "conversation"]: ...

    async def list_messages(
        self,
        key: ConversationKey,
        limit: int = 50,
        descending: bool = True,
        before: str | None = None,
        after: str | None = None,
    ) -> tuple[JsonObject, ...]:
        """The transcript as stored messages of the wire (PROTOCOL.md 4.8)."""
        ...


class PlaceFacts(Protocol):
    """What goes on in the folder of a conversation; answers at once, from what is known."""

    def git_context(self, agent_id: AgentId, folder: str, changed: Callable[[], None]) -> JsonObject | None:
        """`branch` among others; None while nothing is known. `changed` is called once when that is out of date."""
        ...

    def background_processes(self, key: ConversationKey, folder: str) -> tuple[JsonObject, ...]:
        """The conversation's background tasks, and what commands of its agent left running in that folder: `command`
        among others."""
        ...


class ExternalTools(Protocol):
    """Tools that clients bring along; implemented in `clients/`, called by the turn machine."""

    def tools(self, key: ConversationKey) -> tuple[ToolDescription, ...]: ...

    async def call(self, key: ConversationKey, tool_call_id: str, name: str, arguments: JsonObject) -> ToolOutcome:
        """Ask the connection that registered the tool; an error outcome when it is gone, answers with an error or
        stays silent for 5 minutes."""
        ...
