from lodger_sandbox.contract import BoxLimits
from lodger_sandbox.core.bwrap_arguments import ByDescriptor, ByPath, Source, Style, render_bwrap
from lodger_sandbox.core.policy import Hidden, Policy, PrivateFolder, Profile, Shown

POLICY = Policy(
    profile=Profile.AGENT,
    workspace="/w",
    home="/h",
    veils=("/root",),
    private=(PrivateFolder("/run", 0o755, 10), PrivateFolder("/h", 0o700, 20)),
    shown=(Shown("/w", "/w", True, "workspace"), Shown("/w/.git/hooks", "/w/.git/hooks", False, "hooks")),
    hidden=(Hidden("/s", True, passable=True), Hidden("/f", False), Hidden("/p", True)),
    carved=(Shown("/s/c", "/s/c", True, "checkout"),),
    run=(Shown("/runner", "/run/lodger/x", False, "program"),),
    to_create=(),
    command=("/usr/bin/python3", "main.py"),
    environment={"B": "2", "A": "1"},
    limits=BoxLimits(),
)


def source_of(path: str) -> Source:
    return ByDescriptor(7) if path == "/w" else ByPath(f"/run/{path.replace('/', '_')}")


def render(*, detached: bool) -> str:
    return " ".join(render_bwrap(POLICY, Style(detached), source_of, 11, 12))


def test_the_order_of_a_detached_box() -> None:
    assert render(detached=True) == (
        "--unshare-user --disable-userns --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try --unshare-net"
        " --new-session --as-pid-1 --die-with-parent --cap-drop ALL --hostname lodger"
        " --clearenv --setenv A 1 --setenv B 2"
        " --ro-bind / / --dev /dev --proc /proc --ro-bind /proc/sys /proc/sys"
        " --perms 0755 --tmpfs /root"
        " --perms 0755 --size 10 --tmpfs /run --perms 0700 --size 20 --tmpfs /h"
        " --bind-fd 7 /w --ro-bind /run/_w_.git_hooks /w/.git/hooks"
        " --perms 0111 --tmpfs /s --ro-bind /dev/null /f --perms 0000 --tmpfs /p"
        " --bind /run/_s_c /s/c"
        " --perms 0755 --dir /run/lodger --ro-bind /run/_runner /run/lodger/x"
        " --remount-ro /root --remount-ro /s --remount-ro /p --remount-ro /run --remount-ro /dev"
        " --seccomp 11 --info-fd 12 --chdir /w"
    )


def test_a_command_on_a_terminal_keeps_it() -> None:
    """Its own session would take job control away; the filter refuses what a session would protect against."""
    options = render(detached=False)
    assert "--new-session" not in options
    assert "--as-pid-1" not in options
    assert "--die-with-parent" in options
