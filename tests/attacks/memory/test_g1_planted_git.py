"""G1: what an agent plants in its checkout runs nothing outside the box, whatever the daemon does with it.

Each plant notes where it ran. The control, plain git in the checkout as a careless program would run it, must run it
outside; otherwise the plant proves nothing.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from support.git_host_server import RunningHost, running_git_host
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git


@dataclass(frozen=True)
class Planting:
    checkout: Path
    command: str
    hub_url: str

    def config(self, *pairs: tuple[str, str]) -> None:
        for key, value in pairs:
            agent_git(self.checkout, "config", key, value)

    def attributes(self, text: str) -> None:
        (self.checkout / ".git/info").mkdir(exist_ok=True)
        (self.checkout / ".git/info/attributes").write_text(text)


def fsmonitor(to: Planting) -> None:
    to.config(("core.fsmonitor", to.command))


def post_commit(to: Planting) -> None:
    hook = to.checkout / ".git/hooks/post-commit"
    hook.write_text(f"#!/bin/sh\n{to.command}\n")
    hook.chmod(0o755)


def include(to: Planting) -> None:
    (to.checkout / ".git/more").write_text(f'[core]\n\tfsmonitor = "{to.command}"\n')
    to.config(("include.path", "more"))


def helper(to: Planting) -> None:
    to.config(("credential.helper", f"!{to.command}"))


def ssh(to: Planting) -> None:
    to.config(("url.ssh://host.invalid/.insteadOf", "http://"), ("core.sshCommand", to.command))


def clean_filter(to: Planting) -> None:
    to.attributes("*.md filter=x\n")
    to.config(("filter.x.clean", f"{to.command}; cat"))


def textconv(to: Planting) -> None:
    to.attributes("*.md diff=x\n")
    to.config(("diff.x.textconv", to.command))


def merge_driver(to: Planting) -> None:
    to.attributes("*.md merge=x\n")
    to.config(("merge.x.driver", to.command))


def gpg(to: Planting) -> None:
    to.config(("gpg.program", to.command), ("commit.gpgsign", "true"))


def editor(to: Planting) -> None:
    to.config(("core.editor", to.command))


def pushurl(to: Planting) -> None:
    to.config(("remote.origin.pushurl", f"ext::{to.command}"), ("protocol.ext.allow", "always"))


def instead_of_ext(to: Planting) -> None:
    to.config((f"url.ext::{to.command} .insteadOf", "http://"), ("protocol.ext.allow", "always"))


def receivepack(to: Planting) -> None:
    to.config(("remote.origin.url", str(to.checkout)), ("remote.origin.receivepack", to.command))


COMMIT = ("commit", "-q", "--no-verify", "--allow-empty", "-m", "x")
PUSH = ("push", "--no-verify", "HUB", "main:main")
PUSH_ORIGIN = ("push", "--no-verify", "origin", "main:other")
ROWS: list[tuple[Callable[[Planting], None], list[tuple[str, ...]]]] = [
    (fsmonitor, [("status",)]),
    (post_commit, [COMMIT]),
    (include, [("status",)]),
    (helper, [PUSH]),
    (ssh, [PUSH]),
    (clean_filter, [("add", "-A")]),
    (textconv, [("diff", "HEAD")]),
    (merge_driver, [("add", "-A"), COMMIT, ("merge", "-q", "side")]),
    (gpg, [COMMIT]),
    (editor, [("commit", "-q", "--no-verify", "--allow-empty")]),
    (pushurl, [PUSH_ORIGIN]),
    (instead_of_ext, [PUSH]),
    (receivepack, [PUSH_ORIGIN]),
]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHost]:
    with running_git_host(tmp_path / "hub") as running:
        yield running


@pytest.mark.parametrize(("plant", "control"), ROWS, ids=[row[0].__name__ for row in ROWS])
async def test_g1_plants_do_not_run_outside(
    tmp_path: Path, hub: RunningHost, plant: Callable[[Planting], None], control: list[tuple[str, ...]]
) -> None:
    marker = tmp_path / "marker"
    command = tmp_path / "planted.sh"
    command.write_text(f'#!/bin/sh\necho "${{IN_BOX:-outside}}" >>{marker}\n')
    command.chmod(0o755)
    one, two = Machine(tmp_path / "a", hub), Machine(tmp_path / "b", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        await one.end_turn()
        await two.memory.prepare(AGENT, None)
        two.commit("from-two.md", note("two"))
        await two.end_turn()
        before = one.published.head()
        one.commit("from-one.md", note("one"))
        agent_git(one.checkout, "branch", "side", "HEAD~1")
        plant(Planting(one.checkout, str(command), hub.url(AGENT)))

        assert (await one.bring_in()).moved
        (one.checkout / "from-one.md").write_text(note("two"))
        await one.end_turn()
        await one.memory.freshen(AGENT, 10)
        one.memory.head_announced(AGENT, hub.host.head(AGENT) or "")
        await one.memory.settled(AGENT, 10)
        await one.memory.compiled(AGENT)
        await one.memory.changed_since(AGENT, before)
        one.memory.reminders(AGENT)
        assert one.published.head() == hub.host.head(AGENT)
        assert not marker.exists() or "outside" not in marker.read_text()

        prepare_control(one.checkout)
        for argv in control:
            plain_git(one.checkout, *(hub.url(AGENT) if word == "HUB" else word for word in argv))
        assert "outside" in marker.read_text()
    finally:
        await one.memory.aclose()
        await two.memory.aclose()


def prepare_control(checkout: Path) -> None:
    """A branch `side` that changes the same file, made where nothing planted can be triggered outside."""
    (checkout / ".git/index.lock").unlink(missing_ok=True)
    tree = subprocess.run(
        ["git", "-C", str(checkout), "-c", "core.fsmonitor=false", "hash-object", "-w", "--no-filters", "--stdin"],
        input=note("side").encode(), capture_output=True, check=True, env={"PATH": os.environ["PATH"], "IN_BOX": "x"},
    ).stdout.decode().strip()  # fmt: skip
    env = {"PATH": os.environ["PATH"], "IN_BOX": "x", "GIT_INDEX_FILE": str(checkout.parent / "side-index")}
    run = ["git", "-C", str(checkout), "-c", "core.fsmonitor=false", "-c", "commit.gpgsign=false"]
    subprocess.run([*run, "read-tree", "side"], check=True, env=env)
    subprocess.run([*run, "update-index", "--add", "--cacheinfo", f"100644,{tree},from-one.md"], check=True, env=env)
    written = subprocess.run([*run, "write-tree"], check=True, env=env, capture_output=True).stdout.decode().strip()
    made = subprocess.run(
        [*run, "commit-tree", written, "-p", "side", "-m", "s"], check=True, env=env, capture_output=True
    )
    subprocess.run([*run, "update-ref", "refs/heads/side", made.stdout.decode().strip()], check=True, env=env)


def plain_git(checkout: Path, *argv: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_TERMINAL_PROMPT": "0"}
    subprocess.run(
        ["git", *argv], cwd=checkout, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=30
    )


async def test_g1_symlink_is_not_published(tmp_path: Path) -> None:
    one = Machine(tmp_path / "a", None)
    try:
        await one.memory.prepare(AGENT, CARD)
        before = one.published.head()
        (one.checkout / "about-you.md").symlink_to("/etc/passwd")
        agent_git(one.checkout, "add", "-A")
        agent_git(one.checkout, "commit", "-q", "--no-verify", "-m", "link")
        assert "120000" in agent_git(one.checkout, "ls-tree", "HEAD", "about-you.md")
        assert (await one.end_turn()).outcome is SyncOutcome.INVALID
        assert one.published.head() == before
    finally:
        await one.memory.aclose()


@pytest.mark.parametrize("trap", ["fifo_head", "fifo_ref", "alternates", "git_file", "commondir"])
async def test_g1_neighbours_reading_elsewhere_or_for_ever(tmp_path: Path, trap: str) -> None:
    """Traps that made a reader hang or read another agent's repository (MEMORY-NOTES.md section 1)."""
    one = Machine(tmp_path / "a", None)
    other = Machine(tmp_path / "other", None)
    try:
        await one.memory.prepare(AGENT, CARD)
        await other.memory.prepare(AGENT, CARD)
        secret = other.commit("secret.md", note("of another agent"))
        git = one.checkout / ".git"
        before = one.published.head()
        match trap:
            case "fifo_head":
                (git / "HEAD").unlink()
                os.mkfifo(git / "HEAD")
            case "fifo_ref":
                (git / "refs/heads/main").unlink()
                os.mkfifo(git / "refs/heads/main")
            case "alternates":
                (git / "objects/info").mkdir(exist_ok=True)
                (git / "objects/info/alternates").write_text(f"{tmp_path}/masked-in-a-box\n")
                (git / "refs/heads/main").write_text(secret + "\n")
            case "git_file":
                git.rename(tmp_path / "gone")
                git.write_text("gitdir: /masked-in-a-box\n")
            case "commondir":
                (git / "commondir").write_text("/masked-in-a-box\n")
        await one.bring_in()
        await one.end_turn()
        assert one.published.head() == before
        assert "another agent" not in (await one.memory.compiled(AGENT)).text
    finally:
        await one.memory.aclose()
        await other.memory.aclose()
