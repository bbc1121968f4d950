"""Background tasks over a real database and the real runner: what a crash at each step leaves, and what is told."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from lodger_daemon.identity import CallKey, ConversationKey, RunId, ToolCallId
from lodger_daemon.inbox.core.items import CancelCause, InboxItem, Source
from lodger_daemon.network.contract import WorkInBox
from lodger_daemon.notifications.contract import TaskStatus
from lodger_daemon.notifications.delivery import LOOK_AGAIN_S, Delivery, Line
from lodger_daemon.notifications.stop_command import StopCommand
from lodger_daemon.notifications.tasks import Tasks
from lodger_daemon.store import inbox_rows, task_rows
from lodger_daemon.turns.contract import ConversationError, Receipt, Submission
from lodger_tools.box.contract import BoxKey
from lodger_tools.box.manager import BoxManager
from lodger_tools.json_value import Json
from lodger_tools.output.overflow import OverflowFolder
from lodger_tools.toolbox import LodgerToolbox
from lodger_tools.toolbox_background import BackgroundToolbox
from lodger_tools.toolbox_contract import BackgroundCall, ToolOutcome, ToolRequest
from support.patience import LIMIT_S
from support.plain_runner import PlainStarter, plain_request
from support.turn_parts import Gate, House, says

HELD = "echo begun; read line <go; echo ended; exit 3"


class Rig:
    """A house whose daemon may die and come again, and boxes that stay."""

    def __init__(self, folder: Path) -> None:
        self.house = House(folder / "house")
        self.house.folder.mkdir()
        self.folder = folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        os.mkfifo(self.workspace / "go")
        self.starter = PlainStarter()
        self.tasks: Tasks
        self.boxes: BoxManager
        self.count = 0

    async def open(self, line: type["FaultyLine"] | None = None, foreground_s: float = 30.0) -> None:
        """Tasks of the house's daemon, as the program puts them together."""
        self.boxes = BoxManager(self.folder / "boxes", plain_request, start_detached=self.starter)
        toolbox = LodgerToolbox(
            self.boxes, OverflowFolder(self.folder / "overflow"), lambda agent_id: {"TOKEN": "hunter2-hunter2"}
        )
        house = self.house
        delivery = Delivery(house.database, house.clock)
        self.tasks = Tasks(house.database, BackgroundToolbox(toolbox, self.boxes), house.clock, foreground_s, delivery)
        delivery.to(house.conversations if line is None else line(house.conversations))
        await self.tasks.start()

    async def die(self) -> None:
        await self.house.database.aclose()
        await self.tasks.aclose()
        await self.house.crash()
        await self.boxes.aclose()

    async def rise(self) -> None:
        await self.house.restart()
        await self.open()

    def request(self, tool: str, call_id: str = "c1", **arguments: Json) -> tuple[CallKey, ToolRequest]:
        call = CallKey(self.house.key, RunId("run-1"), ToolCallId(call_id))
        box = BoxKey(str(self.house.key.agent_id), str(self.workspace))
        return call, ToolRequest(str(call), tool, {**arguments}, box, str(self.workspace))

    async def run(self, tool: str, call_id: str = "c1", **arguments: Json) -> ToolOutcome:
        async with asyncio.timeout(LIMIT_S):
            return await self.tasks.run(*self.request(tool, call_id, **arguments))

    async def until(self, condition: Callable[[], Awaitable[object]]) -> None:
        """Wait for something that tells nobody when it happens."""
        async with asyncio.timeout(LIMIT_S):
            while not await condition():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.005)

    async def waiting(self) -> tuple[InboxItem, ...]:
        key = self.house.key
        return await self.house.database.read(lambda connection: inbox_rows.waiting(connection, key))

    async def let_go(self) -> None:
        await asyncio.to_thread((self.workspace / "go").write_text, "on\n")

    async def ended(self, number: int = 1) -> TaskStatus:
        """How a task ended, once it has."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                task = await self.house.database.read(lambda connection: task_rows.get(connection, number))
                assert task is not None
                if task.end is not None:
                    return task.status
                await asyncio.sleep(0.005)

    def told(self) -> list[str]:
        """The notifications that reached the model, in all requests so far."""
        last = self.house.models.requests[-1] if self.house.models.requests else None
        return [] if last is None else repr(last).split("<task-notification>")[1:]

    async def told_once(self) -> str:
        await self.house.until(lambda: len(self.told()) == 1)
        await self.house.settled()
        return self.told()[0]

    async def closed(self) -> None:
        """Wait until the table says that nothing is left to tell."""
        async with asyncio.timeout(LIMIT_S):
            while await self.house.database.read(task_rows.undelivered):
                self.house.clock.advance(LOOK_AGAIN_S)
                await asyncio.sleep(0.005)


class FaultyLine:
    """The way to the conversations, broken before or behind the door."""

    def __init__(self, line: Line) -> None:
        self.line = line

    async def submit_notice(
        self,
        key: ConversationKey,
        submission: Submission,
        kind: Literal["task_notification", "cron_prompt"],
        source: Source,
    ) -> Receipt:
        raise OSError("broken on purpose")

    def device_changed(self, key: ConversationKey) -> None:
        self.line.device_changed(key)


class BrokenBehind(FaultyLine):
    async def submit_notice(
        self,
        key: ConversationKey,
        submission: Submission,
        kind: Literal["task_notification", "cron_prompt"],
        source: Source,
    ) -> Receipt:
        await self.line.submit_notice(key, submission, kind, source)
        raise OSError("broken on purpose")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    await rig.house.start()
    yield rig
    await rig.tasks.aclose()
    await rig.house.close()
    await rig.boxes.aclose()
    rig.starter.end_all()


async def test_its_end_is_told_once_and_then_the_record_is_closed(rig: Rig) -> None:
    await rig.open()
    started = await rig.run("Bash", command=HELD, run_in_background=True)
    assert started.status == "success" and "bash_1" in started.text
    assert [one["process_id"] for one in rig.tasks.running(rig.house.key)] == ["bash_1"]
    call, request = rig.request("Bash")
    by_call = WorkInBox(call.conversation, None, call.run_id, (call.tool_call_id,))
    assert rig.tasks.work_in(request.box) == (by_call,)
    assert rig.tasks.work_in(replace(request.box, workspace="/elsewhere")) == ()
    await rig.let_go()
    assert await rig.ended() is TaskStatus.FAILED
    notice = await rig.told_once()
    assert "Exit code: 3" in notice and "begun" in notice and rig.tasks.running(rig.house.key) == ()
    await rig.closed()
    assert len(rig.told()) == 1


@pytest.mark.parametrize("line", [FaultyLine, BrokenBehind])
async def test_a_crash_on_the_way_to_the_conversation_loses_and_doubles_nothing(
    rig: Rig, line: type[FaultyLine]
) -> None:
    await rig.open(line)
    await rig.run("Bash", command="exit 5", run_in_background=True)
    assert await rig.ended() is TaskStatus.FAILED
    await rig.die()
    await rig.rise()
    assert "Exit code: 5" in await rig.told_once()
    await rig.closed()
    assert len(rig.told()) == 1


async def test_an_end_while_no_daemon_looked_is_told_by_the_next(rig: Rig) -> None:
    await rig.open()
    await rig.run("Bash", command=HELD, run_in_background=True)
    await rig.die()
    await rig.let_go()
    await rig.rise()
    assert "Exit code: 3" in await rig.told_once()


async def test_a_task_whose_command_never_began_is_lost(rig: Rig) -> None:
    """A crash between the record and the start."""
    await rig.open()
    call, request = rig.request("Bash", command="echo x >>marks", run_in_background=True)
    await rig.tasks._record(call, request)
    await rig.die()
    await rig.rise()
    assert await rig.ended() is TaskStatus.LOST
    collected = await rig.tasks.collect(call, request)
    assert collected is not None and collected.status == "error" and "is lost" in collected.text
    await rig.told_once()
    assert not (rig.workspace / "marks").exists(), "it is not run again"


async def test_a_call_in_the_foreground_is_collected_and_left_to_run_again(rig: Rig) -> None:
    await rig.open(foreground_s=30)
    call, request = rig.request("Bash", command=HELD)
    running = asyncio.create_task(rig.tasks.run(call, request))
    await rig.until(lambda: rig.boxes.read(request.box, request.call_key, 0, 10))
    await rig.boxes.aclose()
    await asyncio.wait({running})
    await rig.die()
    await rig.house.restart()
    await rig.open(foreground_s=0.05)
    collected = await rig.tasks.collect(call, request)
    assert collected is not None and "Still running after 0.05 s" in collected.text and "bash_1" in collected.text
    await rig.let_go()
    assert "ended" in await rig.told_once()


async def test_what_cannot_begin_is_told_by_its_own_result_alone(rig: Rig) -> None:
    await rig.open()
    call, request = rig.request("Bash", command="true", run_in_background=True)
    missing = ToolRequest(request.call_key, "Bash", request.arguments, request.box, "/no/such/folder")
    outcome = await rig.tasks.run(call, missing)
    assert outcome.status == "error" and "/no/such/folder" in outcome.text
    assert await rig.ended() is TaskStatus.FAILED
    assert await rig.house.database.read(task_rows.undelivered) == ()


async def test_a_notification_that_made_room_for_others_comes_again(rig: Rig) -> None:
    await rig.open()
    house, gate = rig.house, Gate()
    house.models.play([gate, *says("first")])
    await house.say("hello", "m1")
    await gate.reached.wait()
    await rig.run("Bash", command="exit 5", run_in_background=True)
    await rig.ended()
    key = house.key
    await rig.until(rig.waiting)
    (item,) = await rig.waiting()
    now = house.clock.wall()
    await house.database.write(
        lambda connection: inbox_rows.cancel(connection, key, item.item_number, CancelCause.DROPPED, now)
    )
    assert await rig.waiting() == ()

    async def back_in_line() -> object:
        house.clock.advance(LOOK_AGAIN_S)
        return await rig.waiting()

    await rig.until(back_in_line)
    gate.opened.set()
    await rig.told_once()
    await rig.closed()


async def test_a_person_who_takes_it_out_of_line_is_believed(rig: Rig) -> None:
    await rig.open()
    house, gate = rig.house, Gate()
    house.models.play([gate, *says("first")])
    await house.say("hello", "m1")
    await gate.reached.wait()
    await rig.run("Bash", command="exit 5", run_in_background=True)
    await rig.ended()
    await rig.until(rig.waiting)
    (item,) = await rig.waiting()
    assert await house.conversations.remove_queued(house.key, item.id)
    await rig.closed()
    gate.opened.set()
    await house.settled()
    assert rig.told() == []


async def test_an_old_id_never_names_a_new_process(rig: Rig) -> None:
    await rig.open()
    await rig.run("Bash", command="true", run_in_background=True)
    await rig.ended()
    await rig.closed()
    await rig.house.settled()
    later = 31 * 24 * 3600.0
    await rig.die()
    rig.house.clock.advance(later)
    await rig.rise()
    assert await rig.house.database.read(lambda connection: task_rows.get(connection, 1)) is None, "forgotten by now"
    again = await rig.run("Bash", "c2", command="true", run_in_background=True)
    assert "bash_2" in again.text
    gone = await rig.run("TaskOutput", "c3", task_id="bash_1")
    assert (gone.status, gone.refused) == ("error", True) and "no background task bash_1" in gone.text


async def test_waiting_for_a_task_ends_with_it_or_with_the_time(rig: Rig) -> None:
    await rig.open()
    await rig.run("Bash", command=HELD, run_in_background=True)
    call, request = rig.request("TaskOutput", "c2", task_id="bash_1", timeout=60_000)
    looking = asyncio.create_task(rig.tasks.run(call, request))

    async def waits() -> object:
        return rig.house.clock.sleeping

    await rig.until(waits)
    rig.house.clock.advance(60)
    assert "is running" in (await asyncio.wait_for(looking, LIMIT_S)).text
    looking = asyncio.create_task(rig.tasks.run(*rig.request("TaskOutput", "c3", task_id="bash_1", timeout=60_000)))
    await rig.let_go()
    assert "has failed (exit code: 3)" in (await asyncio.wait_for(looking, LIMIT_S)).text


async def test_another_agents_task_is_nobodys(rig: Rig) -> None:
    await rig.open()
    await rig.run("Bash", command="true", run_in_background=True)
    stranger = ConversationKey(type(rig.house.key.agent_id)("agent-other"), rig.house.key.conversation_id)
    _, request = rig.request("TaskStop", task_id="bash_1")
    call = CallKey(stranger, RunId("run-9"), ToolCallId("c9"))
    assert "no background task" in (await rig.tasks.run(call, request)).text


async def test_a_secret_in_the_output_of_a_task_is_redacted_everywhere(rig: Rig) -> None:
    await rig.open()
    await rig.run("Bash", command="head -c 27995 /dev/zero | tr '\\0' x; echo $TOKEN; echo end", run_in_background=True)
    await rig.ended()
    notice = await rig.told_once()
    assert "hunter2" not in notice and "TOKEN=&lt;REDACTED&gt;" in notice
    first = await rig.run("TaskOutput", "c2", task_id="bash_1", offset=0)
    second = await rig.run("TaskOutput", "c3", task_id="bash_1", offset=28_000)
    assert "hunt" not in first.text + second.text and "nter2" not in second.text
    assert "TOKEN=<REDACTED>" in second.text and second.text.endswith("end\n")


async def test_a_person_ends_one_thing_or_everything(rig: Rig) -> None:
    await rig.open()
    for number in (1, 2, 3):
        await rig.run("Bash", f"c{number}", command="while :; do read line <go; done", run_in_background=True)
    left = await rig.run("Bash", "c4", command="(setsid sleep 600 &)")
    assert "1 process still runs" in left.text
    command = StopCommand(rig.tasks, rig.boxes)
    key = rig.house.key
    names: dict[str, Json] = {"agent_id": str(key.agent_id), "conversation_id": str(key.conversation_id)}
    assert await command.answer({**names, "process_id": "bash_2"}) == {"stopped": ["bash_2"]}
    assert await rig.ended(2) is TaskStatus.STOPPED
    box = f"box-{rig.boxes.statuses()[0].host_pid}"
    assert await command.answer({**names, "process_id": box}) == {"stopped": [box]}
    assert len(rig.tasks.running(key)) == 2, "what belongs to a task is no leftover"
    for nothing in ({**names, "process_id": "bash_2"}, {**names, "process_id": "bash_x"}, {"agent_id": "agent-1"}):
        with pytest.raises(ConversationError):
            await command.answer(nothing)
    other = {**names, "conversation_id": "other"}
    with pytest.raises(ConversationError):
        await command.answer({**other, "process_id": "bash_1"})
    assert await command.answer(names) == {"stopped": ["bash_3", "bash_1"]}
    assert await command.answer(names) == {"stopped": []}


async def looked(rig: Rig, call_id: str, **arguments: Json) -> str:
    """What a `write_stdin` says once its time is over."""
    running = asyncio.create_task(rig.tasks.run(*rig.request("write_stdin", call_id, session_id=1, **arguments)))

    async def over() -> object:
        if rig.house.clock.sleeping:
            rig.house.clock.advance(300)
        return running.done()

    await rig.until(over)
    return (await running).text


@pytest.mark.parametrize("tty", [True, False])
async def test_a_session_shows_what_came_since_and_takes_input(rig: Rig, tty: bool) -> None:
    await rig.open()
    command = "echo one; read line; echo got $line; read line; exit 4"
    begun = await rig.run("exec_command", cmd=command, tty=tty, login=False, yield_time_ms=1500)
    assert "Process running with session ID 1" in begun.text and begun.text.endswith("Output:\none\n")
    assert "Chunk ID: " in begun.text and "Wall time: " in begun.text and "Original token count: 1" in begun.text
    request = rig.request("exec_command", cmd=command)[1]
    assert await rig.tasks._shell.write(BackgroundCall(request.box, request.call_key), "two\n") is True
    async with asyncio.timeout(LIMIT_S):
        while "got two" not in (text := await looked(rig, "c2")):
            assert "Process running with session ID 1" in text
            assert "\none" not in text, "only what came since"
    assert "\none" not in text
    text = await looked(rig, "c3", chars="three\n")
    async with asyncio.timeout(LIMIT_S):
        while "Process exited with code 4" not in text:
            text = await looked(rig, "c3")
    late = await looked(rig, "c4", chars="four\n")
    assert "Process exited with code 4" in late
    assert await rig.tasks.collect(*rig.request("write_stdin", "c3", session_id=1, chars="three\n")) is None


async def test_a_session_that_ends_at_once_is_no_task(rig: Rig) -> None:
    await rig.open()
    (rig.workspace / "sub").mkdir()
    ended = await rig.run("exec_command", cmd="pwd; exit 3", workdir="sub", login=False)
    assert ended.status == "error" and "Process exited with code 3" in ended.text
    assert ended.text.endswith(f"Output:\n{rig.workspace}/sub\n")
    assert await rig.house.database.read(lambda connection: task_rows.get(connection, 1)) is None
    missing = await rig.run("write_stdin", "c2", session_id=1, chars="x")
    assert (missing.status, missing.refused) == ("error", True)
