"""A policy as bubblewrap's arguments, in the order measured in SANDBOX-NOTES.md section 3."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from lodger_sandbox.core.policy import Hidden, Policy, Shown

HOST_NAME: Final = "lodger"


@dataclass(frozen=True, slots=True)
class ByDescriptor:
    """bwrap binds an open descriptor and checks that the mount is what was opened."""

    descriptor: int


@dataclass(frozen=True, slots=True)
class ByPath:
    """bwrap binds a path: a staged mount point, or a path where bwrap cannot bind descriptors."""

    path: str


Source: TypeAlias = ByDescriptor | ByPath


@dataclass(frozen=True, slots=True)
class Style:
    """How the box is held."""

    detached: bool
    """A box of its own session whose PID 1 is the program; otherwise a command on the caller's terminal, under
    bwrap's own PID 1 (a shell as PID 1 would ignore signals)."""


def render_bwrap(
    policy: Policy,
    style: Style,
    source_of: Callable[[str], Source],
    seccomp_fd: int,
    info_fd: int,
    written_fds: Sequence[int] = (),
) -> tuple[str, ...]:
    """All options; `--` and the command are not among them.

    Args:
        written_fds: one for each text that the policy has written inside, in its order.
    """
    return (
        *_isolation(style),
        *_environment(policy),
        *("--ro-bind", "/", "/"),
        *("--dev", "/dev"),
        *("--proc", "/proc"),
        # As root, /proc/sys/kernel/core_pattern would be a way to run programs on the host.
        *("--ro-bind", "/proc/sys", "/proc/sys"),
        *(word for path in policy.veils for word in ("--perms", "0755", "--tmpfs", path)),
        *(word for folder in policy.private for word in _memory_folder(folder.path, folder.mode, folder.size_bytes)),
        *(word for item in policy.shown for word in _bind(item, source_of)),
        *(word for item in policy.hidden for word in _hide(item)),
        *(word for item in policy.carved for word in _bind(item, source_of)),
        *("--perms", "0755", "--dir", "/run/lodger"),
        *(word for item in policy.run for word in _bind(item, source_of)),
        *(
            word
            for file, descriptor in zip(policy.written, written_fds, strict=True)
            for word in ("--perms", "0444", "--ro-bind-data", str(descriptor), file.target)
        ),
        *_seals(policy),
        *("--seccomp", str(seccomp_fd)),
        *("--info-fd", str(info_fd)),
        *("--chdir", policy.workspace),
    )


def _isolation(style: Style) -> tuple[str, ...]:
    namespaces = (
        "--unshare-user",
        "--disable-userns",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--unshare-net",
    )
    held = ("--new-session", "--as-pid-1") if style.detached else ()
    return (*namespaces, *held, "--die-with-parent", "--cap-drop", "ALL", "--hostname", HOST_NAME)


def _environment(policy: Policy) -> tuple[str, ...]:
    pairs = (word for name, value in sorted(policy.environment.items()) for word in ("--setenv", name, value))
    return ("--clearenv", *pairs)


def _memory_folder(path: str, mode: int, size_bytes: int) -> tuple[str, ...]:
    # Without a size a tmpfs takes half of the machine's memory.
    return ("--perms", f"{mode:04o}", "--size", str(size_bytes), "--tmpfs", path)


def _bind(item: Shown, source_of: Callable[[str], Source]) -> tuple[str, ...]:
    source = source_of(item.source)
    option = "--bind" if item.writable else "--ro-bind"
    match source:
        case ByDescriptor(descriptor):
            return (f"{option}-fd", str(descriptor), item.target)
        case ByPath(path):
            return (option, path, item.target)
        case _:
            assert_never(source)


def _hide(item: Hidden) -> tuple[str, ...]:
    if not item.is_folder:
        return ("--ro-bind", "/dev/null", item.path)
    return ("--perms", "0111" if item.passable else "0000", "--tmpfs", item.path)


def _seals(policy: Policy) -> tuple[str, ...]:
    # Without this the owner inside could open a mask again and fill it with content of its own.
    # /dev is a tmpfs without a limit: as a place for files it could take half of the machine's memory.
    folders = (*policy.veils, *(item.path for item in policy.hidden if item.is_folder), "/run", "/dev")
    return tuple(word for path in folders for word in ("--remount-ro", path))
