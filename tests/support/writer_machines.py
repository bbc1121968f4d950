"""A machine whose agent has background writers: as `memory_machines`, with a database."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import ConversationId, ConversationKey, MessageId
from lodger_daemon.memory.core.writers import Writer, WriterId, WriterKind
from lodger_daemon.memory.remote import Remote
from lodger_daemon.memory.seams import no_seam
from lodger_daemon.memory.work_trees import WorkTrees
from lodger_daemon.memory.writer_steps import WriterServices
from lodger_daemon.memory.writers import OpenWriter, Writers
from lodger_daemon.randomness import SystemRng
from lodger_daemon.store import conversation_rows, memory_writer_rows, message_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.message_rows import MessageKind, NewMessage
from lodger_daemon.system_clock import SystemClock
from support.memory_machines import AGENT, CARD, Machine
from support.plain_boxes import agent_git

TALK = ConversationKey(AGENT, ConversationId("default"))


@dataclass(slots=True)
class WriterMachine:
    machine: Machine
    database: Database
    writers: Writers

    async def open(self, kind: WriterKind = WriterKind.REFLECTION, **options) -> OpenWriter:
        return await self.writers.open(AGENT, kind, **options)

    async def record(self, writer_id: WriterId) -> Writer:
        found = await self.database.read(lambda connection: memory_writer_rows.get(connection, writer_id))
        assert found is not None
        return found

    async def mark(self, kind: WriterKind = WriterKind.REFLECTION) -> int:
        return await self.database.read(lambda connection: memory_writer_rows.mark(connection, AGENT, kind))

    async def say(self, *texts: str) -> None:
        await say(self.database, *texts)

    def refs(self) -> list[str]:
        """Those that writers left in published."""
        listed = self.machine.published.git.line("for-each-ref", "--format=%(refname)", "refs/lodger")
        places = tuple(f"refs/lodger/{kind}/" for kind in ("writers", "merged", "bases"))
        return [ref for ref in listed.split() if ref.startswith(places)]

    def folders(self) -> list[str]:
        return [name for _, name in WorkTrees(self.machine.paths.agents).writers()]


def write_in(opened: OpenWriter, name: str, text: str, message: str | None = "a reflection") -> str:
    """What a writer does in its tree; None leaves it uncommitted."""
    path = Path(opened.tree) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if message is not None:
        agent_git(opened.tree, "add", "-A")
        agent_git(opened.tree, "commit", "-q", "-m", message)
    return agent_git(opened.tree, "rev-parse", "HEAD")


def make_writers(machine: Machine, database: Database, seam: Callable[[str], None] = no_seam) -> Writers:
    trees = WorkTrees(machine.paths.agents)
    services = WriterServices(database, machine.memory, machine.boxes, trees, SystemClock(), SystemRng(), seam)
    return Writers(services, reads_inside="/home/person/transcript")


async def at_rest(writers: Writers, limit_s: float = 100.0) -> None:
    """Wait until nothing is under way; what met a fault that passes is tried again after a minute."""
    async with asyncio.timeout(limit_s):
        while writers._tasks:
            await asyncio.wait(set(writers._tasks))


def open_database(machine: Machine) -> Database:
    return Database.open(machine.paths.database, clock=SystemClock())


async def say(database: Database, *texts: str) -> None:
    """Messages of the agent's conversation."""

    def write(connection: sqlite3.Connection) -> None:
        for text in texts:
            new = NewMessage(MessageId(f"message-{text}"), MessageKind.USER, {"text": text}, WallTime(1.0))
            message_rows.append(connection, TALK, new)

    await database.write(write)


async def make_conversation(database: Database) -> None:
    """So that messages have a place; again it does nothing."""
    await database.write(lambda connection: conversation_rows.ensure(connection, TALK, WallTime(1.0)))


@asynccontextmanager
async def writer_machine(
    folder: Path, remote: Remote | None = None, *, founded: bool = True
) -> AsyncIterator[WriterMachine]:
    machine = Machine(folder, None, remote=remote)
    database = open_database(machine)
    writers = make_writers(machine, database)
    try:
        await machine.memory.prepare(AGENT, CARD if founded else None)
        await make_conversation(database)
        yield WriterMachine(machine, database, writers)
    finally:
        await writers.aclose()
        await machine.memory.aclose()
        await database.aclose()
