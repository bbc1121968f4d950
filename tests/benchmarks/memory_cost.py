"""What memory costs beside turns: a remote that hangs next to no remote at all, nothing to sync, and one commit.

`make bench` plays it for Lodger and prints its two tables; alone it is

    PYTHONPATH=tests .venv/bin/python -m benchmarks.memory_cost [--rounds 3] [--turns 8]

and takes about a minute. Turns are played on a daemon as in `make bench`, each with a command that commits to memory.
What one commit takes is stamped in such a daemon: from the moment the daemon has the command's result to the moment its
commit is published and that is written down. Processes and CPU are counted in this process, with the memory room as a
daemon has it: there a box is no process of the count.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.alone import cut_off
from benchmarks.figures import Figure
from benchmarks.model_records import ModelRecords
from benchmarks.process_tree import ServerTree, adopt_orphans
from benchmarks.programs import Lodger, make_box_user
from benchmarks.report import compare, laid_out, spread, table
from benchmarks.samples import Samples
from benchmarks.server import Server
from benchmarks.step_seams import SeamedLodger
from benchmarks.wire_client import Runtime, WireClient
from support.git_host_server import running_git_host
from support.hanging_host import hanging_host
from support.memory_machines import AGENT, CARD, Machine, note
from support.started_processes import git_commands, started_processes

PAIR_HEAD: Final = (
    "memory",
    "unit",
    "no remote, median (min to max)",
    "remote hangs, median (min to max)",
    "times",
    "",
)
PAIRS: Final = (
    # Half of what two runs of the same differ by on a busy machine.
    Figure("turn.to_finish", "ms", "last model byte to turn_finished, with a commit to sync", floor=1.0),
    Figure("turn.to_model", "ms", "input sent right after it to model request", floor=1.0),
)
ALONE_HEAD: Final = ("memory", "unit", "median (min to max)", "bar", "")
ALONE: Final = (
    (Figure("nothing.processes", "", "nothing to sync: processes started at a turn's start and end"), 0.0),
    (Figure("nothing.cpu", "ms", "nothing to sync: CPU at a turn's start and end"), 2.0),
    (Figure("commit.published", "ms", "one commit: the command's result to published"), 15.0),
    (Figure("commit.gits", "", "one commit: gits started"), 2.0),
)
TURN_LIMIT_S: Final = 60.0
SETTLE_S: Final = 1.0
COUNTED: Final = 20
"""Rounds of nothing to sync, and commits, in this process."""
STAMP: Final = "_with_memory_report"
COMMIT: Final = "cd $MEMORY_DIR && date +%s%N > notes.txt && git add notes.txt && git commit -q --no-verify -m note"


@dataclass(frozen=True, slots=True)
class WithRemote(Lodger):
    """Lodger with a memory remote in its settings; empty: none."""

    remote: str = ""

    def prepare(self, home: Path, workspace: Path, endpoint: str) -> None:
        Lodger.prepare(self, home, workspace, endpoint)
        if self.remote:
            folder = home / "lodger" / "config"
            folder.mkdir(mode=0o700, parents=True)
            (folder / "settings.toml").write_text(f'[memory]\nremote = "{self.remote}"\n')


class MemoryCost:
    """Samples of a machine without a memory remote, of one whose remote hangs, and of what has a bar of its own."""

    def __init__(self, records: ModelRecords, turns: int) -> None:
        self.without, self.hanging, self.alone = Samples(), Samples(), Samples()
        self._records = records
        self._turns = turns

    def samples(self) -> dict[str, object]:
        """All of them, by whose they are."""
        return {"no remote": asdict(self.without), "remote hangs": asdict(self.hanging), "alone": asdict(self.alone)}

    async def round(self) -> None:
        for samples in (self.without, self.hanging, self.alone):
            samples.next_round()
        await self._on_server(self.without, "")
        with hanging_host() as base_url:
            await self._on_server(self.hanging, f"{base_url}/{{agent}}.git")
        await self._publishing()
        await self._counting()

    async def _on_server(self, samples: Samples, remote: str) -> None:
        program = WithRemote(remote=remote)
        server = Server(program, self._records.address, ServerTree(frozenset({self._records.pid})))
        try:
            client, runtime = await _ready(server, program.model)
            for _ in range(self._turns):
                turn = await client.turn(runtime, _committing(), TURN_LIMIT_S)
                records = await self._records.of(turn.tag)
                samples.add("turn.to_model", (records[0].head_ns - turn.sent_ns) / 1e6)
                samples.add("turn.to_finish", (turn.finished_ns - records[-1].last_ns) / 1e6)
            await client.aclose()
        finally:
            server.discard()

    async def _publishing(self) -> None:
        """One command after the other that commits, each in a turn, in a daemon with stamps."""
        program = SeamedLodger(stamps=f"/tmp/lodger-stamps-{os.getpid()}.json")
        server = Server(program, self._records.address, ServerTree(frozenset({self._records.pid})))
        try:
            client, runtime = await _ready(server, program.model)
            for _ in range(self._turns):
                await client.turn(runtime, _committing(), TURN_LIMIT_S)
            await client.aclose()
            server.stop()
            stamps = json.loads(Path(program.stamps).read_text())
        finally:
            server.discard()
            Path(program.stamps).unlink(missing_ok=True)
        took_ms = [(ended_ns - began_ns) / 1e6 for seam, began_ns, ended_ns in stamps if seam == STAMP]
        # The first one starts the gits that stay.
        self.alone.add("commit.published", *took_ms[1:])

    async def _counting(self) -> None:
        with (
            tempfile.TemporaryDirectory(prefix="bench-memory-") as folder,
            running_git_host(Path(folder, "hub")) as hub,
        ):
            machine = Machine(Path(folder, "machine"), hub)
            try:
                await machine.memory.prepare(AGENT, CARD)
                for number in range(COUNTED):
                    machine.commit("fact.md", note(str(number)))
                    with started_processes() as started:
                        await machine.bring_in()
                    if number:
                        self.alone.add("commit.gits", len(git_commands(started)))
                await machine.end_turn()
                for _ in range(COUNTED):
                    began_s = time.process_time()
                    with started_processes() as started:
                        await _turn_without_news(machine)
                    self.alone.add("nothing.cpu", (time.process_time() - began_s) * 1e3)
                    self.alone.add("nothing.processes", len(started))
            finally:
                await machine.memory.aclose()


async def _ready(server: Server, model: str) -> tuple[WireClient, Runtime]:
    """A conversation whose agent has its memory and whose box runs."""
    client = await WireClient.connected(server.url)
    runtime, _ = await client.start(str(server.folder), model, None, "unrestricted")
    await client.turn(runtime, {"steps": [[{"tool": "shell", "arguments": {"command": "true"}}]]}, TURN_LIMIT_S)
    await asyncio.sleep(SETTLE_S)
    return client, runtime


def _committing() -> dict[str, Any]:
    return {"steps": [[{"tool": "shell", "arguments": {"command": COMMIT}}]], "chunks": 3}


async def _turn_without_news(machine: Machine) -> None:
    """All that a turn without tools asks of memory."""
    await machine.memory.freshen(AGENT)
    await machine.memory.compiled(AGENT)
    machine.memory.turn_ended(AGENT, None)
    await machine.memory.settled(AGENT, 5)


def tables(cost: MemoryCost) -> str:
    """Both tables, as Markdown that also reads well as plain text."""
    pairs = [compare(figure, cost.without.summary(figure.key), cost.hanging.summary(figure.key)) for figure in PAIRS]
    cells = [ALONE_HEAD]
    for figure, bar in ALONE:
        summary = cost.alone.summary(figure.key)
        mark = "over" if summary is not None and summary.median > bar else ""
        cells.append((figure.words, figure.unit, spread(summary), f"{bar:g}", mark))
    return f"{table(pairs, PAIR_HEAD)}\n\n{laid_out(cells)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="memory_cost", description="What memory costs beside turns.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=8)
    options = parser.parse_args()
    make_box_user()
    cut_off()
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    records = ModelRecords.start()
    try:
        cost = MemoryCost(records, options.turns)
        for _ in range(options.rounds):
            asyncio.run(cost.round())
    finally:
        records.close()
    print(tables(cost))
    return 0


if __name__ == "__main__":
    sys.exit(main())
