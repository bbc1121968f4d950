"""The runner as PID 1: commands cannot end it, read it or take its descriptors. Real detached boxes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_sandbox.contract import BoxRequest, SandboxUnavailable
from lodger_sandbox.core.policy import Policy, PolicyRefused, Shown
from lodger_sandbox.foreground import policy_for_command, run_with_policy
from lodger_sandbox.host import find_bwrap
from lodger_sandbox.probe import probe
from support.sandbox_users import own, running_box, user_of_boxes, visible_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs folders outside every private folder")


@pytest.fixture
def base() -> Iterator[Path]:
    with visible_folder() as folder:
        for name in ("workspace", "home/.ssh", "state"):
            (folder / name).mkdir(parents=True)
        yield folder


@pytest.fixture
def request_here(base: Path) -> BoxRequest:
    user = user_of_boxes()
    own(base, user)
    return BoxRequest(
        workspace=str(base / "workspace"),
        profile="agent",
        user=user,
        home=str(base / "home"),
        masks=(str(base / "state"),),
        environment={"PATH": "/usr/bin:/bin"},
    )


def in_a_shell(policy: Policy) -> Policy:
    """As if bwrap's own init, or any other ordinary process, were PID 1 and the runner its child."""
    return replace(policy, command=("/bin/sh", "-c", '"$@" & wait; exec sleep 100', "sh", *policy.command))


KILL_RUNNER = 'kill -9 "$RUNNER_PID"; kill -9 -1; kill -STOP "$RUNNER_PID"; kill -SEGV "$RUNNER_PID"'
FIND_LOCK = "readlink /proc/1/fd/* | grep -q box.lock"
READ_MEMORY = "cat /proc/1/environ > /dev/null"


def test_no_command_ends_the_runner(request_here: BoxRequest, base: Path) -> None:
    with running_box(request_here, base / "state") as running:
        running.run(KILL_RUNNER)
        assert running.run("echo still here") == (0, "still here\n")
        assert running.lock_is_held()


def test_control_a_runner_that_is_not_pid_1_is_killed(request_here: BoxRequest, base: Path) -> None:
    with running_box(request_here, base / "state", wrap=in_a_shell) as running:
        running.run('kill -9 "$RUNNER_PID"')
        # Nobody accepts any more; the other process only keeps the socket open.
        assert running.run("echo still here", limit_s=0.5) == (-1, "")


@pytest.mark.parametrize("attack", [FIND_LOCK, READ_MEMORY])
def test_no_command_reads_the_runner(request_here: BoxRequest, base: Path, attack: str) -> None:
    with running_box(request_here, base / "state") as running:
        assert running.run(attack)[0] not in (0, -1)


@pytest.mark.parametrize("attack", [FIND_LOCK, READ_MEMORY])
def test_control_bwraps_own_pid_1_is_read(request_here: BoxRequest, base: Path, attack: str) -> None:
    with running_box(request_here, base / "state", wrap=in_a_shell) as running:
        assert running.run(attack)[0] == 0


def test_nothing_is_inherited(request_here: BoxRequest, base: Path) -> None:
    """A command sees its own three streams, no descriptor of the daemon's and none of the sandbox's."""
    with running_box(request_here, base / "state") as running:
        assert running.run("exec 2>/dev/null; ls /proc/self/fd") == (0, "0\n1\n2\n3\n")


def test_F3_a_linked_workspace_is_refused(base: Path) -> None:
    user = user_of_boxes()
    (base / "home/.ssh/id").write_text("secret")
    (base / "linked").symlink_to(base / "home")
    own(base, user)
    request = BoxRequest(str(base / "linked"), "agent", user, str(base / "home"))
    with pytest.raises(PolicyRefused, match="is a link"):
        policy_for_command(request, ("true",))


def test_F3_a_link_at_a_protected_path_is_refused(request_here: BoxRequest, base: Path) -> None:
    git = base / "workspace/.git"
    git.mkdir()
    (base / "home/.ssh/id").write_text("secret")
    (git / "hooks").symlink_to("../../home/.ssh")
    own(base, request_here.user)
    with pytest.raises(PolicyRefused, match="hooks should be a folder but is a link"):
        policy_for_command(request_here, ("true",))


def test_F3_control_a_followed_link_shows_the_secret(request_here: BoxRequest, base: Path) -> None:
    secrets = base / "home/.ssh"
    (secrets / "id").write_text("secret")
    (base / "workspace/hooks").mkdir()
    own(base, request_here.user)
    policy = policy_for_command(request_here, ("grep", "-q", "secret", "hooks/id"))
    followed = Shown(str(secrets), str(base / "workspace/hooks"), False, "a link that was followed")
    opened = replace(policy, shown=(*policy.shown, followed))
    assert run_with_policy(opened, request_here, stdout=subprocess.DEVNULL) == 0
    assert run_with_policy(policy, request_here, stderr=subprocess.DEVNULL) != 0


def test_F3_a_folder_swapped_for_a_link_after_the_decision_is_refused(request_here: BoxRequest, base: Path) -> None:
    policy = policy_for_command(request_here, ("true",))
    (base / "workspace").rmdir()
    (base / "workspace").symlink_to(base / "home")
    with pytest.raises(PolicyRefused, match="is a link, which a box does not follow"):
        run_with_policy(policy, request_here)


def test_F9_without_bwrap_nothing_runs(request_here: BoxRequest, base: Path) -> None:
    """In a mount namespace of its own, where every trusted bwrap is covered by something that is none."""
    script = base / "start.py"
    mark = base / "workspace/mark"
    script.write_text(
        "import sys\n"
        "from lodger_sandbox.contract import BoxRequest, SandboxUnavailable\n"
        "from lodger_sandbox.foreground import run_in_box\n"
        "from lodger_sandbox.probe import probe\n"
        "from lodger_sandbox.users import box_user\n"
        "workspace, home = sys.argv[1:]\n"
        "print(probe(box_user()).holds)\n"
        "try:\n"
        "    run_in_box(BoxRequest(workspace, 'agent', box_user(), home), ('touch', 'mark'))\n"
        "except SandboxUnavailable as error:\n"
        "    print(error)\n"
    )
    sandbox = Path(__file__).parents[3] / "sandbox"
    hide = "for path in /usr/bin/bwrap /usr/local/bin/bwrap; do [ -e $path ] && mount --bind /dev/null $path; done;"
    in_namespace = ("unshare", "-m", "sh", "-c")
    for shell, expected in ((hide, False), ("", True)):
        done = subprocess.run(
            (
                *in_namespace,
                f'{shell} exec "$@"',
                "sh",
                sys.executable,
                script,
                request_here.workspace,
                request_here.home,
            ),
            env={"PYTHONPATH": str(sandbox), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert mark.exists() is expected, done.stdout + done.stderr
        assert done.stdout.startswith(str(expected))
        assert ("bwrap" in done.stdout) is not expected


def test_F10_a_bwrap_in_PATH_is_not_used(base: Path) -> None:
    planted = base / "workspace/bwrap"
    planted.write_text("#!/bin/sh\nexit 0\n")
    planted.chmod(0o755)
    own(base, user_of_boxes())
    with pytest.raises(SandboxUnavailable, match="must belong to root"):
        find_bwrap((str(planted),))
    environment = {"PATH": str(planted.parent)}
    assert subprocess.run(("bwrap",), env=environment, check=False).returncode == 0, "the control: PATH would find it"
    assert Path(find_bwrap()).parent != planted.parent


def test_probe_holds_and_notices_each_open_door() -> None:
    user = user_of_boxes()
    assert probe(user).holds
    for option in ("--unshare-net", "--unshare-user"):
        report = probe(user, rewrite=lambda options, gone=option: tuple(word for word in options if word != gone))
        assert not report.holds, option


def test_probe_names_what_it_reached() -> None:
    def open_network(options: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word for word in options if word != "--unshare-net")

    assert probe(user_of_boxes(), rewrite=open_network).failures == (
        "reaches the machine's loopback",
        "reaches the machine's abstract sockets",
    )
