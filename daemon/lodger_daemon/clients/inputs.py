"""`input` in its kinds, the legacy message, abort and the queue: what moves a turn."""

from dataclasses import dataclass, replace

from lodger_daemon.backends.core.images import without_faulty
from lodger_daemon.clients.connection import ClientConnection
from lodger_daemon.clients.core.bodies import runtime_of
from lodger_daemon.clients.core.deltas import local_delta
from lodger_daemon.clients.core.rendering import queue_changed
from lodger_daemon.clients.opening import key_of
from lodger_daemon.identity import (
    DEFAULT_CONVERSATION,
    AgentId,
    ClientMessageId,
    ConversationId,
    ConversationKey,
    QuestionId,
    QueueItemId,
    RunId,
)
from lodger_daemon.randomness import Rng
from lodger_daemon.turns.contract import Accepted, Allow, Answer, Deny, InputMessage, Receipt, Refused, Submission
from lodger_daemon.turns.core.events import LoopStatus, LoopStatusChanged, NumberedEvent, QueueChanged
from lodger_protocol.commands import (
    AbortMessage,
    AllowDecision,
    ApprovalResponse,
    CreateMessage,
    DenyDecision,
    Input,
    LegacyMessage,
    RemoveQueueItem,
    ResumeQueue,
)
from lodger_protocol.fields import JsonMap
from lodger_protocol.parsing import Malformed
from lodger_tools.json_value import JsonObject


@dataclass(frozen=True, slots=True)
class _Violation:
    """A payload that breaks the protocol: shown as an error of the conversation, and refused."""

    shown: str
    refusal: str


async def take_input(connection: ClientConnection, command: Input) -> None:
    key = key_of(command.runtime)
    connection.watch(key)
    match command.payload:
        case CreateMessage() as payload:
            messages = _messages(connection.services.rng, payload.messages)
            if isinstance(messages, _Violation):
                show_loop_error(connection, key, messages.shown)
                _accepted(connection, command, Refused(messages.refusal))
                return
            if payload.image_failure_mode == "drop":
                messages = tuple(replace(one, content=without_faulty(one.content)) for one in messages)
            submission = Submission(
                messages=messages,
                can_answer_questions=connection.capabilities.questions,
                tool_allowlist=_allowlist(payload.client_tool_allowlist),
                delivery=payload.delivery or "tool_boundary",
                ask_together=connection.capabilities.batch_questions,
                max_steps=payload.max_steps,
                offer_questions=not payload.exclude_interactive_tools,
                sender=connection.traits.device_id,
                connection_group=f"{connection.traits.id}:{payload.image_failure_mode or 'strict'}",
            )
            _accepted(connection, command, await connection.services.conversations.submit(key, submission))
        case ApprovalResponse() as payload:
            await _answer(connection, command, key, payload)


async def take_legacy_message(connection: ClientConnection, command: LegacyMessage) -> None:
    key = legacy_key(command)
    connection.watch(key)
    messages = _messages(connection.services.rng, command.messages)
    if isinstance(messages, _Violation):
        show_loop_error(connection, key, messages.shown)
        return
    submission = Submission(
        messages=messages,
        can_answer_questions=connection.capabilities.questions,
        ask_together=connection.capabilities.batch_questions,
        tool_allowlist=_allowlist(command.client_tool_allowlist),
        sender=connection.traits.device_id,
        connection_group=f"{connection.traits.id}:strict",
    )
    receipt = await connection.services.conversations.submit(key, submission)
    if isinstance(receipt, Refused):
        # This shape has no acknowledgement, so a refusal would otherwise be silent.
        show_loop_error(connection, key, receipt.reason)


def legacy_key(command: LegacyMessage) -> ConversationKey:
    conversation = command.camel_conversation_id or command.conversation_id or DEFAULT_CONVERSATION
    return ConversationKey(AgentId(command.agent_id), ConversationId(conversation))


def refuse_malformed_input(connection: ClientConnection, key: ConversationKey, malformed: Malformed) -> None:
    """A bad payload with a valid scope: an error in the conversation and no acknowledgement (PROTOCOL.md 3.2)."""
    connection.watch(key)
    show_loop_error(connection, key, _violation_text(malformed))


def show_loop_error(connection: ClientConnection, key: ConversationKey, message: str) -> None:
    """Tell this client that its command could not be done, where the protocol has no response for it."""
    fields: JsonObject = {"message": message, "stop_reason": "error", "is_terminal": False}
    services = connection.services
    connection.show(local_delta(key, "loop_error", services.clock.wall(), services.rng.uuid(), fields))


async def abort(connection: ClientConnection, command: AbortMessage) -> None:
    key = key_of(command.runtime)
    connection.watch(key)
    run_id = None if command.run_id is None else RunId(command.run_id)
    aborted = await connection.services.conversations.abort(key, run_id)
    if command.request_id is not None:
        response: JsonObject = {
            "type": "abort_message_response",
            "request_id": command.request_id,
            "runtime": runtime_of(key),
            "aborted": aborted,
            "success": True,
        }
        connection.respond(response)


async def remove_queue_item(connection: ClientConnection, command: RemoveQueueItem) -> None:
    key = key_of(command.runtime)
    conversations = connection.services.conversations
    # The response comes before the snapshots that the removal causes (PROTOCOL.md 4.1).
    async with connection.holding(key):
        removed = await conversations.remove_queued(key, QueueItemId(command.item_id))
        response: JsonObject = {
            "type": "remove_queue_item_response",
            "request_id": command.request_id,
            "success": removed,
            "item_id": command.item_id,
        }
        connection.respond(response)
        snapshot = await conversations.snapshot(key)
        # The transition, which everybody is told, is held back until after this.
        connection.show(queue_changed(key, QueueChanged(snapshot.queue)))


async def resume_queue(connection: ClientConnection, command: ResumeQueue) -> None:
    key = key_of(command.runtime)
    connection.watch(key)
    resumed = await connection.services.conversations.resume_queue(key)
    if command.request_id is not None:
        response: JsonObject = {
            "type": "resume_queue_response",
            "request_id": command.request_id,
            "runtime": runtime_of(key),
            "resumed": resumed,
            "success": True,
        }
        connection.respond(response)


async def _answer(
    connection: ClientConnection, command: Input, key: ConversationKey, payload: ApprovalResponse
) -> None:
    answer = _decision(payload)
    if answer is None:
        show_loop_error(connection, key, _APPROVAL_RULE)
        return
    async with connection.holding(key) as held:
        settled = await connection.services.conversations.answer(
            key, QuestionId(payload.request_id), answer, connection.client_name
        )
        # That the question is gone is shown before the acknowledgement, what comes of it after (PROTOCOL.md 6.1).
        lead = next((place for place, event in enumerate(held) if _goes_on(event)), len(held))
        for event in held[:lead]:
            connection.replay(event)
        del held[:lead]
        if command.request_id is None:
            return
        response: JsonObject = {
            "type": "input_accepted",
            "request_id": command.request_id,
            "runtime": runtime_of(key),
            "accepted": settled,
        }
        if not settled:
            response["error"] = "Approval request is no longer pending"
        connection.respond(response)


def _goes_on(numbered: NumberedEvent) -> bool:
    event = numbered.event
    return isinstance(event, LoopStatusChanged) and event.status is not LoopStatus.WAITING_ON_APPROVAL


def _decision(payload: ApprovalResponse) -> Answer | None:
    match payload.decision:
        case AllowDecision() as allow:
            suggestions = tuple(allow.selected_permission_suggestion_ids or ())
            updated: JsonObject | None = None if allow.updated_input is None else {**allow.updated_input}
            return Allow(allow.message or "", updated, suggestions)
        case DenyDecision() as deny:
            return Deny(deny.message)
        case None:
            return None if payload.error is None else Deny(payload.error)


def _accepted(connection: ClientConnection, command: Input, receipt: Receipt) -> None:
    if command.request_id is None:
        return
    response: JsonObject = {
        "type": "input_accepted",
        "request_id": command.request_id,
        "runtime": runtime_of(key_of(command.runtime)),
        "accepted": isinstance(receipt, Accepted),
    }
    match receipt:
        case Accepted(disposition):
            response["disposition"] = disposition
        case Refused(reason):
            response["error"] = reason
    connection.respond(response)


def _messages(rng: Rng, wanted: list[JsonMap]) -> tuple[InputMessage, ...] | _Violation:
    if any(message.get("type") == "approval" for message in wanted):
        return _Violation(
            "Protocol violation: approval payloads are not allowed in input.kind=create_message. "
            "Use input.kind=approval_response.",
            "Approval payloads require approval_response",
        )
    messages: list[InputMessage] = []
    for message in wanted:
        content = message.get("content")
        if not isinstance(content, str | list):
            continue
        client_id = _text(message, "client_message_id") or f"cm-{rng.uuid()}"
        otid = _text(message, "otid") or _text(message, "client_message_id") or rng.uuid()
        messages.append(InputMessage(ClientMessageId(client_id), content, otid))
    return tuple(messages)


def _allowlist(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


_APPROVAL_RULE = (
    "Protocol violation: input.kind=approval_response requires payload.request_id and either payload.decision or "
    "payload.error"
)


def _violation_text(malformed: Malformed) -> str:
    payload = malformed.raw.get("payload")
    kind = payload.get("kind") if isinstance(payload, dict) else None
    match kind:
        case "create_message" if isinstance(payload, dict) and not isinstance(payload.get("messages"), list):
            return "Protocol violation: input.kind=create_message requires payload.messages[]"
        case "approval_response":
            return _APPROVAL_RULE
        case "create_message":
            return f"Protocol violation: {malformed.reason}"
        case str():
            return f"Unsupported input payload kind: {kind}"
        case _:
            return "Protocol violation: input requires payload.kind"


def _text(message: JsonMap, name: str) -> str:
    value = message.get(name)
    return value if isinstance(value, str) else ""
