"""Commands that rooms beyond this one answer: memory files, and folders of the machine."""

from typing import Final

from lodger_daemon.clients.connection import ClientConnection
from lodger_daemon.turns.contract import ConversationError
from lodger_protocol.memory_commands import MemoryCommand
from lodger_protocol.place_commands import PlaceCommand

NOT_SERVED: Final = "This Lodger does not serve this command."


async def answer_memory(connection: ClientConnection, command: MemoryCommand) -> None:
    """Raises: ConversationError with words for the person; the caller makes the failed response of it."""
    memory = connection.services.memory
    if memory is None:
        raise ConversationError(f"{NOT_SERVED} ({command.type})")
    async for frame in memory.answer(command):
        await connection.room()
        connection.respond(frame)


async def answer_place(connection: ClientConnection, command: PlaceCommand) -> None:
    """As `answer_memory`."""
    places = connection.services.places
    if places is None:
        raise ConversationError(f"{NOT_SERVED} ({command.type})")
    payload = await places.answer(command)
    named = {} if command.request_id is None else {"request_id": command.request_id}
    await connection.respond_large({"type": f"{command.type}_response", **named, "success": True, **payload})
