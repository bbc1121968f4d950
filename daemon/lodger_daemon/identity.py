"""The identifiers that cross room borders.

An identifier is an opaque string. `NewType`s keep one kind from being passed as another.
"""

from dataclasses import dataclass
from typing import Final, NewType

AgentId = NewType("AgentId", str)
"""`agent-<uuid>`; the same on every machine. Must match `agent-[A-Za-z0-9-]+` and not begin with `agent-local-`,
which makes the peer's command line switch backends (CONTROL-PLANE-REST.md section 2)."""

ConversationId = NewType("ConversationId", str)
"""`conv-<uuid>`, or `default`, which names a different conversation for each agent."""

TurnId = NewType("TurnId", str)
"""`turn-<uuid>`."""

RunId = NewType("RunId", str)
"""`run-<uuid>`: one model step. Never reused, unlike the peer's `local-run-N`."""

ToolCallId = NewType("ToolCallId", str)
"""Chosen by the model. Unique within one run only: the journal's key is (conversation, run, call)."""

MessageId = NewType("MessageId", str)
"""`message-<uuid>`: one row of a transcript."""

ClientMessageId = NewType("ClientMessageId", str)
"""Chosen by the client; unique for ever within a conversation, which is what de-duplicates resent input."""

QueueItemId = NewType("QueueItemId", str)
QuestionId = NewType("QuestionId", str)
"""On the wire `perm-<tool call id>`; unique among the pending questions of one conversation."""

ConnectionId = NewType("ConnectionId", str)
"""One client's socket, for as long as it is open."""

DEFAULT_CONVERSATION: Final = ConversationId("default")


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """What names a conversation everywhere: its agent and its id."""

    agent_id: AgentId
    conversation_id: ConversationId

    def __str__(self) -> str:
        return f"{self.agent_id}/{self.conversation_id}"


@dataclass(frozen=True, slots=True)
class CallKey:
    """What names a tool call for ever, across restarts and repeated ids of a model."""

    conversation: ConversationKey
    run_id: RunId
    tool_call_id: ToolCallId

    def __str__(self) -> str:
        return f"{self.conversation}/{self.run_id}/{self.tool_call_id}"
