"""Detached boxes with real processes: what survives what, and what is said when nothing can be started."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_sandbox.access import workspace_access
from lodger_sandbox.contract import BoxRequest, BoxUser, DetachedBox, Mount, SandboxUnavailable
from lodger_sandbox.process_facts import name_and_start
from lodger_sandbox.users import WorkspaceRefused, box_user
from support.sandbox_users import kill, own, running_box, start_box, user_of_boxes, visible_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs folders outside every private folder")


@pytest.fixture
def base() -> Iterator[Path]:
    with visible_folder() as folder:
        for name in ("workspace", "home", "state"):
            (folder / name).mkdir()
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


def wait_until(holds: Callable[[], bool]) -> None:
    """The conditions here are ends of processes; the test's own time limit is the limit."""
    never = threading.Event()
    while not holds():
        never.wait(0.005)


def test_a_box_answers_and_is_named_for_ever(request_here: BoxRequest, base: Path) -> None:
    with running_box(request_here, base / "state") as running:
        assert running.run("pwd; id -u") == (0, f"{request_here.workspace}\n{request_here.user.uid}\n")
        assert name_and_start(running.box.runner_pid)[1] == running.box.runner_start_ticks
        assert name_and_start(running.box.outer_pid)[0] == "bwrap"
        status = Path(f"/proc/{running.box.runner_pid}/status").read_text()
        uid = request_here.user.uid
        assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n" in status


def test_it_survives_the_thread_that_started_it(request_here: BoxRequest, base: Path) -> None:
    with ExitStack() as opened:
        started = []
        thread = threading.Thread(target=lambda: started.append(start_box(opened, request_here, base / "state")))
        thread.start()
        thread.join()
        opened.callback(kill, started[0].box.outer_pid)
        assert started[0].run("echo alive") == (0, "alive\n")


def test_it_survives_the_process_that_started_it(request_here: BoxRequest, base: Path) -> None:
    script = (
        "import sys; from contextlib import ExitStack; from pathlib import Path\n"
        "from lodger_sandbox.contract import BoxRequest\n"
        "from support.sandbox_users import start_box, user_of_boxes\n"
        "request = BoxRequest(sys.argv[1], 'agent', user_of_boxes(), sys.argv[2])\n"
        "box = start_box(ExitStack(), request, Path(sys.argv[3])).box\n"
        "print(box.outer_pid, box.runner_pid, box.runner_start_ticks, flush=True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[3]
    state = base / "state"
    done = subprocess.run(
        (sys.executable, "-c", script, request_here.workspace, request_here.home, str(state)),
        env={"PYTHONPATH": f"{root / 'sandbox'}:{root / 'tests'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    box = DetachedBox(*(int(word) for word in done.stdout.split()))
    from support.sandbox_users import RunningBox

    running = RunningBox(box, state / "box.sock", state / "box.lock")
    try:
        assert running.run("echo alive") == (0, "alive\n")
        assert running.lock_is_held()
    finally:
        kill(box.outer_pid)
    wait_until(lambda: not running.lock_is_held())


def test_all_of_it_ends_with_the_outer_process(request_here: BoxRequest, base: Path) -> None:
    with running_box(request_here, base / "state") as running:
        running.run("setsid sleep 1000 > /dev/null 2>&1 & trap '' TERM")
        kill(running.box.outer_pid)
        wait_until(lambda: not running.lock_is_held())
        assert not Path(f"/proc/{running.box.runner_pid}").exists() or running.run("true") == (-1, "")


def test_limits_hold_inside(request_here: BoxRequest, base: Path) -> None:
    limited = replace(request_here, limits=replace(request_here.limits, processes=77, file_size_bytes=1024 * 1024))
    with running_box(limited, base / "state") as running:
        assert running.run(
            "cat /proc/self/limits | grep -E 'processes|file size|core' | tr -s ' ' | cut -d' ' -f 2-5"
        ) == (
            0,
            "file size 1048576 1048576\ncore file size 0\nprocesses 77 77 processes\n",
        )
        assert running.run("head -c 2000000 /dev/zero > big")[0] != 0


def test_a_checkout_below_a_home_nobody_may_enter_is_shown(request_here: BoxRequest, base: Path) -> None:
    checkout = base / "state/agents/one/checkout"
    checkout.mkdir(parents=True)
    (checkout / "note").write_text("remembered")
    own(checkout, request_here.user)
    os.chown(base / "state", 0, 0)
    (base / "state").chmod(0o700)
    inside = str(base / "home/memory")
    shown = replace(request_here, mounts=(Mount(str(checkout), inside, writable=True),))
    with running_box(shown, base / "state") as running:
        assert running.run(f"cat {inside}/note && echo more > {inside}/new") == (0, "remembered")
        assert running.run(f"ls {base}/state")[0] != 0
    assert (checkout / "new").read_text() == "more\n"


def test_of_linked_folders_in_the_home_nothing_is_shown_and_the_box_starts(
    request_here: BoxRequest, base: Path
) -> None:
    """People link ~/.config and the like to where they keep it; an agent may be able to write there."""
    kept, home = Path(request_here.workspace) / "kept", Path(request_here.home)
    for name in (".config/git/config", ".ssh/known_hosts", ".ssh/id_ed25519"):
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).write_text("linked")
    (home / ".config").symlink_to(kept / ".config")
    (home / ".gitconfig").symlink_to(kept / ".config/git/config")
    (home / ".ssh").mkdir()
    for name in ("known_hosts", "id_ed25519"):
        (home / ".ssh" / name).write_text("own")
    with running_box(request_here, base / "state") as running:
        assert running.run(f"cat {home}/.gitconfig {home}/.config/git/config 2>&1")[1].count("No such file") == 2
        assert running.run(f"cat {home}/.ssh/*") == (0, "own")
        assert running.run(f"echo more >> {home}/.ssh/known_hosts || ls {home}/.ssh")[1].endswith("known_hosts\n")
    assert (home / ".ssh/known_hosts").read_text() == "own"
    (home / ".ssh").rename(home / "moved")
    (home / ".ssh").symlink_to(kept / ".ssh")
    with running_box(request_here, base / "state") as running:
        assert running.run(f"ls -A {home}") == (0, "")


def test_absent_git_entries_are_made_for_the_owner(request_here: BoxRequest, base: Path) -> None:
    workspace = Path(request_here.workspace)
    subprocess.run(("git", "init", "-q", "--template=", str(workspace)), check=True)
    own(workspace, request_here.user)
    with running_box(request_here, base / "state") as running:
        commands = (
            "git config user.name a && git config user.email a@b && echo 1 > f && git add f && git commit -qm one"
            " && git branch two && git checkout -q two && git stash list && git gc -q && git worktree add -q w"
            " && git status --porcelain"
        )
        code, output = running.run(f"export HOME={request_here.home}; {commands}")
        assert (code, output) == (0, "?? w/\n"), output
    made = {name: (workspace / ".git" / name).stat().st_uid for name in ("hooks", "commondir", "config.worktree")}
    assert set(made.values()) == {request_here.user.uid}
    log = subprocess.run(
        ("git", "-c", "safe.directory=*", "-C", str(workspace), "log", "--format=%s"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert log.stdout == "one\n", "git outside works on with the made entries"


def test_a_workspace_the_user_cannot_use_is_refused_with_the_command(request_here: BoxRequest, base: Path) -> None:
    os.chown(request_here.workspace, 0, 0)
    with pytest.raises(WorkspaceRefused) as refused, running_box(request_here, base / "state"):
        pass
    name = request_here.user.name
    assert refused.value.command == f"setfacl -R -m u:{name}:rwX -m d:u:{name}:rwX {request_here.workspace}"
    with pytest.raises(WorkspaceRefused):
        workspace_access(request_here.user, request_here.workspace)
    workspace_access(request_here.user, request_here.workspace, writable=False)
    os.chown(request_here.workspace, request_here.user.uid, request_here.user.gid)
    workspace_access(request_here.user, request_here.workspace)


def test_a_failed_start_says_why_and_leaves_nothing(request_here: BoxRequest, base: Path) -> None:
    def broken(options: tuple[str, ...]) -> tuple[str, ...]:
        return (*options, "--ro-bind", "/nonexistent-source", "/x")

    with (
        pytest.raises(SandboxUnavailable, match="nonexistent-source"),
        running_box(request_here, base / "state", rewrite=broken),
    ):
        pass
    with (base / "state/box.lock").open() as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_no_box_runs_as_root(request_here: BoxRequest, base: Path) -> None:
    as_root = replace(request_here, user=BoxUser(0, 0, "root"))
    with pytest.raises(SandboxUnavailable, match="never runs as root"), running_box(as_root, base / "state"):
        pass


def test_a_missing_user_is_named_with_the_command_that_makes_it() -> None:
    with pytest.raises(SandboxUnavailable, match=r"useradd --system .* no-such-user$"):
        box_user("no-such-user")
    with pytest.raises(SandboxUnavailable, match="which is root"):
        box_user("root")


def test_a_mask_that_is_not_there_yet_is_made(request_here: BoxRequest, base: Path) -> None:
    later = base / "state-of-tomorrow"
    with running_box(replace(request_here, masks=(str(later),)), base / "state") as running:
        (later / "secret").write_text("x")
        assert running.run(f"cat {later}/secret")[0] != 0
