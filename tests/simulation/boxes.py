"""The boxes: they outlive daemons, and their ledger says which effect happened how often."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lodger_tools.box.contract import PinnedFile
from lodger_tools.json_value import JsonObject
from lodger_tools.toolbox_contract import EffectUnknown, Scheduling, ToolDescription, ToolOutcome, ToolRequest
from simulation.loop import Life
from simulation.world import World

SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
}
TOOLS: Final = (
    ToolDescription("Bash", "runs a command", SCHEMA, Scheduling.BARRIER),
    ToolDescription("Read", "reads", SCHEMA, Scheduling.PARALLEL, only_reads=True),
)


@dataclass
class Process:
    """One call at work inside a box."""

    call_key: str
    command: str
    only_reads: bool = False
    """Begun before the journal knew of it, so it may change nothing."""
    done: bool = False
    outcome: ToolOutcome | None = None
    waiters: list["asyncio.Future[ToolOutcome | None]"] = field(default_factory=list)
    task: "asyncio.Task[Any] | None" = None

    def end(self, outcome: ToolOutcome | None) -> None:
        if self.done:
            return
        self.done, self.outcome = True, outcome
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(outcome)


@dataclass(frozen=True)
class Effect:
    call_key: str
    command: str
    at_s: float


class Boxes:
    """One for the whole run."""

    def __init__(self, world: World, remembered: Callable[[], None]) -> None:
        self.world = world
        self.ledger: list[Effect] = []
        self.processes: dict[str, Process] = {}
        self._remembered = remembered
        self.may_skip_questions = False
        """A rule was saved, or a mode set, under which nothing asks any more."""

    def start(self, request: ToolRequest) -> Process:
        world, command = self.world, str(request.arguments["command"])
        if request.call_key in self.processes:
            world.fail("R3 no effect twice", f"{request.call_key} ({command}) was started again")
        only_reads = request.tool_name == "Read" and not self._papers(request)
        if not only_reads:
            self._check_papers(request)
        self._check_permission(request)
        process = Process(request.call_key, command, only_reads)
        self.processes[request.call_key] = process
        process.task = world.spawn(self._work(process))
        return process

    def die(self) -> None:
        """Every box is gone with what ran in it."""
        self.world.note("boxes", "die")
        for process in self.processes.values():
            if not process.done:
                self._kill(process)

    def settle(self) -> None:
        for process in self.processes.values():
            if process.task is not None:
                process.task.cancel()

    def _kill(self, process: Process) -> None:
        if process.task is not None:
            process.task.cancel()
        process.end(None)

    def stop(self, process: Process) -> None:
        """A person interrupted the call."""
        if not process.done:
            self.world.note("boxes", f"{process.command} is stopped")
            self._kill(process)

    async def _work(self, process: Process) -> None:
        world = self.world
        world.note("boxes", f"{process.command} starts")
        await asyncio.sleep(world.between(0.0005, 0.04 if process.only_reads else 4.0))
        if not process.only_reads:
            self.ledger.append(Effect(process.call_key, process.command, world.loop.time()))
        if process.command.startswith("remember"):
            self._remembered()
        world.note("boxes", f"{process.command} has its effect")
        await asyncio.sleep(world.between(0.0005, 0.01 if process.only_reads else 1.0))
        status = "error" if world.happens(0.1) else "success"
        length = world.chance.choice((0, 0, 400))
        process.end(ToolOutcome(status, f"ran {process.command}{' and wrote' * length}"))

    def _papers(self, request: ToolRequest) -> list[tuple[str, str]]:
        """What the journal says of a call: its status and its arguments."""
        run_id, call_id = request.call_key.rsplit("/", 2)[1:]
        return self.world.look(
            "SELECT status, arguments FROM journal WHERE run_id = ? AND tool_call_id = ?", run_id, call_id
        )

    def _check_papers(self, request: ToolRequest) -> None:
        """An effect may only follow its committed start."""
        world, key, command = self.world, request.call_key, str(request.arguments["command"])
        rows = self._papers(request)
        if not rows or rows[0][0] != "started":
            world.fail("R3 started on paper first", f"{key} ({command}) runs and the journal says {rows}")
        elif json.loads(rows[0][1]) != dict(request.arguments):
            world.fail("exact arguments", f"{key} runs {request.arguments} and the journal says {rows[0][1]}")

    def _check_permission(self, request: ToolRequest) -> None:
        world, command = self.world, str(request.arguments["command"])
        run_id, call_id = request.call_key.rsplit("/", 2)[1:]
        if command.startswith("deny"):
            world.fail("permissions", f"{command} runs although a rule denies it")
        if command.startswith("ask") and not self.may_skip_questions:
            asked = world.look(
                "SELECT status FROM questions WHERE run_id = ? AND tool_call_id = ? AND status = 'allowed'",
                run_id,
                call_id,
            )
            if not asked:
                world.fail("permissions", f"{command} runs and nobody allowed it")
        if world.look(
            "SELECT 1 FROM runs r JOIN settings s ON s.key = 'aborted:' || r.turn_id WHERE r.run_id = ?", run_id
        ):
            world.fail("a cancelled turn stays cancelled", f"{command} runs in a turn that was aborted")


class SimToolbox:
    """The `Toolbox` of one daemon."""

    def __init__(self, boxes: Boxes, life: Life) -> None:
        self._boxes = boxes
        self._life = life

    def tools(self, allowlist: tuple[str, ...] | None = None) -> tuple[ToolDescription, ...]:
        return tuple(tool for tool in TOOLS if allowlist is None or tool.name in allowlist)

    def check(self, tool_name: str, arguments_json: str) -> JsonObject | str:
        try:
            value = json.loads(arguments_json)
        except ValueError:
            return "The arguments are not JSON."
        return value if isinstance(value, dict) and isinstance(value.get("command"), str) else "command is missing"

    async def run(self, request: ToolRequest, on_output: Callable[[str], None] | None = None) -> ToolOutcome:
        world = self._boxes.world
        await asyncio.sleep(world.between(0.0001, 0.02))
        if world.owner is not self._life:
            raise EffectUnknown
        if world.happens(0.02):
            return ToolOutcome("error", "no box could be had", refused=True)
        process = self._boxes.start(request)
        if on_output is not None and world.happens(0.3):
            on_output(f"output of {process.command}\n")
        if world.happens(world.weather.box_dies):
            world.later(world.between(0.001, 3), self._boxes.die)
        try:
            outcome = await self._outcome(process)
        except asyncio.CancelledError:
            if world.owner is self._life and not self._letting_go:
                self._boxes.stop(process)
            raise
        if outcome is None:
            raise EffectUnknown
        return outcome

    async def collect(self, request: ToolRequest) -> ToolOutcome | None:
        process = self._boxes.processes.get(request.call_key)
        await asyncio.sleep(self._boxes.world.between(0.0001, 0.02))
        if process is None:
            return None
        return await self._outcome(process)

    async def real_path(self, request: ToolRequest) -> str | None:
        await asyncio.sleep(self._boxes.world.between(0.0001, 0.02))
        return None

    async def pin(self, request: ToolRequest) -> tuple[PinnedFile, ...]:
        await asyncio.sleep(self._boxes.world.between(0.0001, 0.02))
        return ()

    async def preview(self, request: ToolRequest) -> tuple[JsonObject, ...]:
        await asyncio.sleep(self._boxes.world.between(0.0001, 0.02))
        return ()

    _letting_go = False

    async def let_go(self) -> None:
        """The daemon stops in good order: its calls go on."""
        self._letting_go = True

    async def _outcome(self, process: Process) -> ToolOutcome | None:
        if process.done:
            return process.outcome
        waiter: asyncio.Future[ToolOutcome | None] = asyncio.get_running_loop().create_future()
        process.waiters.append(waiter)
        return await waiter
