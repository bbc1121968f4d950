"""A name that nobody has is answered alike by every command: with 1, as whatever is refused; with 4 by `ask` and
`chat`, which tell so what the daemon refused; with 2 where the help lists the few names there are. Programs read why.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lodger_cli.terminal import Exit
from support.endpoint_process import model_endpoint
from support.patience import LIMIT_S

NOBODY = "nobody-has-this"
AGENT = f"agent-{NOBODY}"
OF_AN_AGENT = [
    ("status",),
    ("log",),
    ("show", "a.md"),
    ("diff",),
    ("pull",),
    ("push",),
    ("resolve",),
    ("resolve", "--ours"),
    ("shared",),
    ("kept",),
    ("writers",),
    ("export", "folder"),
    ("backup",),
    ("check",),
]
OF_A_SHARED_MEMORY = [
    ("status",),
    ("log",),
    ("show", "a.md"),
    ("diff",),
    ("pull",),
    ("push",),
    ("resolve",),
    ("kept",),
]
FAILED = [
    ("devices", "revoke", NOBODY),
    ("devices", "rotate", NOBODY),
    ("devices", "release", NOBODY),
    *(("memory", *words, "--agent", AGENT) for words in OF_AN_AGENT),
    *(("memory", *words, "--shared", NOBODY) for words in OF_A_SHARED_MEMORY),
    ("memory", "log", NOBODY),
    ("memory", "show", NOBODY),
    ("memory", "show", "a.md", "--at", "0123456789"),
    ("memory", "diff", "0123456789"),
    ("memory", "export", "folder", "--at", "0123456789"),
    ("memory", "resolve", NOBODY, "--ours"),
    ("memory", "kept", NOBODY),
    ("memory", "kept", NOBODY, "--restore"),
    ("memory", "kept", NOBODY, "--drop", "--yes"),
    ("memory", "writers", NOBODY),
    ("memory", "writers", NOBODY, "--cancel"),
    ("memory", "writers", NOBODY, "--merge"),
    ("memory", "writers", NOBODY, "--drop"),
    ("memory", "unshare", NOBODY, "--yes"),
    ("memory", "unshare", NOBODY, "--undo"),
    ("memory", "attach", NOBODY),
    ("memory", "detach", NOBODY),
    ("memory", "detach", "team"),
    ("memory", "detach", "team", "--agent", AGENT),
    ("memory", "token", "mirror", "--remove"),
    ("connect", NOBODY, "--remove"),
    ("ports", "open", "59999"),
    ("ports", "close", "59999"),
    ("join", "URL", NOBODY),
]
REFUSED = [
    ("ask", "hello", "--agent", AGENT),
    ("ask", "hello", "--conversation", f"conv-{NOBODY}"),
    ("ask", "hello", "--model", f"{NOBODY}/model"),
    ("chat", "--agent", AGENT),
    ("chat", "--conversation", f"conv-{NOBODY}"),
    ("chat", "--model", f"{NOBODY}/model"),
    ("chat", "--machine", NOBODY),
]
MISUSED = [
    ("ask", "hello", "--mode", NOBODY),
    ("chat", "--mode", NOBODY),
    ("logs", "--part", NOBODY),
    ("memory", "token", NOBODY),
    ("service", "install", "--only", NOBODY),
]


class Machine:
    """A hub and a daemon, an agent that has a memory, and a shared memory that it does not have."""

    def __init__(self, home: Path, endpoint_url: str) -> None:
        self.home = home
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LODGER_HOME": str(home / "lodger"),
            "LANG": "C.UTF-8",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            "OPENAI_BASE_URL": f"{endpoint_url}/v1",
            "OPENAI_API_KEY": "a-key-for-tests",
        }
        self.hub_url = ""

    def argv(self, *words: str) -> list[str]:
        named = (self.hub_url if word == "URL" else word for word in words)
        return [sys.executable, "-P", "-m", "lodger_cli.main", *named]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*words),
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * LIMIT_S,
        )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with model_endpoint() as endpoint:
        machine = Machine(tmp_path_factory.mktemp("names"), endpoint.url)
        up = subprocess.Popen(
            machine.argv("up", "--json", "--port", "0"),
            cwd=machine.home,
            env=machine.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert up.stdout is not None
            machine.hub_url = json.loads(up.stdout.readline())["hub_url"]
            assert machine.run("ask", "hello").returncode == Exit.OK
            assert machine.run("memory", "share", "team").returncode == Exit.OK
            yield machine
        finally:
            up.terminate()
            up.communicate(timeout=LIMIT_S)


CASES = [(Exit.FAILED, FAILED), (Exit.REFUSED, REFUSED), (Exit.USAGE, MISUSED)]


@pytest.mark.parametrize(
    ("words", "code"), [pytest.param(words, code, id=" ".join(words)) for code, cases in CASES for words in cases]
)
def test_a_name_that_nobody_has(machine: Machine, words: tuple[str, ...], code: Exit) -> None:
    ended = machine.run(*words, "--json")
    assert ended.returncode == code, (ended.stdout, ended.stderr)
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [one["type"] for one in told] == ["error"]
    assert told[0]["message"]
    assert "Traceback" not in ended.stderr
    assert ended.stderr.strip()
