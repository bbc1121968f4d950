"""The commit hook as the program it is in a box: started from a bare folder, without the rest of the package."""

import shutil
import subprocess
import sys
from pathlib import Path

import lodger_tools.validator.hook as hook
from support.plain_boxes import agent_environment, agent_git


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
