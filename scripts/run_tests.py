"""`make test` and `make soak`: every suite in turn, each with its time printed; a failing one does not hide the next.

Each suite is a process of its own, so that one that hangs or crashes is one red line. Seeded suites run a fixed set,
then fresh seeds until their time is up.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Suite:
    name: str
    paths: tuple[str, ...]
    limit_s: int
    """Of the whole suite, so that one that hangs is one red line; not in soak."""
    workers: int = 0


KILL = "tests/integration/test_kill.py"
MEMORY = "tests/integration/memory"
NEWCOMER = "tests/integration/test_newcomer.py"
"""Needs a browser too."""
PROGRAMS = (
    "tests/unit/cli/test_ask.py",
    "tests/unit/cli/test_chat_in_a_terminal.py",
    "tests/unit/cli/test_sandbox_run.py",
    "tests/unit/sandbox/test_groups_in_boxes.py",
)
"""The slowest of the unit tests: commands as a person types them, each with its daemon, and a kernel of its own. They
go with the attacks, where each file is one worker's and starts what it shares once."""
SUITES = (
    Suite("unit", ("tests/unit", *(f"--ignore={path}" for path in PROGRAMS)), 480, workers=2),
    Suite("story", ("tests/integration", f"--ignore={KILL}", f"--ignore={MEMORY}", f"--ignore={NEWCOMER}"), 600),
    Suite("memory", (MEMORY,), 420),
    Suite("kill", (KILL,), 420),
    Suite("simulator", ("tests/simulation",), 300),
    Suite("attacks", ("tests/attacks", *PROGRAMS, "--dist=loadfile"), 480, workers=2),
    Suite("browser", ("tests/browser", NEWCOMER), 480),
)


def run(suite: Suite, soak: bool) -> tuple[int, float]:
    argv = [sys.executable, "-m", "pytest", "-q", *suite.paths]
    if suite.workers:
        argv += ["-n", str(suite.workers)]
    if soak:
        argv += ["--soak"]
    began = time.monotonic()
    try:
        code = subprocess.run(argv, cwd=ROOT, timeout=None if soak else suite.limit_s, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"{suite.name}: not done after {suite.limit_s} s")
        code = 1
    return code, time.monotonic() - began


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--soak", action="store_true")
    options = parser.parse_args()
    lines, worst = [], 0
    for suite in SUITES:
        print(f"== {suite.name}", flush=True)
        code, seconds = run(suite, options.soak)
        worst = worst or code
        lines.append(f"{suite.name:12} {'ok' if code == 0 else 'RED'} {seconds:6.1f} s")
    print("\n".join(lines))
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
