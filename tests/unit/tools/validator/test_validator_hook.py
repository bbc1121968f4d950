"""The commit hook as the program it is in a box: started from a bare folder, without the rest of the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import lodger_tools.validator.hook as hook
from support.plain_boxes import agent_environment, agent_git

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@example.org")


NOTE = "---\nname: n\ndescription: d\n---\n"
FEW_GITS = 6
COUNTING_GIT = """#!/bin/sh
echo "$1" >>"$COUNTED"
exec {git} "$@"
"""


def test_how_many_gits_it_starts_is_the_same_for_any_number_of_files(tmp_path: Path) -> None:
    checkout, shims, counted = tmp_path / "memory", tmp_path / "bin", tmp_path / "counted"
    shims.mkdir()
    (shims / "git").write_text(COUNTING_GIT.format(git=shutil.which("git")))
    (shims / "git").chmod(0o755)
    (checkout / "notes").mkdir(parents=True)
    agent_git(checkout, "init", "-q")
    (checkout / "MEMORY.md").write_text("index")
    for number in range(40):
        (checkout / "notes" / f"n{number}.md").write_text(NOTE + str(number))
        (checkout / "notes" / f"p{number}.png").write_bytes(b"picture")
    agent_git(checkout, "add", "-A")
    environment = agent_environment() | {"PATH": f"{shims}:{os.environ['PATH']}", "COUNTED": str(counted)}
    argv = [sys.executable, "-I", "-S", "-B", hook.__file__]
    done = subprocess.run(argv, cwd=checkout, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(counted.read_text().split()) <= FEW_GITS


def test_hook_refuses_and_accepts(tmp_path: Path) -> None:
    program = tmp_path / "lodger" / "validator"
    shutil.copytree(Path(hook.__file__).parent, program, ignore=shutil.ignore_patterns("__pycache__"))
    checkout = tmp_path / "memory"
    checkout.mkdir()
    agent_git(checkout, "init", "-q")

    def run() -> subprocess.CompletedProcess[str]:
        agent_git(checkout, "add", "-A")
        argv = [sys.executable, "-I", "-S", "-B", str(program / "hook.py")]
        return subprocess.run(argv, cwd=checkout, env=agent_environment(), capture_output=True, text=True, timeout=30)

    (checkout / "MEMORY.md").write_text("index")
    (checkout / "bad.md").write_text("no front matter")
    refused = run()
    assert refused.returncode == 1
    assert "memory: bad.md: the file must begin with front matter" in refused.stderr
    (checkout / "bad.md").unlink()
    accepted = run()
    assert (accepted.returncode, accepted.stderr) == (0, "")

    note = "---\nname: n\ndescription: d\n---\n"
    (checkout / "agent.toml").write_text('name = "Ada"\nread_only = ["rules.md"]\n')
    (checkout / "rules.md").write_text(note)
    assert run().returncode == 0
    agent_git(checkout, *AUTHOR, "commit", "-q", "-m", "rules")
    (checkout / "other.md").write_text(note)
    assert run().returncode == 0
    (checkout / "rules.md").rename(checkout / "moved.md")
    refused = run()
    assert (refused.returncode, "rules.md: is read_only" in refused.stderr) == (1, True)
    agent_git(checkout, "reset", "-q", "--hard")
    # A merge may bring in what the other side has of it.
    agent_git(checkout, "checkout", "-q", "-b", "side")
    (checkout / "rules.md").write_text(note + "changed elsewhere\n")
    agent_git(checkout, *AUTHOR, "commit", "-q", "-a", "-m", "from elsewhere")
    agent_git(checkout, "checkout", "-q", "-")
    agent_git(checkout, *AUTHOR, "merge", "-q", "--no-ff", "--no-commit", "side")
    merging = run()
    assert (merging.returncode, merging.stderr) == (0, "")


def checkout_of(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir()
    agent_git(folder, "init", "-q")
    for name, text in files.items():
        (folder / name).write_text(text)
    agent_git(folder, "add", "-A")
    return folder


def asked(checkout: Path, *words: str) -> tuple[int, str]:
    argv = [sys.executable, "-I", "-S", "-B", *words]
    done = subprocess.run(
        argv, cwd=checkout, env=agent_environment(), capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stderr


def test_a_memory_that_agents_share_has_rules_of_its_own(tmp_path: Path) -> None:
    checkout = checkout_of(tmp_path / "shared", {"MEMORY.md": "index", "agent.toml": 'name = "Ada"\n'})
    assert asked(checkout, hook.__file__) == (0, "")
    assert asked(checkout, hook.__file__, "--shared") == (1, "memory: agent.toml: a shared memory describes no agent\n")


OLDER = (
    "import runpy, sys; sys.version_info = (3, 10, 13, 'final', 0); runpy.run_path(sys.argv[1], run_name='__main__')"
)


def test_what_cannot_be_looked_at_is_let_pass(tmp_path: Path) -> None:
    """An older python3 in the box, or a git that does not answer: the daemon looks before anything is published."""
    bad = checkout_of(tmp_path / "bad", {"bad.md": "no front matter"})
    assert asked(bad, hook.__file__)[0] == 1
    assert asked(bad, "-c", OLDER, hook.__file__) == (0, "")
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    code, said = asked(nowhere, hook.__file__)
    assert (code, "memory: not looked at before the commit" in said) == (0, True)
