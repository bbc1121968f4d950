"""Measure Lodger beside its peer, in alternating rounds on fresh servers, and print one table.

`make bench` runs it; `--quick` takes two or three minutes. Timings are no pass or fail: the exit code is 0 when both
programs were measured, 1 when a scenario broke, 3 when the peer cannot be had (unless --without-peer).
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks import egress_cost
from benchmarks.alone import cut_off
from benchmarks.memory_cost import MemoryCost, tables
from benchmarks.model_records import ModelRecords
from benchmarks.peer_install import PeerMissing, installed_peer
from benchmarks.process_tree import ServerTree, adopt_orphans
from benchmarks.programs import Lodger, Peer, Program, make_box_user
from benchmarks.report import rows_of, table, verdict_line
from benchmarks.samples import Samples
from benchmarks.scenarios import Scenarios, Sizes
from benchmarks.server import Server
from benchmarks.wire_client import BenchmarkError, WireClient
from lodger_daemon.network.broker_link import BrokerGone

FULL: Final = Sizes(first_turns=5, later_turns=12, tool_turns=3, streams=2, history_samples=10, idle_s=8, settle_s=2)
QUICK: Final = Sizes(first_turns=4, later_turns=8, tool_turns=2, streams=1, history_samples=5, idle_s=3, settle_s=1)
FULL_ROUNDS: Final = 6
QUICK_ROUNDS: Final = 2
FULL_MEMORY_ROUNDS: Final = 3
FULL_EGRESS_ROUNDS: Final = 3
MEMORY_TURNS: Final = 8
PEER_MISSING_CODE: Final = 3

Play = Callable[[Scenarios], Awaitable[None]]


class Benchmark:
    """Both programs' samples, and how a round of one is taken."""

    def __init__(self, programs: list[Program], quick: bool, records: ModelRecords, only: set[str]) -> None:
        self.programs = programs
        self.paces_ms: list[float] = []
        self.samples = {program.name: Samples() for program in programs}
        self._sizes = QUICK if quick else FULL
        self._memory_in_every_round = not quick  # the steadiest figures, and the slowest to take
        self._records = records
        self._only = only
        self.memory_cost = MemoryCost(records, MEMORY_TURNS) if self._wanted("sync") else None
        self._memory_cost_rounds = 1 if quick else FULL_MEMORY_ROUNDS
        self.egress_cost = egress_cost.EgressCost() if self._wanted("egress") else None
        self._egress_rounds = 1 if quick else FULL_EGRESS_ROUNDS
        self._tree = ServerTree(frozenset({records.pid}))

    async def round_of(self, program: Program) -> None:
        """Fresh servers: one for the start, one for the times, one for memory, one for boxes."""
        samples = self.samples[program.name]
        samples.next_round()
        self.paces_ms.append(pace_ms())
        if self._wanted("start"):
            await self._on_server(program, samples, self._start)
        await self._on_server(program, samples, self._times)
        if self._wanted("memory") and (self._memory_in_every_round or len(samples.rounds) == 1):
            await self._on_server(program, samples, self._memory)
        if self._wanted("boxes") and (self._memory_in_every_round or len(samples.rounds) == 1):
            await self._on_server(program, samples, self._boxes)

    async def cost_of_memory(self) -> None:
        """Of Lodger alone: the peer has no memory remote to compare with."""
        if self.memory_cost is None or not any(isinstance(program, Lodger) for program in self.programs):
            return
        for _ in range(self._memory_cost_rounds):
            try:
                await self.memory_cost.round()
            except (BenchmarkError, TimeoutError, OSError) as error:
                self.memory_cost.alone.trouble.append(f"sync: {error or type(error).__name__}")

    async def cost_of_egress(self) -> None:
        """Of Lodger alone: the peer's tools reach every network by themselves."""
        if self.egress_cost is None or not any(isinstance(program, Lodger) for program in self.programs):
            return
        for _ in range(self._egress_rounds):
            try:
                await self.egress_cost.round()
            except (BenchmarkError, BrokerGone, TimeoutError, OSError) as error:
                self.egress_cost.trouble.append(f"egress: {error or type(error).__name__}")

    def _wanted(self, part: str) -> bool:
        return not self._only or part in self._only

    async def _on_server(
        self, program: Program, samples: Samples, work: Callable[[Program, Samples, Server], Awaitable[None]]
    ) -> None:
        try:
            server = Server(program, self._records.address, self._tree)
        except BenchmarkError as error:
            samples.trouble.append(f"start: {error}")
            return
        try:
            samples.add("start.listening", server.listening_ms)
            await work(program, samples, server)
            samples.add("stop", server.stop())
        except (BenchmarkError, TimeoutError, OSError) as error:
            samples.trouble.append(f"server: {error}\n{server.log_tail()}")
        finally:
            server.discard()

    async def _start(self, program: Program, samples: Samples, server: Server) -> None:
        client = await WireClient.connected(server.url)
        await client.start(str(server.folder), program.model, None, "unrestricted")
        samples.add("start.usable", (time.monotonic() - server.started) * 1e3)
        await client.aclose()

    async def _times(self, program: Program, samples: Samples, server: Server) -> None:
        plays: dict[str, Play] = {
            "turns": Scenarios.plain_turns,
            "tools": Scenarios.tool_steps,
            "streams": Scenarios.streams,
            "together": Scenarios.together,
            "history": Scenarios.long_conversation,
        }
        client, scenarios = await self._connected(program, samples, server)
        for name, play in plays.items():
            if self._wanted(name):
                await self._attempt(name, play(scenarios), samples, server)
        await client.aclose()

    async def _memory(self, program: Program, samples: Samples, server: Server) -> None:
        await asyncio.sleep(self._sizes.settle_s)
        memory = self._tree.memory()
        samples.add("rss.listening", memory.rss_mib)
        if memory.pss_mib is not None:
            samples.add("pss.listening", memory.pss_mib)
        samples.notes["processes, listening"] = str(memory)
        client, scenarios = await self._connected(program, samples, server, before="idle")
        await self._attempt("memory", scenarios.memory(), samples, server)
        await client.aclose()

    async def _boxes(self, program: Program, samples: Samples, server: Server) -> None:
        client, scenarios = await self._connected(program, samples, server)
        await self._attempt("boxes", scenarios.boxes(), samples, server)
        await client.aclose()

    async def _connected(
        self, program: Program, samples: Samples, server: Server, before: str = ""
    ) -> tuple[WireClient, Scenarios]:
        """A client and its scenarios; `before` names a figure of idling to take while no client is there yet."""
        if before:
            running_s, began = self._tree.running_s(), time.monotonic()
            await asyncio.sleep(self._sizes.idle_s)
            samples.add(before, max(0.0, self._tree.running_s() - running_s) / (time.monotonic() - began) * 100)
        client = await WireClient.connected(server.url)
        scenarios = Scenarios(client, program.model, server.folder, self._tree, self._records, samples, self._sizes)
        return client, scenarios

    @staticmethod
    async def _attempt(name: str, playing: Awaitable[None], samples: Samples, server: Server) -> None:
        """Play one scenario. One that breaks leaves its rows empty and a line of trouble; the others still run."""
        try:
            await playing
        except Exception as error:  # whatever a half-working server provokes must not cost the other rows
            where = traceback.extract_tb(error.__traceback__)[-1]
            samples.trouble.append(
                f"{name}: {error or type(error).__name__} ({where.name}, line {where.lineno})\n{server.log_tail()}"
            )


def pace_ms() -> float:
    """The time of a fixed piece of work: how fast the machine is at this moment."""
    began = time.perf_counter()
    sum(number ^ (number >> 3) for number in range(1_000_000))
    return (time.perf_counter() - began) * 1e3


def main() -> int:
    options = _options()
    programs: list[Program] = []
    if not options.without_peer:
        try:
            programs.append(Peer(options.peer or installed_peer()))
        except PeerMissing as error:
            print(f"{error}\nWith --without-peer Lodger is measured alone.")
            return PEER_MISSING_CODE
    if not options.without_lodger:
        make_box_user()
        programs.append(Lodger())
    alone = cut_off()
    adopt_orphans()
    signal.signal(signal.SIGTERM, _end)
    records = ModelRecords.start()
    try:
        benchmark = Benchmark(programs, options.quick, records, set(filter(None, options.only.split(","))))
        asyncio.run(_rounds(benchmark, options.rounds or (QUICK_ROUNDS if options.quick else FULL_ROUNDS)))
    finally:
        records.close()
    return _report(benchmark, alone, options.json)


def _end(number: int, _frame: object) -> None:
    """A kill unwinds like Ctrl-C, so that no server is left behind."""
    sys.exit(128 + number)


async def _rounds(benchmark: Benchmark, rounds: int) -> None:
    for number in range(rounds):
        for program in benchmark.programs[:: 1 if number % 2 == 0 else -1]:
            began = time.monotonic()
            await benchmark.round_of(program)
            print(f"round {number + 1} of {rounds}, {program.name}: {time.monotonic() - began:.0f} s", flush=True)
    await benchmark.cost_of_memory()
    await benchmark.cost_of_egress()


def _report(benchmark: Benchmark, alone: bool, file: str) -> int:
    samples = benchmark.samples
    rows = rows_of(samples.get("letta", Samples()), samples.get("lodger", Samples()))
    versions = ", ".join(f"{program.name} {program.version()}" for program in benchmark.programs)
    network = "loopback only" if alone else "the machine's own network"
    machine = f"{os.cpu_count()} processors, kernel {platform.release()}, Python {platform.python_version()}, {network}"
    cost, egress = benchmark.memory_cost, benchmark.egress_cost
    broken = [f"{name}, {trouble}" for name, its in samples.items() for trouble in its.trouble]
    broken += [] if cost is None else [f"lodger, {trouble}" for trouble in cost.alone.trouble]
    broken += [] if egress is None else [f"lodger, {trouble}" for trouble in egress.trouble]
    if file:
        whole = {
            "versions": versions,
            "machine": machine,
            "programs": {name: asdict(its) for name, its in samples.items()},
            "memory": {} if cost is None else cost.samples(),
            "egress": {} if egress is None else egress.samples(),
        }
        Path(file).write_text(json.dumps(whole, indent=1) + "\n")
    for trouble in broken:
        print(f"BROKEN {trouble}")
    print(f"\n{table(rows)}\n\nVersions: {versions}. Machine: {machine}.")
    print(
        f"A fixed piece of work took {min(benchmark.paces_ms):.0f} to {max(benchmark.paces_ms):.0f} ms: "
        "the wider apart, the less even the machine was."
    )
    print("Each cell: median of the round medians (smallest to largest). RSS is summed over the process tree of both.")
    print(verdict_line(rows))
    if cost is not None and cost.alone.rounds:
        print(f"\n{tables(cost)}")
    if egress is not None and egress.ways[egress_cost.STRAIGHT].rounds:
        print(f"\n{egress_cost.table(egress)}")
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="Measure Lodger beside its peer.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and samples: two or three minutes")
    parser.add_argument("--rounds", type=int, default=0, help="how many rounds instead of the usual number")
    parser.add_argument("--without-peer", action="store_true", help="measure Lodger alone")
    parser.add_argument("--without-lodger", action="store_true", help="measure the peer alone")
    parser.add_argument("--peer", default="", help="the peer's command, when it is installed already")
    parser.add_argument("--json", default="", metavar="FILE", help="write every sample and note there")
    parser.add_argument(
        "--only", default="", help="parts by comma: start,turns,tools,streams,together,history,memory,boxes,sync,egress"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
