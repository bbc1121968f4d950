"""What each profile shows and lets be written, in real boxes."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_sandbox.contract import BoxRequest, Mount
from lodger_sandbox.foreground import policy_for_command, run_with_policy
from support.patience import LIMIT_S
from support.sandbox_users import own, user_of_boxes, visible_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs folders outside every private folder")


@pytest.fixture
def base() -> Iterator[Path]:
    with visible_folder() as folder:
        for name in ("workspace", "home", "state/agents/one/checkout", "state/agents/two"):
            (folder / name).mkdir(parents=True)
        subprocess.run(("git", "init", "-q", str(folder / "workspace")), check=True)
        (folder / "workspace/file").write_text("x")
        own(folder, user_of_boxes())
        yield folder


@pytest.fixture
def request_here(base: Path) -> BoxRequest:
    return BoxRequest(
        workspace=str(base / "workspace"),
        profile="agent",
        user=user_of_boxes(),
        home=str(base / "home"),
        masks=(str(base / "state"),),
        environment={"PATH": "/usr/bin:/bin", "HOME": str(base / "home")},
    )


def run(request: BoxRequest, command: str) -> tuple[int, str]:
    with tempfile.TemporaryFile() as output:
        policy = policy_for_command(request, ("sh", "-c", command))
        code = run_with_policy(policy, request, stdin=subprocess.DEVNULL, stdout=output, stderr=output, limit_s=LIMIT_S)
        output.seek(0)
        return code, output.read().decode()


def test_agent_may_configure_its_repository(request_here: BoxRequest) -> None:
    assert run(request_here, "git config user.name ada && git config user.name") == (0, "ada\n")


def test_strict_may_not(request_here: BoxRequest) -> None:
    code, _ = run(replace(request_here, profile="strict"), "git config user.name ada || echo x >> .git/config")
    assert code != 0


def test_read_only_writes_nothing(request_here: BoxRequest) -> None:
    read_only = replace(request_here, profile="read_only")
    assert run(read_only, "cat file; touch new || rm file || echo x > .git/HEAD")[0] != 0
    assert run(read_only, "cat file; touch /tmp/scratch") == (0, "x")


def test_guard_sees_the_repository_alone(request_here: BoxRequest) -> None:
    assert run(replace(request_here, profile="guard"), "ls -A; echo x > .git/hooks/repaired") == (0, ".git\n")


def test_the_own_checkout_is_carved_out_of_the_masked_state(request_here: BoxRequest, base: Path) -> None:
    checkout = str(base / "state/agents/one/checkout")
    shown = replace(request_here, mounts=(Mount(checkout, checkout, writable=True),))
    code, output = run(shown, f"touch {checkout}/note; ls {base}/state/agents; ls {base}/state; touch {base}/state/new")
    assert code != 0
    assert "one" in output
    assert "two" not in output
    assert (base / "state/agents/one/checkout/note").exists()


def test_memory_worker_works_in_the_checkout(request_here: BoxRequest, base: Path) -> None:
    checkout = str(base / "state/agents/one/checkout")
    worker = replace(request_here, profile="memory_worker", workspace=checkout)
    assert run(worker, f"touch made; pwd; ls {base}/state/agents") == (0, f"{checkout}\none\n")


def test_there_is_no_network_but_ones_own_loopback(request_here: BoxRequest) -> None:
    assert run(request_here, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; wc -l < /proc/net/route") == (
        0,
        "lo\n1\n",
    )
