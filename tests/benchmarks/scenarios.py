"""What is played on a server, the same for both programs. Samples are added under the keys of figures.py."""

import asyncio
import itertools
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.model_endpoint import Record
from benchmarks.model_records import ModelRecords
from benchmarks.process_tree import ServerTree
from benchmarks.samples import Samples
from benchmarks.wire_client import BenchmarkError, Runtime, Turn, WireClient

Script = dict[str, Any]

PLAIN: Final[Script] = {"chunks": 20}
SHORT: Final[Script] = {"chunks": 3}
STEPS_PER_TURN: Final = 5
HISTORY_TURNS: Final = 150
BACK_TO_BACK: Final = 30
"""How many of the first of them are looked at as turns sent right after another's end."""
PACED: Final[Script] = {"chunks": 300, "pause_ms": 10}
BURST: Final[Script] = {"chunks": 2000}
TOGETHER: Final = 20
TURN_LIMIT_S: Final = 60.0
QUIET_S: Final = 0.2
"""Between turns, so that what a server still does after `turn_finished` is not charged to the next turn."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many samples a round takes."""

    first_turns: int
    later_turns: int
    tool_turns: int
    streams: int
    history_samples: int
    idle_s: float
    settle_s: float
    """Before memory is read, so that what is only passing has gone."""


class Scenarios:
    """One connected client on one fresh server."""

    def __init__(
        self,
        client: WireClient,
        model: str,
        folder: Path,
        tree: ServerTree,
        records: ModelRecords,
        samples: Samples,
        sizes: Sizes,
    ) -> None:
        self._client = client
        self._model = model
        self._folder = folder
        self._tree = tree
        self._records = records
        self._samples = samples
        self._sizes = sizes
        self._agent_id: str | None = None

    async def conversation(self, mode: str = "unrestricted") -> Runtime:
        runtime, took_ms = await self._client.start(str(self._folder), self._model, self._agent_id, mode)
        self._samples.add("create.agent" if self._agent_id is None else "create.conversation", took_ms)
        self._agent_id = runtime["agent_id"]
        return runtime

    async def plain_turns(self) -> None:
        """The first turn of the process, first turns of conversations, then later ones of the last conversation."""
        runtime = await self.conversation()
        await asyncio.sleep(QUIET_S)
        turn, records = await self._timed(runtime, PLAIN, "process_first")
        self._samples.add("process_first.wall", turn.wall_ms)
        for _ in range(self._sizes.first_turns):
            runtime = await self.conversation()
            await asyncio.sleep(QUIET_S)
            turn, records = await self._timed(runtime, PLAIN, "first")
        for _ in range(self._sizes.later_turns):
            await asyncio.sleep(QUIET_S)
            turn, records = await self._timed(runtime, PLAIN, "later")
            self._samples.add("later.wall", turn.wall_ms)
            self._samples.add("later.to_accepted", (turn.accepted_ns - turn.sent_ns) / 1e6)
            self._samples.add("later.to_delta", (turn.words[0][0] - records[0].chunks_ns[0]) / 1e6)
        self._samples.notes["request bytes"] = str(records[0].request_bytes)
        self._samples.notes["tools offered"] = " ".join(records[0].tools)
        self._samples.notes["frames of a plain turn"] = str(dict(turn.frames))

    async def tool_steps(self) -> None:
        """Turns of five steps of one tool. The time of a step: last model byte to the head of the next request."""
        lines = self._folder / "lines.txt"
        lines.write_text("".join(f"line {number}\n" for number in range(40)))
        read = {"tool": "read", "arguments": {"path": str(lines)}}
        write = {"tool": "write", "arguments": {"path": str(self._folder / "written.txt"), "content": "hello\n"}}
        shell = {"tool": "shell", "arguments": {"command": "echo hi"}}
        touch = {"tool": "shell", "arguments": {"command": "touch touched"}}
        plans = (
            ("shell", [shell], "unrestricted"),
            ("read", [read], "unrestricted"),
            ("reads", [read] * 4, "unrestricted"),
            ("write", [write], "unrestricted"),
            ("asked", [touch], "strict"),
        )
        for name, step, mode in plans:
            runtime = await self.conversation(mode)
            await self._client.turn(runtime, SHORT, TURN_LIMIT_S)
            for _ in range(self._sizes.tool_turns):
                await asyncio.sleep(QUIET_S)
                await self._steps(runtime, step, name)

    async def streams(self) -> None:
        """2,000 chunks as fast as they go, then 300 at the pace of a fast model."""
        runtime = await self.conversation()
        await self._client.turn(runtime, {"chunks": 200}, TURN_LIMIT_S)
        for _ in range(self._sizes.streams):
            turn, record = await self._stream(runtime, BURST, "burst")
            seconds = (turn.words[-1][0] - record.chunks_ns[0]) / 1e9
            self._samples.add("burst.rate", len(turn.words) / seconds)
            self._samples.add("burst.wall", turn.wall_ms)
            self._samples.add("burst.bytes", turn.bytes_received / 1024)
            self._samples.notes["frames of a burst"] = str(dict(turn.frames))
        for _ in range(self._sizes.streams):
            turn, record = await self._stream(runtime, PACED, "paced")
            lags_ms = [(at_ns - record.chunks_ns[number]) / 1e6 for at_ns, number in turn.words]
            self._samples.add("paced.p50", statistics.median(lags_ms))
            self._samples.add("paced.p99", statistics.quantiles(lags_ms, n=100)[98])

    async def together(self) -> None:
        """Twenty conversations at once, each with five tool steps."""
        (self._folder / "lines.txt").write_text("one\ntwo\n")
        read = [{"tool": "read", "arguments": {"path": str(self._folder / "lines.txt")}}]
        shell = [{"tool": "shell", "arguments": {"command": "echo hi"}}]
        script = {"steps": [shell, read, shell, read, shell]} | PLAIN
        runtimes = [await self.conversation() for _ in range(TOGETHER)]
        await asyncio.sleep(self._sizes.settle_s)
        cpu_s, began = self._tree.cpu_s(), time.monotonic()
        await asyncio.gather(*(self._client.turn(runtime, script, 4 * TURN_LIMIT_S) for runtime in runtimes))
        self._samples.add("together.wall", (time.monotonic() - began) * 1e3)
        await asyncio.sleep(self._sizes.settle_s)
        self._samples.add("together.cpu", self._tree.cpu_s() - cpu_s)
        self._note_memory("tools")

    async def long_conversation(self) -> None:
        """150 turns one right after the other, then what a turn and a step cost."""
        runtime = await self.conversation()
        (self._folder / "lines.txt").write_text("one\ntwo\n")
        turns = [await self._client.turn(runtime, SHORT, TURN_LIMIT_S) for _ in range(HISTORY_TURNS)]
        for turn in turns[1:BACK_TO_BACK]:
            records = await self._records.of(turn.tag)
            self._samples.add("back_to_back.to_model", (records[0].head_ns - turn.sent_ns) / 1e6)
        for _ in range(self._sizes.history_samples):
            await asyncio.sleep(QUIET_S)
            await self._timed(runtime, PLAIN, "history")
        await self._steps(
            runtime, [{"tool": "read", "arguments": {"path": str(self._folder / "lines.txt")}}], "history"
        )

    async def memory(self) -> None:
        """Resident memory with one idle client, then with 1, 10 and 50 conversations of one turn each; then idling."""
        await asyncio.sleep(self._sizes.settle_s)
        self._note_memory("client")
        made = 0
        for goal in (1, 10, 50):
            for _ in range(made, goal):
                await self._client.turn(await self.conversation(), PLAIN, TURN_LIMIT_S)
            made = goal
            await asyncio.sleep(self._sizes.settle_s)
            self._note_memory(str(goal))
        await self.idle("idle.50")

    async def boxes(self) -> None:
        """Conversations of one workspace that run one command each, the first of them in a box that is yet to start."""
        shell = {"tool": "shell", "arguments": {"command": "echo hi"}}
        made = 0
        for goal in (10, 50):
            for number in range(made, goal):
                runtime = await self.conversation()
                await self._client.turn(runtime, SHORT, TURN_LIMIT_S)
                turn = await self._client.turn(runtime, {"steps": [[shell]]} | SHORT, TURN_LIMIT_S)
                if number == 0:
                    before, after = await self._records.of(turn.tag)
                    self._samples.add("shell.cold", (after.head_ns - before.last_ns) / 1e6)
            made = goal
            await asyncio.sleep(self._sizes.settle_s)
            self._note_memory(f"boxed.{goal}")

    async def idle(self, key: str) -> None:
        running_s, began = self._tree.running_s(), time.monotonic()
        await asyncio.sleep(self._sizes.idle_s)
        self._samples.add(key, max(0.0, self._tree.running_s() - running_s) / (time.monotonic() - began) * 100)

    def _note_memory(self, key: str) -> None:
        memory = self._tree.memory()
        self._samples.add(f"rss.{key}", memory.rss_mib)
        if memory.pss_mib is not None:
            self._samples.add(f"pss.{key}", memory.pss_mib)
        self._samples.notes[f"processes, {key}"] = str(memory)

    async def _timed(self, runtime: Runtime, script: Script, name: str) -> tuple[Turn, list[Record]]:
        """Play a turn and add what lies before and after the model's own time."""
        turn = await self._client.turn(runtime, script, TURN_LIMIT_S)
        records = await self._records.of(turn.tag)
        if len(turn.words) != script["chunks"]:
            raise BenchmarkError(f"{len(turn.words)} of {script['chunks']} chunks came")
        self._samples.add(f"{name}.to_model", (records[0].head_ns - turn.sent_ns) / 1e6)
        self._samples.add(f"{name}.to_finish", (turn.finished_ns - records[-1].last_ns) / 1e6)
        return turn, records

    async def _steps(self, runtime: Runtime, step: list[Script], name: str) -> None:
        turn = await self._client.turn(runtime, {"steps": [step] * STEPS_PER_TURN} | SHORT, TURN_LIMIT_S)
        records = await self._records.of(turn.tag)
        if len(records) != STEPS_PER_TURN + 1:
            raise BenchmarkError(f"{STEPS_PER_TURN} tool steps took {len(records)} model requests")
        self._samples.notes[f"frames of 5 steps, {name}"] = str(dict(turn.frames))
        for before, after in itertools.pairwise(records):
            self._samples.add(f"{name}.step", (after.head_ns - before.last_ns) / 1e6)

    async def _stream(self, runtime: Runtime, script: Script, name: str) -> tuple[Turn, Record]:
        await asyncio.sleep(2 * QUIET_S)
        cpu_s = self._tree.cpu_s()
        turn, records = await self._timed(runtime, script, name)
        await asyncio.sleep(2 * QUIET_S)
        self._samples.add(f"{name}.cpu", self._tree.cpu_s() - cpu_s)
        return turn, records[0]
