"""Everything up to starting the launcher: canonical paths, the policy, open sources, the plan."""

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lodger_sandbox.cgroups import BoxGroup
from lodger_sandbox.contract import BoxRequest, Mount, SandboxUnavailable
from lodger_sandbox.core.bwrap_arguments import ByDescriptor, ByPath, Source, Style, render_bwrap
from lodger_sandbox.core.make_policy import Program, make_policy, paths_to_look_at
from lodger_sandbox.core.policy import PathKind, Policy, PolicyRefused
from lodger_sandbox.core.seccomp import filter_program
from lodger_sandbox.host import base_interpreter, binds_descriptors, find_bwrap, look_at, this_architecture
from lodger_sandbox.sources import create_missing, open_without_links

LAUNCHER: Final = str(Path(__file__).with_name("launcher.py"))

Rewrite = Callable[[tuple[str, ...]], tuple[str, ...]]
"""For tests alone: changes bwrap's options, to show what one protection is worth."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Ready to be started once. Descriptors are closed when the `prepared_box` block is left."""

    policy: Policy
    launcher: tuple[str, ...]
    """The argument list of the launcher."""
    inherited: tuple[int, ...]
    """The descriptors it needs, beside those of the program."""
    info_read_fd: int
    pid_write_fd: int
    """Takes the pid whose processes are to be limited."""
    limited_read_fd: int
    """Tells when that is done."""
    hold_write_fd: int | None
    """A command of its own begins once something is written here: limits count for what is started after them. None
    where the program starts nothing before it is asked to."""
    close_others: Callable[[], None]
    """Close the ends that only the launcher needs, so that the end of a process is seen."""


def policy_for(request: BoxRequest, program: Program) -> Policy:
    """The policy of a request on this machine. Raises: SandboxUnavailable."""
    request = _canonical(request)
    program = replace(
        program,
        folder=os.path.realpath(program.folder) if program.folder else None,
        extra_folders=tuple((os.path.realpath(folder), name) for folder, name in program.extra_folders),
    )
    return make_policy(request, program, look_at(paths_to_look_at(request, program)))


def _canonical(request: BoxRequest) -> BoxRequest:
    """Links on the way to folders that the person or the daemon made are resolved; the workspace's are refused."""
    return replace(
        request,
        home=os.path.realpath(request.home),
        mounts=tuple(
            Mount(_real_folder(mount.source), os.path.realpath(mount.target), mount.writable)
            for mount in request.mounts
        ),
        masks=tuple(dict.fromkeys(os.path.realpath(mask) for mask in request.masks)),
    )


def _real_folder(path: str) -> str:
    """The last component is the agent's in a checkout: a link there stays one and is refused later."""
    folder, _, name = path.rstrip("/").rpartition("/")
    return f"{os.path.realpath(folder or '/').rstrip('/')}/{name}"


@contextmanager
def prepared_box(
    policy: Policy,
    request: BoxRequest,
    style: Style,
    *,
    gate_fd: int | None = None,
    group: BoxGroup,
    ignored_signals: Sequence[int] = (),
    rewrite: Rewrite | None = None,
) -> Iterator[Prepared]:
    """Open all a box needs and write its plan.

    Raises: SandboxUnavailable.
    """
    bwrap = find_bwrap()
    _refuse_wrong_user(request)
    create_missing(policy.to_create)
    _make_missing_masks(policy)
    with ExitStack() as opened:
        sources = _Sources(opened, as_root=os.geteuid() == 0, by_descriptor=binds_descriptors(bwrap))
        seccomp_fd = _memory_file(
            opened, "filter", filter_program(this_architecture(), memory_is_counted=group.counts_memory)
        )
        info_read_fd, info_write_fd = os.pipe()
        pid_read_fd, pid_write_fd = os.pipe()
        limited_read_fd, limited_write_fd = os.pipe()
        for descriptor in (info_read_fd, pid_write_fd, limited_read_fd):
            opened.callback(os.close, descriptor)
        hold_read_fd, hold_write_fd = (None, None) if style.detached else os.pipe()
        held = () if hold_read_fd is None else (hold_read_fd,)
        if hold_write_fd is not None:
            opened.callback(os.close, hold_write_fd)
        close_others = _once(info_write_fd, pid_read_fd, limited_write_fd, *held)
        opened.callback(close_others)
        written = [_memory_file(opened, "text", file.text.encode(*_ENCODING)) for file in policy.written]
        options = render_bwrap(policy, style, sources.take, seccomp_fd, info_write_fd, written)
        options += tuple(word for descriptor in held for word in ("--block-fd", str(descriptor)))
        if rewrite is not None:
            options = rewrite(options)
        options_fd = _memory_file(opened, "options", "".join(f"{word}\0" for word in options).encode(*_ENCODING))
        access = _access_words(policy, sources)
        words = [
            *_user_words(request, sources),
            *access,
            *((f"group={group.fd}",) if group.fd is not None else ()),
            f"nice={policy.nice}",
            *(f"close={descriptor}" for descriptor in sources.not_for_bwrap),
            *_limit_words(policy),
            f"limiter={pid_read_fd}:{limited_write_fd}:{policy.limits.processes}",
            *((f"detach={gate_fd}",) if gate_fd is not None else ()),
            *(f"ignore={number}" for number in ignored_signals),
            # In a descriptor, not on the command line, where everyone on the machine could read the environment.
            *(f"argv={word}" for word in (bwrap, "--args", str(options_fd), "--", *policy.command)),
        ]
        plan_fd = _memory_file(opened, "plan", "".join(f"{word}\0" for word in words).encode(*_ENCODING))
        yield Prepared(
            policy=policy,
            launcher=(base_interpreter().executable, "-I", "-S", "-B", LAUNCHER, str(plan_fd)),
            inherited=(
                plan_fd,
                options_fd,
                seccomp_fd,
                info_write_fd,
                pid_read_fd,
                limited_write_fd,
                *held,
                *written,
                *((group.fd,) if group.fd is not None else ()),
                *sources.descriptors,
            ),
            info_read_fd=info_read_fd,
            pid_write_fd=pid_write_fd,
            limited_read_fd=limited_read_fd,
            hold_write_fd=hold_write_fd,
            close_others=close_others,
        )


_ENCODING: Final = ("utf-8", "surrogateescape")


class _Sources:
    """Opens each source when the renderer asks for it: bwrap closes a descriptor once it has bound it."""

    def __init__(self, opened: ExitStack, *, as_root: bool, by_descriptor: bool) -> None:
        self._opened = opened
        self._as_root = as_root
        self._by_descriptor = by_descriptor
        self.descriptors: list[int] = []
        self.not_for_bwrap: list[int] = []
        """bwrap hands on what it does not know, and an open folder of the host is a way out of the box."""

    def take(self, path: str) -> Source:
        descriptor = self._open(path)
        if self._as_root:
            return ByPath(f"/run/{descriptor}")
        if self._by_descriptor:
            return ByDescriptor(descriptor)
        self.not_for_bwrap.append(descriptor)
        return ByPath(path)

    def place_to_check(self, path: str) -> str:
        descriptor = self._open(path)
        if self._as_root:
            return f"/run/{descriptor}"
        self.not_for_bwrap.append(descriptor)
        return f"/proc/self/fd/{descriptor}"

    def _open(self, path: str) -> int:
        descriptor = open_without_links(path)
        self._opened.callback(os.close, descriptor)
        self.descriptors.append(descriptor)
        return descriptor


def _refuse_wrong_user(request: BoxRequest) -> None:
    uid = os.geteuid()
    if uid == 0 and request.user.uid == 0:
        raise PolicyRefused("A box never runs as root. Ask box_user() for the user it should run as.")
    if uid not in (0, request.user.uid):
        raise PolicyRefused(
            f"This process cannot start boxes as {request.user.name}; it is neither root nor that user."
        )


def _make_missing_masks(policy: Policy) -> None:
    """A folder that is not there yet would appear inside, unmasked, as soon as it is made."""
    for item in policy.hidden:
        if look_at((item.path,)).kind(item.path) is PathKind.MISSING:
            try:
                Path(item.path).mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise PolicyRefused(f"{item.path} must be hidden but does not exist and cannot be made.") from error


def _user_words(request: BoxRequest, sources: _Sources) -> list[str]:
    if os.geteuid() != 0:
        return []
    staged = [f"stage={descriptor}" for descriptor in sources.descriptors]
    return [f"user={request.user.uid}:{request.user.gid}", *staged]


def _access_words(policy: Policy, sources: _Sources) -> list[str]:
    """The launcher asks as the box's user, so that access lists and groups count as the kernel counts them."""
    entries = [item for item in (*policy.shown, *policy.carved) if item.target == policy.workspace]
    return [
        f"access={os.R_OK | os.X_OK | (os.W_OK if item.writable else 0)}:{sources.place_to_check(item.source)}"
        for item in entries
    ]


def _limit_words(policy: Policy) -> list[str]:
    limits = policy.limits
    most = (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file_size_bytes),
        # Not RLIMIT_AS: node and Java reserve far more addresses than they use.
        (resource.RLIMIT_DATA, limits.memory_bytes),
    )
    return [f"limit={kind}:{value}" for kind, value in most]


def _memory_file(opened: ExitStack, name: str, content: bytes) -> int:
    descriptor = os.memfd_create(f"lodger-{name}", os.MFD_CLOEXEC)
    opened.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _once(*descriptors: int) -> Callable[[], None]:
    remaining = list(descriptors)

    def close() -> None:
        while remaining:
            os.close(remaining.pop())

    return close


def unavailable(errors: str, request: BoxRequest, policy: Policy) -> SandboxUnavailable:
    """What went wrong in bwrap or the launcher, in words that help."""
    text = errors.strip()[-2000:]
    if "uid map" in text or "Creating new namespace failed" in text or "No permissions to create" in text:
        advice = (
            "This kernel lets no ordinary user make a user namespace. On Ubuntu: "
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile that lets bwrap; "
            "elsewhere: sysctl kernel.unprivileged_userns_clone=1. In a container: allow user namespaces for it."
        )
        return SandboxUnavailable(f"The box could not be started: {text}. {advice}")
    return SandboxUnavailable(f"The box for {policy.workspace} could not be started: {text or 'no reason was given'}")
