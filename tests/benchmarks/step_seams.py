"""Where the time of a tool step goes: one daemon, its seams stamped, and when each began and how long it took.

    PYTHONPATH=tests .venv/bin/python -m benchmarks.step_seams [--only read,shell] [--turns 12]

Each step counts from the last byte of the model's answer to the head of the next request. The daemon runs as in `make
bench`, but a number of its functions are wrapped by ones that read the clock; that costs it some microseconds each.
"""

import argparse
import asyncio
import functools
import importlib
import inspect
import itertools
import json
import os
import runpy
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from benchmarks.alone import cut_off
from benchmarks.model_records import ModelRecords
from benchmarks.process_tree import ServerTree, adopt_orphans
from benchmarks.programs import Lodger, make_box_user
from benchmarks.server import Server
from benchmarks.wire_client import Runtime, WireClient

STEPS_PER_TURN: Final = 5
TURN_LIMIT_S: Final = 60.0
Windows: TypeAlias = list[tuple[int, int]]
"""Begin and end of each step, in nanoseconds of CLOCK_MONOTONIC."""
QUIET_S: Final = 0.1
STAMPS: Final = "LODGER_BENCHMARK_STAMPS"
"""The variable that names the file for stamps."""

SEAMS: Final = (
    "lodger_daemon.turns.streaming:_take",
    "lodger_daemon.turns.streaming:_completed",
    "lodger_daemon.turns.step_work:admit",
    "lodger_daemon.turns.recording:record",
    "lodger_daemon.turns.judge_work:judge_calls",
    "lodger_daemon.turns.call_work:run_call",
    "lodger_daemon.turns.call_work:_check_again",
    "lodger_daemon.turns.call_work:_write_start",
    "lodger_daemon.turns.call_work:execute",
    "lodger_daemon.workspace_guard.git_guard:GitGuard.begin",
    "lodger_daemon.workspace_guard.mount_watch:MountWatch.judge",
    "lodger_tools.box.link:BoxLink.run",
    "lodger_tools.box.link:BoxLink.run_a_while",
    "lodger_daemon.workspace_guard.git_guard:GitGuard.end",
    "lodger_tools.toolbox:LodgerToolbox.result",
    "lodger_daemon.turns.call_work:_with_memory_report",
    "lodger_daemon.turns.call_work:_record_result",
    "lodger_daemon.turns.preparing:prepare",
    "lodger_daemon.turns.preparing:build",
    "lodger_daemon.turns.streaming:_check_owner",
    "lodger_daemon.turns.streaming:_stream",
    "lodger_daemon.turns.event_log:EventLog.publish",
    "lodger_daemon.store.writer:Writer._transaction",
    "lodger_daemon.store.writer:Writer._deliver",
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """One passage through a seam."""

    seam: str
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class SeamedLodger(Lodger):
    """The daemon with stamps."""

    stamps: str = ""

    def environment(self, home: Path, endpoint: str) -> dict[str, str]:
        tests = str(Path(__file__).parents[1])
        return Lodger.environment(self, home, endpoint) | {STAMPS: self.stamps, "PYTHONPATH": tests}

    def serve(self, port: int) -> list[str]:
        return [sys.executable, "-m", "benchmarks.step_seams", *Lodger.serve(self, port)]


def serve_stamped(file: str, argv: list[str]) -> None:
    """In the daemon's process: wrap the seams, run the program, write the stamps at its end."""
    stamps: list[tuple[str, int, int]] = []
    for seam in SEAMS:
        _wrap(seam, stamps)
    leave = os._exit

    def write_and_leave(status: int) -> NoReturn:
        Path(file).write_text(json.dumps(stamps))
        leave(status)

    # The daemon ends so, without unwinding.
    os._exit = write_and_leave
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")


def _wrap(seam: str, stamps: list[tuple[str, int, int]]) -> None:
    module_name, _, name = seam.partition(":")
    owner: Any = importlib.import_module(module_name)
    *classes, last = name.split(".")
    for part in classes:
        owner = getattr(owner, part)
    original = getattr(owner, last)
    stamped = _stamped(name, original, stamps)
    setattr(owner, last, stamped)
    # Whoever has imported it by name has the unwrapped one.
    for module in [module for key, module in sys.modules.items() if key.startswith("lodger_")]:
        for attribute, value in list(vars(module).items()):
            if value is original:
                setattr(module, attribute, stamped)


def _stamped(name: str, original: Callable[..., Any], stamps: list[tuple[str, int, int]]) -> Callable[..., Any]:
    clock = time.monotonic_ns

    @functools.wraps(original)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        began = clock()
        try:
            return await original(*args, **kwargs)
        finally:
            stamps.append((name, began, clock()))

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        began = clock()
        try:
            return original(*args, **kwargs)
        finally:
            stamps.append((name, began, clock()))

    return awaited if inspect.iscoroutinefunction(original) else called


async def play(server: Server, model: str, records: ModelRecords, kinds: list[str], turns: int) -> dict[str, Windows]:
    """Turns of five steps of each kind; from when to when each step lasted."""
    client = await WireClient.connected(server.url)
    scripts = _scripts(server.folder)
    windows: dict[str, Windows] = {}
    agent_id: str | None = None
    for kind in kinds:
        runtime, _ = await client.start(str(server.folder), model, agent_id, "unrestricted")
        agent_id = runtime["agent_id"]
        await _turn(client, runtime, records, scripts[kind])
        windows[kind] = []
        for _ in range(turns):
            await asyncio.sleep(QUIET_S)
            windows[kind] += await _turn(client, runtime, records, scripts[kind])
    await client.aclose()
    return windows


def _scripts(folder: Path) -> dict[str, dict[str, Any]]:
    lines = folder / "lines.txt"
    lines.write_text("".join(f"line {number}\n" for number in range(40)))
    return {
        "read": {"tool": "read", "arguments": {"path": str(lines)}},
        "write": {"tool": "write", "arguments": {"path": str(folder / "written.txt"), "content": "hello\n"}},
        "shell": {"tool": "shell", "arguments": {"command": "echo hi"}},
    }


async def _turn(client: WireClient, runtime: Runtime, records: ModelRecords, call: dict[str, Any]) -> Windows:
    turn = await client.turn(runtime, {"steps": [[call]] * STEPS_PER_TURN, "chunks": 3}, TURN_LIMIT_S)
    seen = await records.of(turn.tag)
    return [(before.last_ns, after.head_ns) for before, after in itertools.pairwise(seen)]


def report(kind: str, windows: Windows, stamps: list[Stamp]) -> str:
    """Medians over all steps of one kind: when a seam was first entered, how often, how long in sum."""
    took_ms = [(end - begin) / 1e6 for begin, end in windows]
    lines = [
        f"\n{kind}: a step takes {statistics.median(took_ms):.2f} ms (best {min(took_ms):.2f}, n = {len(windows)})"
    ]
    lines.append(f"  {'began':>7} {'times':>6} {'ms':>7}")
    seen: dict[str, list[tuple[float, int, float]]] = defaultdict(list)
    for begin, end in windows:
        inside: dict[str, list[Stamp]] = defaultdict(list)
        for stamp in stamps:
            if begin <= stamp.began_ns <= end:
                inside[stamp.seam].append(stamp)
        for seam, its in inside.items():
            lasted = sum(min(stamp.ended_ns, end) - stamp.began_ns for stamp in its)
            seen[seam].append(((its[0].began_ns - begin) / 1e6, len(its), lasted / 1e6))
    rows = []
    for seam, cells in seen.items():
        if 2 * len(cells) >= len(windows):
            began, times, lasted_ms = (statistics.median(column) for column in zip(*cells, strict=True))
            rows.append((began, f"  {began:7.2f} {times:6.0f} {lasted_ms:7.2f}  {seam}"))
    return "\n".join([*lines, *(row for _, row in sorted(rows))])


def main() -> int:
    if STAMPS in os.environ:
        serve_stamped(os.environ.pop(STAMPS), sys.argv[1:])
        return 0
    parser = argparse.ArgumentParser(prog="step_seams", description="Where the time of a tool step goes.")
    parser.add_argument("--only", default="shell,read,write")
    parser.add_argument("--turns", type=int, default=12)
    options = parser.parse_args()
    make_box_user()
    cut_off()
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    records = ModelRecords.start()
    try:
        _measure(records, options.only.split(","), options.turns)
    finally:
        records.close()
    return 0


def _measure(records: ModelRecords, kinds: list[str], turns: int) -> None:
    program = SeamedLodger(stamps=f"/tmp/lodger-stamps-{os.getpid()}.json")
    server = Server(program, records.address, ServerTree(frozenset({records.pid})))
    try:
        windows = asyncio.run(play(server, program.model, records, kinds, turns))
        server.stop()
        stamps = sorted((Stamp(*row) for row in json.loads(Path(program.stamps).read_text())), key=_by_time)
    finally:
        server.discard()
        Path(program.stamps).unlink(missing_ok=True)
    for kind, its in windows.items():
        print(report(kind, its, stamps))


def _by_time(stamp: Stamp) -> int:
    return stamp.began_ns


if __name__ == "__main__":
    sys.exit(main())
