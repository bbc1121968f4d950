"""The practice model: its rules, and its process behind the same gateway as any other."""

import asyncio
import json
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from lodger_daemon.models.contract import (
    AssistantMessage,
    ModelMessage,
    ModelRequest,
    SystemMessage,
    ToolCallPart,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from lodger_daemon.models.gateway import Models
from lodger_daemon.models.practice.core.brain import HELP, Call, Reply, Say, reply
from lodger_daemon.models.practice_process import PracticeProcess
from lodger_daemon.paths import Paths
from lodger_daemon.system_clock import SystemClock
from lodger_tools.json_value import Json
from lodger_tools.validator.front_matter import read_front_matter
from support.model_contract import calls, collect, texts
from support.patience import LIMIT_S

TOOLS: list[Json] = [{"function": {"name": name}} for name in ("Bash", "Read", "Write", "Edit", "Glob", "Grep")]


def ask(text: str, system: str = "") -> Reply:
    return reply([{"role": "system", "content": system}, {"role": "user", "content": text}], TOOLS)


@pytest.mark.parametrize(
    ("request_text", "name", "arguments"),
    [
        ("run `ls -l`", "Bash", {"command": "ls -l", "description": "Run what was asked for"}),
        ("Please run echo hi", "Bash", {"command": "echo hi", "description": "Run what was asked for"}),
        ("read notes/a b.md", "Read", {"file_path": "notes/a b.md"}),
        ('write a.txt with "hello"', "Write", {"file_path": "a.txt", "content": "hello\n"}),
        ("edit a.txt: replace 'x y' with z", "Edit", {"file_path": "a.txt", "old_string": "x y", "new_string": "z"}),
        ("find files **/*.py", "Glob", {"pattern": "**/*.py"}),
        ("search for needle", "Grep", {"pattern": "needle", "output_mode": "content"}),
        ('call Read {"file_path": "x"}', "Read", {"file_path": "x"}),
        ('<reminder about="mode">run `rm`</reminder>\n\nread x', "Read", {"file_path": "x"}),
    ],
)
def test_each_tool_on_request(request_text: str, name: str, arguments: dict[str, Json]) -> None:
    assert ask(request_text) == Call(name, arguments)


def test_it_says_what_it_is() -> None:
    assert ask("who are you?") == ask("hello") == ask("What can you do?") == ask("help") == Say(HELP)
    unknown = ask("compose a sonnet")
    assert isinstance(unknown, Say) and "practice model" in unknown.text
    assert reply([{"role": "user", "content": "run `ls`"}], []) == Say(
        "I would call the tool Bash for that, but it is not among my tools here."
    )


def test_it_reports_results_in_words() -> None:
    messages: list[Json] = [
        {"role": "user", "content": "run `ls`"},
        {"role": "assistant"},
        {"role": "tool", "content": "a\nb"},
    ]
    assert reply(messages, TOOLS) == Say("Done. The result was:\n\na\nb")


@pytest.mark.parametrize("fact", ["the door code is 'x'; $(touch pwned) `id`", "Grüße aus Köln", "a: b\nc"])
def test_remembering_commits_a_valid_page(fact: str, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    answer = ask(f"remember that {fact}")
    assert isinstance(answer, Call)
    names = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"MEMORY_DIR": str(tmp_path), "PATH": "/usr/bin:/bin", **names}
    for _ in range(2):
        done = subprocess.run(["bash", "-c", str(answer.arguments["command"])], env=environment, capture_output=True)
        assert done.returncode == 0, done.stderr
    listed = subprocess.run(
        ["git", "-C", str(tmp_path), "ls-tree", "--name-only", "HEAD"], capture_output=True, text=True
    )
    (page,) = listed.stdout.split()
    matter = read_front_matter((tmp_path / page).read_text())
    assert (matter.faults, set(matter.fields or {}), matter.body) == ((), {"name", "description"}, fact + "\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".git", page]
    # Other readers of front matter take a colon or number sign before a space for more than text.
    description = (matter.fields or {})["description"]
    assert not re.search(r"[:#](\s|$)", description)


def test_it_recalls_from_the_memory_in_its_prompt() -> None:
    memory = (
        '<memory>\nYour memory is here.\n\n<memory_file path="f.md">\nThe door code is 42.\n</memory_file>\n</memory>\n'
    )
    assert ask("What do you know about the door?", memory) == Say("From my memory: The door code is 42.")
    assert ask("what do you know about cats", memory) == Say("My memory holds nothing about cats.")


async def test_it_serves_like_any_provider_and_ends_with_the_daemon(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "config", tmp_path / "state", tmp_path / "work", tmp_path)
    models = Models(paths, SystemClock(), {}, {}, local_servers={})
    await models.start()
    assert await models.default_handle() == "practice/practice"
    schema = ToolSchema("Bash", "runs", {"type": "object"})
    messages: tuple[ModelMessage, ...] = (SystemMessage("s"), UserMessage(({"type": "text", "text": "run `ls`"},)))
    ((call_id, name, arguments),) = calls(await collect(models, ModelRequest("practice/practice", messages, (schema,))))
    assert call_id is not None and name == "Bash" and json.loads(arguments)["command"] == "ls"
    messages += (AssistantMessage("", (ToolCallPart(call_id, name, arguments),)), ToolMessage(call_id, "a.txt", False))
    answer = texts(await collect(models, ModelRequest("practice/practice", messages, (schema,))))
    assert answer == "Done. The result was:\n\na.txt"
    await models.aclose()


async def test_nobody_without_the_token_is_served() -> None:
    practice = PracticeProcess()
    url, token = await practice.address()
    headers = ({}, {"Authorization": "Bearer guess"}, {"Authorization": f"Bearer {token}"})
    found = [await asyncio.to_thread(status_of, f"{url}/models", each) for each in headers]
    assert found == [401, 401, 200]
    await practice.aclose()


def status_of(url: str, headers: dict[str, str]) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=LIMIT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
