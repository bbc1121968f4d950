"""What the runner loads, and when: in an interpreter of its own, started as in a box."""

import subprocess
import sys
from pathlib import Path

import pytest

import lodger_tools

HEAVY = ("dataclasses", "difflib", "enum", "json", "pathlib", "re", "subprocess", "typing")
RUNNER = f"""
import sys
sys.path.insert(0, sys.argv[1])
from lodger_tools.runner.calls import Call
from lodger_tools.runner.children import Children
from lodger_tools.runner.kept_output import KeptOutput
from lodger_tools.runner.memory_rank import NO_RANK, MemoryRank
from lodger_tools.runner.operations import Operations
from lodger_tools.runner.poll import Poll
from lodger_tools.runner.server import Server

def heavy():
    return [name for name in {HEAVY!r} if name in sys.modules]

print(heavy())
poll = Poll()
operations = Operations(poll, Children(poll, MemoryRank(NO_RANK)), set)
call = Call("k", KeptOutput())
call.watchers.append(lambda: setattr(poll, "running", call.done is None))
operations.start(call, sys.argv[2], eval(sys.argv[3]), sys.argv[4], {{}}, b"")
print(heavy())
poll.run()
print(call.done["status"])
"""


@pytest.mark.parametrize(
    ("kind", "arguments", "loaded"),
    [
        ("run_command", {"command": "true", "timeout_s": None}, []),
        ("find_files", {"pattern": "*"}, ["enum", "re"]),
        ("preview_change", {"change": "write", "path": "a"}, ["difflib", "enum", "re"]),
    ],
)
def test_what_only_some_calls_need_is_loaded_by_the_first_of_them_for_all_later_ones(
    kind: str, arguments: dict[str, object], loaded: list[str], tmp_path: Path
) -> None:
    tools = str(Path(lodger_tools.__path__[0]).parent)
    argv = [sys.executable, "-I", "-S", "-B", "-c", RUNNER, tools, kind, repr(arguments), str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.stdout.splitlines(), done.stderr) == (["[]", repr(loaded), "success"], "")
