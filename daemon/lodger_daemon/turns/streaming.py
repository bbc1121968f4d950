"""One model step as it streams: shown, put together, and given up when it falls silent or has no end."""

import asyncio
from typing import Final, assert_never

from lodger_daemon.backends.core.step_assembly import AssembledCall
from lodger_daemon.models.contract import (
    FailureKind,
    FinishReason,
    ModelChunk,
    ModelFailure,
    ReasoningChunk,
    StepEnded,
    TextChunk,
    ToolCallChunk,
)
from lodger_daemon.store.errors import StoreError
from lodger_daemon.store.ownership import check_epoch
from lodger_daemon.turns.admitting import Admitting
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Batch, Call, CallProgress, Refused, Undecided
from lodger_daemon.turns.core.events import AssistantText, ReasoningText, StatusNote
from lodger_daemon.turns.core.states import Lease
from lodger_daemon.turns.desk import Desk, Step, TurnWork
from lodger_daemon.turns.step_work import assembled_calls, check_arguments
from lodger_tools.toolbox_contract import Scheduling

STEP_LIMIT_S: Final = 3600.0
"""Of a whole step, however much it says: no answer is worth reading that takes longer."""

STEP_LIMIT_CHARACTERS: Final = 4 * 1024 * 1024
"""Of text, reasoning and arguments of one step; beyond what any model answers."""

END_LIMIT_S: Final = 2.0
"""For the stream to close after its end was told; the peer's figure."""

ENDLESS: Final = "The model's answer had no end: what it said up to here is kept, the rest was cut off."
IMAGES_REFUSED: Final = "This model takes no images. It is asked again with words in their place."
CUT_CALL: Final = (
    "This call was cut off at the output token limit before its arguments were complete, so it did not run. "
    "Call again with less text, or in several smaller calls."
)
NAMELESS_CALL: Final = "This call names no tool, so nothing ran."
NO_SUCH_TOOL: Final = "There is no tool named {name} here, so nothing ran. Your tools are: {tools}."


async def run(desk: Desk, action: do.RunStep) -> None:
    """Stream one step; its end is told once, after the stream is closed."""
    lease = action.lease
    work = desk.work_of(lease)
    step = work.step
    assert step is not None
    failure: ModelFailure | None = None
    admitting = Admitting(desk, lease, work, step)
    _check_owner(desk)
    try:
        await _stream(desk, lease, step, admitting)
    except ModelFailure as error:
        failure = error
        if error.kind is FailureKind.CONTEXT_OVERFLOW:
            desk.backend.refused_as_too_long(step.built, desk.live.transcript, error)
    except TimeoutError:
        # An end that was told is an end, whether the stream closes or not.
        if step.assembly.finish is None:
            failure = ModelFailure(FailureKind.TIMEOUT, "The model said nothing for too long.")
    desk.work_of(lease)
    if failure is not None and desk.backend.refused_images(step.built, failure):
        failure = ModelFailure(FailureKind.SERVER, IMAGES_REFUSED, status=failure.status, retry_after_s=0.0)
    if failure is None and step.assembly.finish is None:
        failure = ModelFailure(FailureKind.CUT_SHORT, "The model's answer broke off.")
    # A run with calls is written down with the step's end, before any of its calls is shown.
    if admitting.owed and (failure is not None or not assembled_calls(step)):
        await admitting.now()
        desk.work_of(lease)
    desk.feed(_failed(desk, lease, step, failure) if failure is not None else _completed(desk, lease, work, step))


def _check_owner(desk: Desk) -> None:
    """A daemon that was replaced while it slept asks no model any more. Raises: OwnershipLost.

    Its first write would be refused anyhow; this spares the person the cost of a request.
    """
    database = desk.services.database
    try:
        database.read_now(lambda connection: check_epoch(connection, database.epoch))
    except StoreError as error:
        if not error.retryable:
            raise


async def _stream(desk: Desk, lease: Lease, step: Step, admitting: Admitting) -> None:
    """Returns once the stream is closed for real, also when it is cancelled. Raises: ModelFailure, TimeoutError."""
    stream = desk.services.models.stream(step.built.request)
    loop = asyncio.get_running_loop()
    limit_s, ends_at = desk.services.options.silence_limit_s, loop.time() + STEP_LIMIT_S
    try:
        async with asyncio.timeout(limit_s) as silence:
            async for chunk in stream:
                if not step.admitted and _is_shown(chunk):
                    # How long the disk takes says nothing about the model.
                    silence.reschedule(None)
                    await admitting.now()
                    desk.work_of(lease)
                elif not step.admitted:
                    admitting.soon()
                _take(desk, step, chunk)
                if step.characters > STEP_LIMIT_CHARACTERS or loop.time() > ends_at:
                    desk.publish(StatusNote(ENDLESS, "warning", step.run_id))
                    step.assembly.finish = FinishReason.LENGTH
                    break
                # What carries nothing is a sign of life of the connection, not of the model.
                if step.assembly.finish is not None:
                    silence.reschedule(loop.time() + END_LIMIT_S)
                elif _says_something(chunk) or silence.when() is None:
                    silence.reschedule(loop.time() + limit_s)
    finally:
        close = getattr(stream, "aclose", None)
        try:
            if close is not None:
                await close()
        finally:
            await admitting.rest()


def _is_shown(chunk: ModelChunk) -> bool:
    """Whether clients see it as it comes."""
    match chunk:
        case TextChunk():
            return True
        case ReasoningChunk(text):
            return bool(text)
        case ToolCallChunk() | StepEnded():
            return False
        case _:
            assert_never(chunk)


def _says_something(chunk: ModelChunk) -> bool:
    match chunk:
        case TextChunk(text) | ReasoningChunk(text):
            return bool(text)
        case ToolCallChunk(arguments_fragment=fragment, name=name):
            return bool(fragment or name)
        case StepEnded():
            return True
        case _:
            assert_never(chunk)


def _take(desk: Desk, step: Step, chunk: ModelChunk) -> None:
    assembly = step.assembly
    match chunk:
        case TextChunk(text):
            assembly.texts.append(text)
            step.characters += len(text)
            desk.publish(AssistantText(step.run_id, step.message_id, step.otid, text))
        case ReasoningChunk(text, signature):
            assembly.signature = signature or assembly.signature
            if text:
                assembly.reasonings.append(text)
                step.characters += len(text)
                desk.publish(ReasoningText(step.run_id, step.reasoning_message_id, step.reasoning_otid, text))
        case ToolCallChunk():
            assembly.add_call_fragment(chunk)
            step.characters += len(chunk.arguments_fragment)
        case StepEnded(finish, usage):
            assembly.finish = finish
            assembly.usage = usage
            desk.backend.answered(step.built, desk.live.transcript, usage)
        case _:
            assert_never(chunk)


def _failed(desk: Desk, lease: Lease, step: Step, failure: ModelFailure) -> told.StepFailed:
    return told.StepFailed(
        lease=lease,
        run_id=step.run_id,
        kind=failure.kind,
        message=failure.message,
        status=failure.status,
        retry_after_s=failure.retry_after_s,
        jitter=desk.services.rng.random(),
    )


def _completed(desk: Desk, lease: Lease, work: TurnWork, step: Step) -> told.StepCompleted:
    assembly = step.assembly
    assert assembly.finish is not None
    assembled = assembled_calls(step)
    calls = tuple(_call(desk, step, call) for call in assembled)
    return told.StepCompleted(
        lease=lease,
        run_id=step.run_id,
        finish=assembly.finish,
        batch=Batch(step.run_id, step.calls_message_id, calls) if calls else None,
        empty=not calls and not assembly.text.strip(),
        jitter=desk.services.rng.random(),
    )


def _call(desk: Desk, step: Step, call: AssembledCall) -> Call:
    tool = step.built.tools.get(call.name)
    checked = _refusal(step, call) or check_arguments(desk, call.name, call.arguments_json)
    fault = checked if isinstance(checked, str) else None
    progress: CallProgress = Refused(fault) if fault is not None else Undecided()
    return Call(
        tool_call_id=call.tool_call_id,
        tool_name=call.name,
        arguments_json=call.arguments_json,
        arguments=checked if isinstance(checked, dict) else None,
        scheduling=tool.scheduling if tool is not None else Scheduling.BARRIER,
        progress=progress,
    )


def _refusal(step: Step, call: AssembledCall) -> str | None:
    if not call.name:
        return NAMELESS_CALL
    if call.cut:
        return CUT_CALL
    if call.name not in step.built.tools:
        return NO_SUCH_TOOL.format(name=call.name, tools=", ".join(step.built.tools) or "none")
    return None
