"""One machine whose processes are killed while it works, and the questions that must have one answer afterwards.

A *piece of work* is one message of a person: the scripted model has the agent add lines to a marker file, commit a fact
to its memory, and end. A kill falls into it; then everything is started again, the person sends the message again only
if it was not acknowledged, and `check` looks at every promise: in the database, at what the model endpoint received, at
the marker file, at all three memory repositories and at the boxes.
"""

import asyncio
import contextlib
import json
import socket
import sqlite3
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from websockets.exceptions import InvalidHandshake, InvalidMessage

from lodger_tools.box.ending import end_unconnected
from support.machine_processes import Seen, descendants
from support.persons_git import git
from support.program_client import (
    Client,
    Conversation,
    Gone,
    bash,
    hub_client,
    local_client,
    open_conversation,
    remember,
    script,
    text_of,
)
from support.programs import ROOT, Endpoint, Home, NeverHappened, Program, World, until

LAUNCHER = (sys.executable, str(ROOT / "tests" / "support" / "seam_launcher.py"))
UNKNOWN = "effect is unknown"
NO_BOX = "The box "
"""How an error begins when no box could be had, so that nothing ran: it was killed while it started."""
WORK_LIMIT_S = 25.0

Kind = Literal["plain", "asking", "founding", "long"]
Side = Literal["before", "after"]
NOBODY_THERE = (OSError, EOFError, InvalidHandshake, InvalidMessage, Gone, TimeoutError)


@dataclass(frozen=True, slots=True)
class Point:
    """A passage of a seam."""

    seam: str
    side: Side
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.side} {self.seam}" + (f" #{self.nth}" if self.nth > 1 else "")


class Controlled:
    """A process run by the seam launcher, and the line to it."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.hit: dict[str, Any] | None = None
        self.program: Program | None = None
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, begin: Any, arm: Point | None = None) -> "Controlled":
        """`begin` starts the program with the environment and descriptors it is given."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        controlled = cls(ours)
        environment = {"LODGER_TEST_SEAMS_FD": str(theirs.fileno())}
        if arm is not None:
            environment["LODGER_TEST_SEAMS_ARM"] = json.dumps(order_of(arm))
        with theirs:
            controlled.program = await begin(argv=LAUNCHER, more_environment=environment, pass_fds=(theirs.fileno(),))
        return controlled

    async def arm(self, point: Point | None) -> bool:
        """False when the process has died before it could be armed."""
        return await self._ask({"arm": order_of(point)}) is not None

    async def passages(self) -> dict[str, int]:
        """How often each `seam|side` was passed since the last time."""
        return ((await self._ask({"count": True})) or {}).get("passages", {})

    async def close(self) -> None:
        if self.program is not None and self.program.ended:
            await asyncio.wait({self._reader}, timeout=2)  # its last word may still be on the way
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._line.close()

    async def _ask(self, order: dict[str, Any]) -> dict[str, Any] | None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._line, json.dumps(order).encode() + b"\n")
        except OSError:
            return None
        answer = await asyncio.wait_for(self._answers.get(), 20)
        return answer or None

    async def _read(self) -> None:
        reader, _ = await asyncio.open_connection(sock=self._line)
        try:
            while line := await reader.readline():
                said = json.loads(line)
                if "hit" in said:
                    self.hit = said["hit"]
                else:
                    self._answers.put_nowait(said)
        except OSError:
            pass
        self._answers.put_nowait({})


def order_of(point: Point | None) -> dict[str, Any] | None:
    return None if point is None else {"seam": point.seam, "side": point.side, "nth": point.nth}


@dataclass
class Work:
    """One message and what is known of it."""

    kind: Kind
    tag: str
    text: str
    message_id: str = field(default_factory=lambda: f"cm-{uuid.uuid4()}")
    runtime: dict[str, Any] | None = None
    acknowledged: bool = False
    finished: bool = False

    @property
    def done(self) -> str:
        return f"done {self.tag}"


def make_work(kind: Kind, tag: str) -> Work:
    def mark(name: str) -> dict[str, Any]:
        return bash(f"echo {tag}-{name} >> marker.txt")

    fact = remember(f"fact-{tag}", f"The fact of {tag}.")
    end = {"text": f"done {tag}", "chunks": 3}
    steps: list[dict[str, Any]]
    match kind:
        case "plain" | "founding":
            steps = [{"calls": [mark("a")]}, {"text": "so far", "calls": [fact]}, {"calls": [mark("b")]}, end]
        case "asking":
            steps = [{"calls": [mark("a"), mark("b")]}, end]
        case "long":
            slow = bash(f"echo {tag}-a >> marker.txt; sleep 0.4; echo {tag}-late >> late.txt")
            steps = [{"calls": [slow]}, {"text": "this comes piece by piece", "chunks": 5, "delay_ms": 60}, end]
            steps[1]["calls"] = [mark("b")]
    return Work(kind, tag, f"{tag}: please. {script(*steps)}")


class Broken(AssertionError):
    """A promise was not kept."""


class Rig:
    """Hub, daemon and endpoint of one machine, and the person at it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.home: Home = world.home(name)
        self.outside = world.workspace(world.base / f"{name}-outside")
        self._endpoint: Endpoint | None = None
        self.hub: Controlled | None = None
        self.hub_url = ""
        self.daemon: Controlled | None = None
        self.works = 0
        self.agent_id = ""

    @property
    def endpoint(self) -> Endpoint:
        assert self._endpoint is not None
        return self._endpoint

    async def start(self) -> None:
        self._endpoint = await self.world.endpoint()
        await self.start_hub()
        await self.start_daemon()

    async def start_hub(self, arm: Point | None = None) -> None:
        if self.hub is not None:
            await self.hub.close()
        port = int(self.hub_url.rsplit(":", 1)[1]) if self.hub_url else 0

        async def begin(**how: Any) -> Program:
            return await self.world.hub(self.home, port=port, **how)

        self.hub = await Controlled.start(begin, arm)
        assert self.hub.program is not None
        if self.hub.program.first:
            self.hub_url = str(self.hub.program.first["url"])

    async def start_daemon(self, arm: Point | None = None) -> None:
        if self.daemon is not None:
            await self.daemon.close()
        options = ("--hub", self.hub_url, "--hub-token-file", str(self.home.state / "hub" / "machine.token"))

        async def begin(**how: Any) -> Program:
            return await self.world.daemon(self.home, *options, endpoint=self.endpoint, **how)

        self.daemon = await Controlled.start(begin, arm)

    @property
    def daemon_program(self) -> Program:
        assert self.daemon is not None and self.daemon.program is not None
        return self.daemon.program

    @property
    def hub_program(self) -> Program:
        assert self.hub is not None and self.hub.program is not None
        return self.hub.program

    async def revive(self) -> None:
        """Start again whatever has died."""
        if self.hub_program.ended:
            await self.start_hub()
        if self.daemon_program.ended:
            await self.start_daemon()
        assert self.daemon_program.first, f"the daemon does not start again\n{self.daemon_program.last_words()}"
        assert self.hub_program.first, f"the hub does not start again\n{self.hub_program.last_words()}"

    def work(self, kind: Kind) -> Work:
        self.works += 1
        return make_work(kind, f"{self.home.name}{self.works}")

    # -- the person --

    async def play(self, work: Work, *, over_hub: bool = False) -> None:
        """Say the message, answer what is asked, wait for the end; or until whoever we talk to is gone."""
        with contextlib.suppress(*NOBODY_THERE):
            if over_hub:
                token = (self.home.state / "hub" / "client.token").read_text().strip()
                async with hub_client(self.hub_url, token, await self.connection_id()) as client:
                    await self._converse(client, work)
            else:
                async with local_client(self.home.socket) as client:
                    await self._converse(client, work)

    async def finish(self, work: Work) -> None:
        """After a kill: what a person does who still waits for an answer."""
        deadline = asyncio.get_running_loop().time() + WORK_LIMIT_S
        while asyncio.get_running_loop().time() < deadline:
            await self.revive()
            await self.play(work)
            if work.finished:
                return
            await asyncio.sleep(0.02)  # a killed process refuses us some moments before its parent knows
        raise Broken(f"{work.tag} has no answer\n{self.world_words()}")

    async def _converse(self, client: Client, work: Work) -> None:
        conversation = await self._open(client, work)
        answering = asyncio.create_task(self._answer_questions(conversation))
        try:
            if not work.acknowledged:
                _, acknowledgement = await conversation.say(work.text, work.message_id)
                if not acknowledgement["accepted"]:
                    raise Broken(f"{work.tag} was refused: {acknowledgement}")
                work.acknowledged = True
            await until(lambda: client.closed or self.is_answered(work), f"{work.tag} is answered", WORK_LIMIT_S)
            # The sync that follows a turn has steps of its own to die at.
            settle = {"type": "lodger_memory_settled", "agent_id": conversation.runtime["agent_id"], "limit_s": 10}
            await client.request(settle)
            work.finished = self.is_answered(work)
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _open(self, client: Client, work: Work) -> Conversation:
        more: dict[str, Any] = {"cwd": self.home.workspace}
        if work.kind == "asking":
            more["mode"] = "strict"
        if work.runtime is not None:
            return await open_conversation(
                client,
                agent_id=work.runtime["agent_id"],
                conversation_id=work.runtime["conversation_id"],
                **more,
            )
        if work.kind == "founding":
            more["create_agent"] = {"body": {"name": f"Founded {work.tag}"}}
        elif self.agent_id:
            more["agent_id"] = self.agent_id
        conversation = await open_conversation(client, new=True, **more)
        work.runtime = conversation.runtime
        if work.kind != "founding":
            self.agent_id = conversation.runtime["agent_id"]
        return conversation

    async def _answer_questions(self, conversation: Conversation) -> None:
        after = 0
        answered: set[str] = set()
        with contextlib.suppress(*NOBODY_THERE):
            while True:
                question = await conversation.client.wait(
                    lambda frame: frame["type"] == "control_request" and frame["request_id"] not in answered,
                    after,
                    3600,
                )
                answered.add(question["request_id"])
                await conversation.answer(question, "allow")

    async def connection_id(self) -> str:
        """Of our machine at the hub, once it is there."""
        from lodger_cli.chat import _find_machine
        from lodger_cli.places import HubPlace

        token = (self.home.state / "hub" / "client.token").read_text().strip()
        place = HubPlace(self.hub_url, token, Path())
        deadline = asyncio.get_running_loop().time() + 20
        while True:
            if found := await asyncio.to_thread(_find_machine, place, ""):
                return found
            if self.daemon_program.ended or self.hub_program.ended or asyncio.get_running_loop().time() > deadline:
                raise Gone("the machine is not at the hub")
            await asyncio.sleep(0.05)

    # -- what is true --

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        if not self.home.database.exists():
            return []
        with contextlib.closing(
            sqlite3.connect(f"file:{self.home.database}?mode=ro", uri=True, timeout=10)
        ) as database:
            return list(database.execute(statement, values))

    def is_answered(self, work: Work) -> bool:
        try:
            found = self.rows(
                "SELECT i.status, (SELECT count(*) FROM turns t WHERE t.conversation = i.conversation "
                "AND t.status = 'active') FROM inbox i WHERE client_message_id = ?",
                work.message_id,
            )
        except sqlite3.OperationalError:
            return False  # the daemon is being started and makes its tables
        return found == [("answered", 0)]

    async def check(self, work: Work, died: str, boxes_before: set[int]) -> list[str]:
        """Every promise about this piece of work. Returns the outcomes of its calls. Raises: Broken."""
        try:
            return await self._check(work, boxes_before)
        except Broken as error:
            turns = self.rows("SELECT turn_id, status, stop_reason, error FROM turns ORDER BY started_at DESC LIMIT 3")
            raise Broken(f"{died}: {error}\nlast turns: {turns}\n{self.world_words()}") from None

    async def _check(self, work: Work, boxes_before: set[int]) -> list[str]:
        inbox = self.rows("SELECT conversation, status FROM inbox WHERE client_message_id = ?", work.message_id)
        expect([status for _, status in inbox], ["answered"], "one message, answered")
        (conversation,) = {number for number, _ in inbox}
        messages = self.rows("SELECT kind, content FROM messages WHERE conversation = ?", conversation)
        said = [content for kind, content in messages if kind == "user" and f"{work.tag}: please" in content]
        expect(len(said), 1, "the message stands once in the transcript")
        answers = [content for kind, content in messages if kind == "assistant" and work.done in content]
        expect(len(answers), 1, "it is answered once")
        turns = self.rows(
            "SELECT count(*) FROM turns WHERE conversation = ? AND stop_reason = 'end_turn'", conversation
        )
        expect(turns, [(1,)], "one turn ended in an answer")
        outcomes = self._check_calls(work, conversation)
        await self._check_what_the_model_was_told(work, conversation)
        await self._check_memory(work, outcomes)
        await self._check_boxes(boxes_before)
        return [outcome for _, _, outcome, _ in outcomes]

    def _check_calls(self, work: Work, conversation: int) -> list[tuple[str, str, str, str]]:
        calls = self.rows(
            "SELECT tool_call_id, arguments, outcome_status, outcome_text FROM journal WHERE conversation = ?",
            conversation,
        )
        if unfinished := [call for call in calls if call[2] is None]:
            raise Broken(f"started and never finished: {unfinished}")
        marks = [line for line in self.home.marks() if line.startswith(f"{work.tag}-")]
        for name in ("a", "b"):
            line = f"{work.tag}-{name}"
            started = [(outcome, text) for _, arguments, outcome, text in calls if f"echo {line} " in arguments]
            ran = marks.count(line)
            if len(started) != 1:
                raise Broken(f"{line} was started {len(started)} times: {calls}")
            ((outcome, text),) = started
            allowed = {"success": {1}, "unknown": {0, 1}}.get(outcome, set())
            if outcome == "error" and text.startswith(NO_BOX):
                allowed = {0}
            if ran not in allowed:
                raise Broken(f"{line} ran {ran} times, and its call ended as {outcome}: {calls}")
        return calls

    async def _check_what_the_model_was_told(self, work: Work, conversation: int) -> None:
        """The last request holds one result for each call, and the doubt where there is one."""
        bodies = [one["body"] for one in await self.endpoint.requests() if one["path"] == "/v1/chat/completions"]
        requests = [body for body in bodies if any(f"{work.tag}: " in text_of(m["content"]) for m in body["messages"])]
        expect(bool(requests), True, "the model was asked")
        results = {m["tool_call_id"]: str(m["content"]) for m in requests[-1]["messages"] if m["role"] == "tool"}
        journal = self.rows("SELECT tool_call_id, outcome_status FROM journal WHERE conversation = ?", conversation)
        for call_id, outcome in journal:
            if call_id not in results:
                raise Broken(f"the model never heard of {call_id} ({outcome}): {results}")
            if (outcome == "unknown") != (UNKNOWN in results[call_id]):
                raise Broken(f"{call_id} ended as {outcome}, and the model was told: {results[call_id]}")

    async def _check_memory(self, work: Work, calls: list[tuple[str, str, str, str]]) -> None:
        """What the agent committed is in the published repository and on the hub, and all three are whole."""
        assert work.runtime is not None
        agent = work.runtime["agent_id"]
        committed = [outcome for _, arguments, outcome, _ in calls if "git commit" in arguments]
        folder = self.home.state / "agents" / agent
        checkout, published = folder / "checkout", folder / "published.git"

        def remote() -> Path | None:
            return next((self.home.state / "hub").rglob(f"{agent}/state.git"), None)

        def heads() -> dict[str, str]:
            places = ((checkout, "HEAD"), (published, "main"), (remote() or published, "main"))
            # A hub that was killed between making a repository and the first push has one without a commit.
            return {place.name: git("rev-parse", "--revs-only", ref, cwd=place).strip() for place, ref in places}

        def look() -> None:
            hub = remote()
            assert hub is not None
            if committed == ["success"]:
                fact = git("show", f"main:fact-{work.tag}.md", cwd=hub)
                expect(f"The fact of {work.tag}." in fact, True, "the fact is on the hub")
            for place in (checkout, published, hub):
                git("fsck", "--strict", "--no-dangling", "--no-progress", cwd=place)

        try:
            await until(
                lambda: remote() and len(found := set(heads().values())) == 1 and "" not in found,
                "memory is the same everywhere",
                20,
            )
        except NeverHappened:
            async with local_client(self.home.socket) as client:
                settled = await client.request({"type": "lodger_memory_settled", "agent_id": agent, "limit_s": 0})
            raise Broken(f"memory differs after {committed}: {heads()} at the hub: {remote()}, {settled}") from None
        await asyncio.to_thread(look)

    async def _check_boxes(self, before: set[int]) -> None:
        """They outlive a kill, and the new daemon has taken up each of them."""
        if missing := before - self.runner_pids():
            raise Broken(f"boxes that lived before are gone: {missing} of {before}")
        known: list[Any] = []
        deadline = asyncio.get_running_loop().time() + 5
        while asyncio.get_running_loop().time() < deadline:
            async with local_client(self.home.socket) as client:
                known = (await client.request({"type": "lodger_status"}))["status"]["boxes"]
            if len(known) >= len(self.home.boxes()):
                return
            await asyncio.sleep(0.02)  # they are taken up beside the start
        raise Broken(f"the daemon knows {known} of {self.home.boxes()}")

    def runner_pids(self) -> set[int]:
        return {box.record.runner_pid for box in self.home.boxes()}

    def workers(self) -> list[Seen]:
        """Of our daemon's models."""
        return [seen for seen in descendants(self.daemon_program.pid) if "lodger_daemon.models.worker" in seen.command]

    def end_boxes(self, agent_id: str = "") -> None:
        """Of one agent, or all of this machine."""
        for box in self.home.boxes():
            if not agent_id or box.record.key.agent_id == agent_id:
                end_unconnected(box)

    def world_words(self) -> str:
        programs = [c.program for c in (self.daemon, self.hub) if c is not None and c.program is not None]
        return "\n".join(program.last_words(2500) for program in programs)

    async def close(self) -> None:
        for controlled in (self.daemon, self.hub):
            if controlled is not None:
                await controlled.close()


def expect(found: Any, wanted: Any, what: str) -> None:
    if found != wanted:
        raise Broken(f"{what}: expected {wanted}, found {found}")
