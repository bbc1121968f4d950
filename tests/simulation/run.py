"""The front of the simulator: `make sim SEEDS=200 FIRST=1`.

A seed that breaks a promise is printed with its course and with the one command that plays it again alone.
"""

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from simulation.run_seed import Verdict, play_seed

TELL_EVERY: Final = 1_000
"""Seeds between two lines about how far a long run has come."""


@dataclass
class Summary:
    played: int = 0
    faults: list[Verdict] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)

    def add(self, verdict: Verdict) -> None:
        self.played += 1
        for name, count in verdict.counts.items():
            self.totals[name] = self.totals.get(name, 0) + count
        if verdict.fault is not None:
            self.faults.append(verdict)

    def text(self, seconds: float) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in self.totals.items())
        speed = self.played / max(seconds, 0.001)
        return f"{self.played} seeds in {seconds:.1f} s ({speed:.1f} a second): {counted}; {len(self.faults)} faults"


def be_quiet() -> None:
    """What killed processes leave behind is no news, and what the product logs is listened to by the run."""
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")
    logging.getLogger().addHandler(logging.NullHandler())


def course(verdict: Verdict) -> str:
    """A fault with its whole course; the seed is played again for it."""
    told = play_seed(verdict.seed, keep_trace=True)
    lines = [f"seed {verdict.seed}: {verdict.fault}"]
    lines += [f"  {at_s:12.4f}  {who:10} {text}" for at_s, who, text in told.trace]
    return "\n".join([*lines, f"  again: make sim SEEDS=1 FIRST={verdict.seed}"])


def play_all(seeds: Iterable[int], workers: int) -> Iterator[Verdict]:
    if workers == 1:
        yield from map(play_seed, seeds)
        return
    with ProcessPoolExecutor(workers, initializer=be_quiet) as pool:
        yield from pool.map(play_seed, seeds, chunksize=20)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first fault, and tell no courses")
    options = parser.parse_args()
    be_quiet()
    began, summary = time.monotonic(), Summary()
    for verdict in play_all(range(options.first, options.first + options.seeds), options.workers):
        summary.add(verdict)
        if summary.played % TELL_EVERY == 0:
            print(summary.text(time.monotonic() - began), flush=True)
        if verdict.fault is None:
            continue
        print(f"seed {verdict.seed}: {verdict.fault[:400]}" if options.go_on else course(verdict), flush=True)
        if not options.go_on:
            break
    print(summary.text(time.monotonic() - began))
    return 1 if summary.faults else 0


if __name__ == "__main__":
    sys.exit(main())
