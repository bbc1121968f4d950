"""git in an agent's box: in a repository of the person's, under the person's name, and with nothing else of theirs."""

import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.service.settings import NetworkSettings
from support.developer import Developer
from support.ordinary_pytest import run_pytest
from support.real_boxes import workspace_for_tests

PERSONS = """\
[user]
    name = Ada \\"L\\" P
    signingkey = secret-key
[alias]
    mark = !touch marked
[core]
    fsmonitor = touch marked; false
    hooksPath = /hooks-of-ada
    pager = touch marked
[credential]
    helper = "!touch marked"
[url "https://token-of-ada@forge.test/"]
    insteadOf = https://forge.test/
[pull]
    rebase = true
[include]
    path = more
"""
COMMIT = "git commit -q --allow-empty -m one && git log -1 --format='%an <%ae>'"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
async def developer(tmp_path: Path, home: Path) -> AsyncIterator[Developer]:
    """In a repository that is of whoever runs the tests: as root not the user of boxes, whom git then warns."""
    with workspace_for_tests() as workspace:
        subprocess.run(("git", "init", "-q", "-b", "main", str(workspace)), check=True)  # noqa: ASYNC221
        for path in (workspace, *workspace.rglob("*")):
            os.chown(path, os.getuid(), os.getgid())
            path.chmod(0o777 if path.is_dir() else 0o666)
        made = Developer(tmp_path / "daemon", workspace, NetworkSettings(), home)
        await made.start()
        yield made
        await made.aclose()


async def test_the_persons_name_and_nothing_else_of_theirs(developer: Developer, home: Path) -> None:
    (home / ".gitconfig").write_text(PERSONS)
    (home / "more").write_text("[user]\n\temail = ada@people.test\n")
    said = await developer.does(f"{COMMIT}; git status -s; git config --list --show-scope")
    assert said.startswith('Ada "L" P <ada@people.test>\n')
    for absent in ("mark", "token-of-ada", "secret-key", "fsmonitor", "hooks-of-ada"):
        assert absent not in said.lower()
    assert "put back" not in said
    assert not (developer.workspace / "marked").exists()
    assert "system\tpull.rebase=true" in said
    refused = await developer.runs(f"git mark; cat {home}/.gitconfig {home}/more /run/lodger/gitconfig")
    assert "token-of-ada" not in refused.text
    assert not (developer.workspace / "marked").exists()


async def test_the_repositorys_own_name_wins_and_what_a_box_sets_for_itself_holds(
    developer: Developer, home: Path
) -> None:
    (home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@people.test\n")
    assert await developer.does(f"git config --global user.name Eve && {COMMIT}") == "Eve <ada@people.test>\n"
    said = await developer.does(f"git config user.name Bob && {COMMIT}")
    assert said == "Bob <ada@people.test>\n"
    assert (home / ".gitconfig").read_text() == "[user]\n\tname = Ada\n\temail = ada@people.test\n"


async def test_a_linked_configuration_counts_as_git_would_have_it(developer: Developer, home: Path) -> None:
    """Many keep it in a folder of their own and link to it."""
    kept = home / "dotfiles"
    kept.mkdir()
    (kept / "gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@people.test\n")
    (home / ".gitconfig").symlink_to(kept / "gitconfig")
    assert await developer.does(COMMIT) == "Ada <ada@people.test>\n"


async def test_without_a_name_the_agent_has_one(developer: Developer, home: Path) -> None:
    (home / ".gitconfig").write_text("[user]\n\tname = half of one\n")
    assert await developer.does(COMMIT) == "Lodger agent <agent-1@lodger.invalid>\n"


async def test_a_configuration_git_cannot_read_stops_no_box(developer: Developer, home: Path) -> None:
    (home / ".gitconfig").write_text("[user\n")
    assert await developer.does(COMMIT) == "Lodger agent <agent-1@lodger.invalid>\n"
    assert (await developer.runs("echo x >> /run/lodger/gitconfig")).exit_code != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="to be somebody else's, it takes root")
async def test_no_other_folder_is_trusted(developer: Developer) -> None:
    below = developer.workspace / "below"
    subprocess.run(("git", "init", "-q", str(below)), check=True)  # noqa: ASYNC221
    said = await developer.runs("git -C below status")
    assert "dubious ownership" in said.text


@pytest.mark.skipif(os.geteuid() != 0, reason="starts the same tests as somebody else")
def test_as_an_ordinary_user() -> None:
    done = run_pytest(f"{Path(__file__).relative_to(Path(__file__).parents[2])}")
    found = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0 and found is not None and int(found[1]) >= 5, done.stdout[-4000:] + done.stderr[-2000:]
