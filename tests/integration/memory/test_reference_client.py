"""The reference's memory client at our hub (CONTROL-PLANE-REST.md section 9): stock git, told what that client tells
it, against the real hub; and a machine of ours that takes in and writes what it made, in either layout."""

import base64
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.remote import MemoryRemote
from support.hub_rig import Hub, hub_in_a_thread
from support.memory_conflicts import in_order
from support.memory_machines import AGENT, CARD, Machine
from support.patience import LIMIT_S
from support.plain_boxes import agent_git


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_in_a_thread(tmp_path / "hub") as running:
        yield running


@dataclass(frozen=True, slots=True)
class ReferenceClient:
    """One machine's. The user's name is fixed, the key is the password, and it is sent unasked on every request."""

    hub: Hub
    key: str
    place: Path

    @property
    def url(self) -> str:
        return f"{self.hub.url}/v1/git/{AGENT}/state.git"

    def try_git(self, *argv: str) -> subprocess.CompletedProcess[str]:
        header = "Authorization: Basic " + base64.b64encode(f"letta:{self.key}".encode()).decode()
        told = ("-c", f"http.extraHeader={header}", "-c", "credential.helper=", "-c", "core.askPass=")
        identity = ("-c", "user.name=Ada", "-c", f"user.email={AGENT}@letta.com")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.place.parent / "home"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }
        words = ("git", *told, *identity, *argv)
        return subprocess.run(
            words, cwd=self.place.parent, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    def git(self, *argv: str) -> str:
        done = self.try_git("-C", str(self.place), *argv)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def clone(self) -> None:
        done = self.try_git("clone", self.url, str(self.place))
        assert done.returncode == 0, done.stderr

    def commit(self, files: dict[str, str], message: str = "a note") -> str:
        for name, text in files.items():
            (self.place / name).parent.mkdir(parents=True, exist_ok=True)
            (self.place / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")


def client(hub: Hub, place: Path, key: str = "") -> ReferenceClient:
    return ReferenceClient(hub, key or hub.token("machine"), place)


def machine(hub: Hub, folder: Path) -> Machine:
    return Machine(folder, None, remote=MemoryRemote(hub.url, lambda: hub.token("machine")))


FIRST = {
    "system/persona.md": "---\ndescription: Who I am\n---\n\nI am Ada.\n",
    "system/human.md": "---\ndescription: Whom I help\nlimit: 5000\n---\n\nGrace.\n",
    "reference/tea.md": "---\ndescription: How tea is made\n---\n\nWith water.\n",
    "notes/free.md": "no front matter is asked for here\n",
}
SECOND = {
    "MEMORY.md": "# Memory\n",
    "persona.md": "---\nname: persona\ndescription: Who I am\n---\n\nI am Ada.\n",
    "people/MEMORY.md": "- grace.md\n",
    "people/grace.md": "---\nname: grace\ndescription: Whom I help\n---\n\nGrace.\n",
}
ITS_NOTE = {
    "system/": "---\ndescription: A fact\n---\n\nThe harbour is at the north.\n",
    "": "---\nname: fact\ndescription: A fact\n---\n\nThe harbour is at the north.\n",
}


@pytest.mark.parametrize(("files", "core"), [(FIRST, "system/"), (SECOND, "")], ids=["v1", "v2"])
async def test_clone_pull_and_push_beside_a_machine_of_ours(
    hub: Hub, tmp_path: Path, files: dict[str, str], core: str
) -> None:
    one = client(hub, tmp_path / "one")
    one.clone()
    one.git("checkout", "-q", "-B", "main")
    head = one.commit(files, "Initialize memory")
    one.git("push", "-u", "origin", "main")

    ours = machine(hub, tmp_path / "ours")
    try:
        await ours.memory.prepare(AGENT, CARD)
        assert ours.published.head() == head
        text = (await ours.memory.compiled(AGENT)).text
        assert "I am Ada." in text
        assert ("With water." in text, "A fact" in text) == (False, False)
        ours.commit(f"{core}fact.md", ITS_NOTE[core])
        assert (await ours.end_turn()).outcome is SyncOutcome.PUSHED

        # Not a fast-forward: it is refused, and the client pulls and tries again.
        one.commit({"reference/more.md": FIRST["reference/tea.md"]} if core else {"more/MEMORY.md": "- nothing yet\n"})
        refused = one.try_git("-C", str(one.place), "push", "origin", "main")
        assert (refused.returncode, "fetch first" in refused.stderr) == (1, True)
        one.git("pull", "-q", "--rebase", "origin", "main")
        one.git("push", "origin", "main")
        assert (one.place / core / "fact.md").read_text() == ITS_NOTE[core]

        ours.memory.head_announced(AGENT, one.git("rev-parse", "HEAD"))
        assert (await ours.memory.settled(AGENT, LIMIT_S)).outcome is SyncOutcome.CLEAN
        assert ours.published.head() == one.git("rev-parse", "HEAD")
        in_order(ours)

        two = client(hub, tmp_path / "two")
        two.clone()
        assert two.git("rev-parse", "main") == ours.published.head()
        assert two.git("symbolic-ref", "HEAD") == "refs/heads/main"
        assert agent_git(two.place, "ls-files").split() == agent_git(ours.checkout, "ls-files").split()
    finally:
        await ours.memory.aclose()


def test_an_empty_repository_can_be_cloned_and_a_large_first_push_arrives(hub: Hub, tmp_path: Path) -> None:
    """More than a mebibyte goes in chunks and without a length; who has many commits asks with a compressed body."""
    one, two = client(hub, tmp_path / "one"), client(hub, tmp_path / "two")
    one.clone()
    one.git("checkout", "-q", "-B", "main")
    one.commit({**SECOND, "pictures/noise.png": os.urandom(1_500_000).hex()})
    one.git("push", "-u", "origin", "main")
    two.clone()
    for number in range(40):
        two.git("commit", "-q", "--allow-empty", "-m", f"of its own {number}")
    head = one.commit({"persona.md": SECOND["persona.md"] + "\nAnd I like tea.\n"})
    one.git("push", "origin", "main")
    two.git("pull", "-q", "--rebase", "origin", "main")
    assert two.try_git("-C", str(two.place), "merge-base", "--is-ancestor", head, "main").returncode == 0
    assert two.git("fsck", "--full", "--strict", "--no-dangling") == ""


@pytest.mark.parametrize("role", ["", "client"], ids=["a wrong key", "the key of clients"])
def test_another_key_opens_nothing(hub: Hub, tmp_path: Path, role: str) -> None:
    one = client(hub, tmp_path / "one")
    one.clone()
    one.git("checkout", "-q", "-B", "main")
    head = one.commit(SECOND)
    one.git("push", "-u", "origin", "main")
    other = client(hub, tmp_path / "other", hub.token(role) if role else "no-such-key")
    refused = other.try_git("clone", other.url, str(other.place))
    assert (refused.returncode, other.place.exists()) == (128, False)
    assert any(word in refused.stderr for word in ("Authentication failed", "could not read Username", "403", "404"))
    assert client(hub, tmp_path / "again").try_git("ls-remote", one.url, "main").stdout.split()[:1] == [head]


def test_an_agents_repositories_are_listed(hub: Hub, tmp_path: Path) -> None:
    one = client(hub, tmp_path / "one")
    request = urllib.request.Request(f"{hub.url}/v1/agents/{AGENT}/repositories")
    request.add_header("Authorization", f"Bearer {one.key}")
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        (listed,) = json.load(answer)["repositories"]
    assert {"id", "name", "permissions", "is_primary"} <= set(listed)
    assert listed["is_primary"] is True
