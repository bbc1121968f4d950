"""`lodger sandbox run` as a process of its own, in each policy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lodger_cli.sandbox import POLICIES
from lodger_cli.terminal import Exit
from support.real_boxes import box_user_for_tests, workspace_for_tests
from support.sandbox_users import own

pytestmark = pytest.mark.needs("bwrap", "git")
LODGER = "from lodger_cli.main import main; main()"


def lodger(folder: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-c", LODGER, "sandbox", "run", *words),
        cwd=folder,
        env={**os.environ, "LODGER_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def repository(folder: Path) -> None:
    subprocess.run(("git", "init", "-q", str(folder)), check=True)
    (folder / "file").write_text("text\n")
    own(folder, box_user_for_tests())


WRITES_FILE, WRITES_CONFIG, SEES_FILE = "echo x > made", "git config user.name a", "cat file"
WORKS_IN = {
    "agent": (True, True, True),
    "person": (True, True, True),
    "strict": (True, False, True),
    "read-only": (False, False, True),
    "guard": (True, True, False),
    "memory-worker": (True, True, True),
}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_each_policy_lets_a_command_do(policy: str, tmp_path: Path) -> None:
    with workspace_for_tests() as folder:
        repository(folder)
        for command, works in zip((WRITES_FILE, WRITES_CONFIG, SEES_FILE), WORKS_IN[policy], strict=True):
            done = lodger(folder, tmp_path, "--policy", policy, "--", "sh", "-c", command)
            assert (done.returncode == 0) is works, (command, done.stderr)
        # A guard's box writes into a folder of its own that covers the workspace.
        assert (folder / "made").exists() is (policy in ("agent", "person", "strict", "memory-worker"))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_each_policy_is_told_in_words_and_nothing_runs(policy: str, tmp_path: Path) -> None:
    with workspace_for_tests() as folder:
        repository(folder)
        done = lodger(folder, tmp_path, "--policy", policy, "--explain", "--", "touch", "made")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"Policy {policy} in {folder}: ")
        assert "No network." in done.stdout
        assert not (folder / "made").exists()


def test_a_policy_there_is_not_is_a_mistake(tmp_path: Path) -> None:
    done = lodger(tmp_path, tmp_path, "--policy", "none", "--", "true")
    assert done.returncode == Exit.USAGE
    assert "read-only" in done.stderr


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_everything_in_a_box_yields_but_what_the_daemon_waits_for(policy: str, tmp_path: Path) -> None:
    wanted = 0 if policy in ("guard", "memory-worker") else 5
    look = "import os; n = os.getpriority(os.PRIO_PROCESS, 0); print(n); os.setpriority(os.PRIO_PROCESS, 0, n - 1)"
    with workspace_for_tests() as folder:
        repository(folder)
        done = lodger(folder, tmp_path, "--policy", policy, "--", "python3", "-c", look)
        assert done.stdout == f"{os.getpriority(os.PRIO_PROCESS, 0) + wanted}\n", done.stderr
        assert "PermissionError" in done.stderr, "and cannot take it back"
