"""The commit hook as the program it is in a box: started from a bare folder, without the rest of the package."""

import shutil
import subprocess
import sys
from pathlib import Path

import lodger_tools.validator.hook as hook
from support.plain_boxes import agent_environment, agent_git

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@example.org")


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
