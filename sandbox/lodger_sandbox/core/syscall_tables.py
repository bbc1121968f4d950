"""Which system calls a box may not make, with the reason and the number on each architecture.

Numbers: the kernel's unistd.h of x86_64 and the generic one that aarch64 uses; None where a call does not exist.
`ptrace` is allowed on purpose: debuggers and LeakSanitizer need it, and PID 1 is not dumpable.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Architecture(StrEnum):
    X86_64 = "x86_64"
    AARCH64 = "aarch64"


@dataclass(frozen=True, slots=True)
class SystemCall:
    name: str
    x86_64: int | None
    aarch64: int | None
    why: str

    def number(self, architecture: Architecture) -> int | None:
        return self.x86_64 if architecture is Architecture.X86_64 else self.aarch64


_MEMORY = "reads or writes another process"
_MOUNT = "changes what is mounted"
_HANDLE = "opens files by handle, past every mount"
_KEYS = "the kernel's key rings are shared with the host"
_KERNEL = "loads code into the kernel"
_SURFACE = "a large kernel interface with a history of holes, and a way past filters on other calls"
_MACHINE = "concerns the whole machine"
_CLOCK = "sets the machine's clock"

DENIED: Final = (
    SystemCall("process_vm_readv", 310, 270, _MEMORY),
    SystemCall("process_vm_writev", 311, 271, _MEMORY),
    SystemCall("pidfd_getfd", 438, 438, "takes descriptors out of another process"),
    SystemCall("kcmp", 312, 272, "compares kernel objects of other processes"),
    SystemCall("mount", 165, 40, _MOUNT),
    SystemCall("umount2", 166, 39, _MOUNT),
    SystemCall("pivot_root", 155, 41, _MOUNT),
    SystemCall("chroot", 161, 51, _MOUNT),
    SystemCall("open_tree", 428, 428, _MOUNT),
    SystemCall("move_mount", 429, 429, _MOUNT),
    SystemCall("fsopen", 430, 430, _MOUNT),
    SystemCall("fsconfig", 431, 431, _MOUNT),
    SystemCall("fsmount", 432, 432, _MOUNT),
    SystemCall("fspick", 433, 433, _MOUNT),
    SystemCall("mount_setattr", 442, 442, _MOUNT),
    SystemCall("open_tree_attr", 467, 467, _MOUNT),
    SystemCall("setns", 308, 268, "enters another namespace"),
    SystemCall("name_to_handle_at", 303, 264, _HANDLE),
    SystemCall("open_by_handle_at", 304, 265, _HANDLE),
    SystemCall("add_key", 248, 217, _KEYS),
    SystemCall("request_key", 249, 218, _KEYS),
    SystemCall("keyctl", 250, 219, _KEYS),
    SystemCall("bpf", 321, 280, _SURFACE),
    SystemCall("perf_event_open", 298, 241, _SURFACE),
    SystemCall("userfaultfd", 323, 282, _SURFACE),
    SystemCall("io_uring_setup", 425, 425, _SURFACE),
    SystemCall("io_uring_enter", 426, 426, _SURFACE),
    SystemCall("io_uring_register", 427, 427, _SURFACE),
    SystemCall("kexec_load", 246, 104, _KERNEL),
    SystemCall("kexec_file_load", 320, 294, _KERNEL),
    SystemCall("init_module", 175, 105, _KERNEL),
    SystemCall("finit_module", 313, 273, _KERNEL),
    SystemCall("delete_module", 176, 106, _KERNEL),
    SystemCall("swapon", 167, 224, _MACHINE),
    SystemCall("swapoff", 168, 225, _MACHINE),
    SystemCall("reboot", 169, 142, _MACHINE),
    SystemCall("acct", 163, 89, _MACHINE),
    SystemCall("quotactl", 179, 60, _MACHINE),
    SystemCall("quotactl_fd", 443, 443, _MACHINE),
    SystemCall("syslog", 103, 116, "reads the kernel's log"),
    SystemCall("fanotify_init", 300, 262, "watches whole file systems"),
    SystemCall("lookup_dcookie", 212, 18, "tells paths of the host"),
    SystemCall("vhangup", 153, 58, "hangs up terminals"),
    SystemCall("uselib", 134, None, "old loader interface"),
    SystemCall("iopl", 172, None, "touches hardware ports"),
    SystemCall("ioperm", 173, None, "touches hardware ports"),
    SystemCall("settimeofday", 164, 170, _CLOCK),
    SystemCall("clock_settime", 227, 112, _CLOCK),
    SystemCall("clock_adjtime", 305, 266, _CLOCK),
    SystemCall("adjtimex", 159, 171, _CLOCK),
)

PRETENDED_MISSING: Final = (
    SystemCall("clone3", 435, 435, "its flags are behind a pointer; callers fall back to clone"),
    SystemCall("openat2", 437, 437, "its mode is behind a pointer; callers fall back to openat"),
)

UNCOUNTED_FILES: Final = (
    SystemCall("memfd_create", 319, 279, "callers fall back to files in /dev/shm, which has a size"),
    SystemCall("memfd_secret", 447, 447, "few callers, who ask first whether there is one"),
    SystemCall("vmsplice", 278, 75, "one byte in a pipe keeps a page of 2 MiB; callers fall back to write"),
)
"""Memory that can wait in a socket or a pipe, and is then in no process: only a control group counts it. Missing where
there is none."""
SEMAPHORES: Final = SystemCall("semget", 64, 190, "32,000 in each of 32,000 sets are 62 GiB of the kernel's memory")
SET_SOCKET_OPTION: Final = SystemCall("setsockopt", 54, 208, "sets how much may wait in a socket")


@dataclass(frozen=True, slots=True)
class ModeCall:
    """A call that sets permission bits: setuid and setgid bits are refused."""

    name: str
    x86_64: int | None
    aarch64: int | None
    mode_argument: int
    flags_argument: int | None = None
    """The mode counts only when these open flags create a file."""

    def number(self, architecture: Architecture) -> int | None:
        return self.x86_64 if architecture is Architecture.X86_64 else self.aarch64


MODE_CALLS: Final = (
    ModeCall("chmod", 90, None, 1),
    ModeCall("fchmod", 91, 52, 1),
    ModeCall("fchmodat", 268, 53, 2),
    ModeCall("fchmodat2", 452, 452, 2),
    ModeCall("creat", 85, None, 1),
    ModeCall("mknod", 133, None, 1),
    ModeCall("mknodat", 259, 33, 2),
    ModeCall("open", 2, None, 2, flags_argument=1),
    ModeCall("openat", 257, 56, 3, flags_argument=2),
)

NAMESPACE_CALLS: Final = (
    SystemCall("clone", 56, 220, "makes namespaces"),
    SystemCall("unshare", 272, 97, "makes namespaces"),
)
IOCTL: Final = SystemCall("ioctl", 16, 29, "some requests push input into a terminal")
SOCKET: Final = SystemCall("socket", 41, 198, "few families are needed, many have holes")
