"""The scripted model endpoint, over real HTTP in its own process, and the tree that counts what a server leaves."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.model_records import ModelRecords
from support.patience import LIMIT_S

TESTS = Path(__file__).resolve().parents[2]
BASH = {
    "type": "function",
    "function": {"name": "Bash", "parameters": {"required": ["command", "why"], "properties": {}}},
}


@pytest.fixture
def records() -> Iterator[ModelRecords]:
    started = ModelRecords.start()
    yield started
    started.close()


def ask(address: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    body = {"model": "stub-model", "stream": True, "messages": messages, "tools": [BASH]}
    request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        lines = [line.removeprefix("data: ") for line in reply.read().decode().split("\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def user(script: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": f"please <<script {json.dumps(script)}>>"}]}


async def test_the_script_is_played_step_by_step_and_timed(records: ModelRecords) -> None:
    before_ns = time.monotonic_ns()
    call = {"tool": "shell", "arguments": {"command": "echo hi"}}
    messages = [user({"tag": "old", "chunks": 9}), user({"tag": "t", "chunks": 2, "steps": [[call]]})]
    chunks = ask(records.address, messages)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    calls = [delta["tool_calls"][0]["function"] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["name"] == "Bash"
    assert json.loads("".join(piece["arguments"] for piece in calls)) == {"command": "echo hi"}

    messages += [{"role": "assistant", "tool_calls": [{}]}, {"role": "tool", "content": "hi"}]
    chunks = ask(records.address, messages)
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]) == "w00000 w00001 "
    assert chunks[-1]["usage"]["completion_tokens"] == 2

    first, second = await records.of("t")
    assert (first.step, second.step, second.messages, second.tools) == (0, 1, 4, ["Bash"])
    assert before_ns < first.head_ns < first.last_ns < second.head_ns < second.chunks_ns[0] <= second.last_ns
    assert await records.of("old") == []


def test_a_message_without_a_script_gets_one_word(records: ModelRecords) -> None:
    chunks = ask(records.address, [{"role": "user", "content": "a title, please"}])
    assert [c["choices"][0]["delta"].get("content") for c in chunks if c["choices"]] == ["", "ok", None]


def test_an_orphan_of_a_server_is_counted_and_ended() -> None:
    program = """
import subprocess, sys, time
from benchmarks.process_tree import ServerTree, adopt_orphans
adopt_orphans()
tree = ServerTree(frozenset())
orphan = subprocess.run(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True)
assert tree.pids() == [int(orphan.stdout)], (tree.pids(), orphan.stdout)
assert [process.name for process in tree.memory().processes] == ["sleep"]
tree.end()
assert tree.pids() == []
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=TESTS, timeout=20)
