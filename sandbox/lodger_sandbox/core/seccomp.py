"""The system call filter of a box as a classic BPF program.

Only what bubblewrap's namespaces leave open: reaching into other processes, new namespaces, setuid files, input pushed
into a terminal, and kernel interfaces that no build or test needs.
"""

import struct
from dataclasses import dataclass
from typing import Final

from lodger_sandbox.core.syscall_tables import (
    DENIED,
    IOCTL,
    MODE_CALLS,
    NAMESPACE_CALLS,
    PRETENDED_MISSING,
    SEMAPHORES,
    SET_SOCKET_OPTION,
    SOCKET,
    UNCOUNTED_FILES,
    Architecture,
    ModeCall,
)

# linux/bpf_common.h
_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_AT_LEAST: Final = 0x35
_JUMP_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06

# linux/seccomp.h
KILL_PROCESS: Final = 0x80000000
ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
REFUSED: Final = _ERRNO | 1  # EPERM
MISSING: Final = _ERRNO | 38  # ENOSYS
WITHOUT_EFFECT: Final = _ERRNO | 0
UNKNOWN_OPTION: Final = _ERRNO | 92  # ENOPROTOOPT
TOO_MANY: Final = _ERRNO | 22  # EINVAL

# linux/audit.h
_AUDIT_ARCHITECTURE: Final = {Architecture.X86_64: 0xC000003E, Architecture.AARCH64: 0xC00000B7}
_X32_BIT: Final = 0x40000000

_NUMBER_OFFSET: Final = 0
_ARCHITECTURE_OFFSET: Final = 4
_FIRST_ARGUMENT_OFFSET: Final = 16

SET_ID_BITS: Final = 0o6000
CREATING_FLAGS: Final = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE: with any other open the mode argument means nothing."""
NEW_NAMESPACE_FLAGS: Final = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000
"""CLONE_NEW: cgroup, uts, ipc, user, pid, net, mount. CLONE_NEWTIME (0x80) is a signal number's bit for `clone`."""
CLONE_NEWTIME: Final = 0x80
DENIED_IOCTLS: Final = (0x5412, 0x541C, 0x5423)
"""TIOCSTI and TIOCLINUX push input into a terminal; TIOCSETD loads line disciplines."""
ALLOWED_FAMILIES: Final = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
SOCKET_LEVEL: Final = 1
BUFFER_OPTIONS: Final = (7, 8)
"""SO_SNDBUF and SO_RCVBUF: up to twice net.core.wmem_max, 8 MiB a socket on some machines."""
ZERO_COPY: Final = 60
"""SO_ZEROCOPY: a byte that waits in a socket keeps its whole page, of up to 2 MiB, after its process let go of it."""
SEMAPHORES_OF_A_SET: Final = 64
"""As many sets as the kernel allows, 32,000, then take some 140 MB."""


@dataclass(frozen=True, slots=True)
class _Step:
    code: int
    if_true: int
    if_false: int
    value: int

    def packed(self) -> bytes:
        return struct.pack("<HBBI", self.code, self.if_true, self.if_false, self.value)


def filter_program(architecture: Architecture, *, memory_is_counted: bool) -> bytes:
    """The program as the kernel and bwrap take it: 8 bytes an instruction.

    Args:
        memory_is_counted: by a control group, wherever it lies. Otherwise there are no memory files, nothing that
            waits in a socket or a pipe is a process's own page, sets of semaphores are small, and buffers of sockets
            keep the size that they are born with, so that their number says how much they hold at most.
    """
    steps = [
        _load(_ARCHITECTURE_OFFSET),
        _Step(_JUMP_EQUAL, 1, 0, _AUDIT_ARCHITECTURE[architecture]),
        _give(KILL_PROCESS),
        _load(_NUMBER_OFFSET),
    ]
    if architecture is Architecture.X86_64:
        steps += [_Step(_JUMP_AT_LEAST, 0, 1, _X32_BIT), _give(MISSING)]
    for call in DENIED:
        steps += _whole_call(call.number(architecture), REFUSED)
    for call in PRETENDED_MISSING:
        steps += _whole_call(call.number(architecture), MISSING)
    if not memory_is_counted:
        for call in UNCOUNTED_FILES:
            steps += _whole_call(call.number(architecture), MISSING)
        steps += _when_called(SET_SOCKET_OPTION.number(architecture), _socket_options())
        steps += _when_called(SEMAPHORES.number(architecture), _refuse_above(1, SEMAPHORES_OF_A_SET, TOO_MANY))
    for call in NAMESPACE_CALLS:
        flags = NEW_NAMESPACE_FLAGS | (CLONE_NEWTIME if call.name == "unshare" else 0)
        steps += _when_called(call.number(architecture), _refuse_any_bit(0, flags))
    for mode_call in MODE_CALLS:
        steps += _when_called(mode_call.number(architecture), _refuse_set_id(mode_call))
    steps += _when_called(IOCTL.number(architecture), _refuse_values(1, DENIED_IOCTLS))
    steps += _when_called(SOCKET.number(architecture), _allow_values(0, ALLOWED_FAMILIES))
    steps.append(_give(ALLOW))
    return b"".join(step.packed() for step in steps)


def _load(offset: int) -> _Step:
    return _Step(_LOAD, 0, 0, offset)


def _load_argument(index: int) -> _Step:
    # The low word: the kernel itself looks at no more of a mode, a family, an ioctl request or these flags.
    return _load(_FIRST_ARGUMENT_OFFSET + 8 * index)


def _give(verdict: int) -> _Step:
    return _Step(_RETURN, 0, 0, verdict)


def _whole_call(number: int | None, verdict: int) -> list[_Step]:
    return _when_called(number, [_give(verdict)])


def _when_called(number: int | None, body: list[_Step]) -> list[_Step]:
    """`body` for this call only. It ends in a verdict on every way through."""
    if number is None:
        return []
    return [_Step(_JUMP_EQUAL, 0, len(body), number), *body]


def _refuse_any_bit(argument: int, bits: int) -> list[_Step]:
    return [_load_argument(argument), _Step(_JUMP_ANY_BIT, 0, 1, bits), _give(REFUSED), _give(ALLOW)]


def _refuse_set_id(call: ModeCall) -> list[_Step]:
    tail = _refuse_any_bit(call.mode_argument, SET_ID_BITS)
    if call.flags_argument is None:
        return tail
    return [_load_argument(call.flags_argument), _Step(_JUMP_ANY_BIT, 1, 0, CREATING_FLAGS), _give(ALLOW), *tail]


def _socket_options() -> list[_Step]:
    """For sizes a success without effect: a program that could not set one would give up, one that has less goes on."""
    of_sockets = _by_value(2, BUFFER_OPTIONS, WITHOUT_EFFECT, ALLOW)
    copies_not = [_load_argument(2), _Step(_JUMP_EQUAL, 0, 1, ZERO_COPY), _give(UNKNOWN_OPTION)]
    return [_load_argument(1), _Step(_JUMP_EQUAL, 1, 0, SOCKET_LEVEL), _give(ALLOW), *copies_not, *of_sockets]


def _refuse_above(argument: int, most: int, refusal: int) -> list[_Step]:
    return [_load_argument(argument), _Step(_JUMP_AT_LEAST, 0, 1, most + 1), _give(refusal), _give(ALLOW)]


def _refuse_values(argument: int, values: tuple[int, ...]) -> list[_Step]:
    return _by_value(argument, values, REFUSED, ALLOW)


def _allow_values(argument: int, values: tuple[int, ...]) -> list[_Step]:
    return _by_value(argument, values, ALLOW, REFUSED)


def _by_value(argument: int, values: tuple[int, ...], if_listed: int, otherwise: int) -> list[_Step]:
    steps = [_load_argument(argument)]
    for value in values:
        steps += [_Step(_JUMP_EQUAL, 0, 1, value), _give(if_listed)]
    return [*steps, _give(otherwise)]
