"""The filter's meaning, by running the program on calls with an interpreter of our own."""

import platform
import re
import struct
from pathlib import Path

import pytest

from lodger_sandbox.core.seccomp import (
    ALLOW,
    KILL_PROCESS,
    MISSING,
    REFUSED,
    TOO_MANY,
    UNKNOWN_OPTION,
    WITHOUT_EFFECT,
    filter_program,
)
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
)

AUDIT = {Architecture.X86_64: 0xC000003E, Architecture.AARCH64: 0xC00000B7}
BOTH = pytest.mark.parametrize("architecture", list(Architecture))


def verdict(
    architecture: Architecture, number: int, *arguments: int, audit: int | None = None, counted: bool = False
) -> int:
    words = [*arguments, *([0] * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number, AUDIT[architecture] if audit is None else audit, 0, *words)
    program = filter_program(architecture, memory_is_counted=counted)
    at, loaded = 0, 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("<I", data, value)
            case 0x15:
                at += if_true if loaded == value else if_false
            case 0x35:
                at += if_true if loaded >= value else if_false
            case 0x45:
                at += if_true if loaded & value else if_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@BOTH
def test_listed_calls_are_refused(architecture: Architecture) -> None:
    found = {call.name: verdict(architecture, n) for call in DENIED if (n := call.number(architecture)) is not None}
    assert set(found.values()) == {REFUSED}


@BOTH
def test_calls_with_hidden_flags_seem_missing(architecture: Architecture) -> None:
    assert {verdict(architecture, call.number(architecture) or -1) for call in PRETENDED_MISSING} == {MISSING}


@BOTH
def test_memory_files_and_larger_buffers_are_there_only_where_a_group_counts_them(architecture: Architecture) -> None:
    numbers = [number for call in UNCOUNTED_FILES if (number := call.number(architecture)) is not None]
    assert {verdict(architecture, number) for number in numbers} == {MISSING}
    assert {verdict(architecture, number, counted=True) for number in numbers} == {ALLOW}
    option = SET_SOCKET_OPTION.number(architecture) or -1
    for name in (7, 8):
        assert verdict(architecture, option, 3, 1, name) == WITHOUT_EFFECT
        assert verdict(architecture, option, 3, 1, name, counted=True) == ALLOW
        assert verdict(architecture, option, 3, 6, name) == ALLOW, "an option of TCP"
    assert verdict(architecture, option, 3, 1, 2) == ALLOW
    assert verdict(architecture, option, 3, 1, 60) == UNKNOWN_OPTION, "zero copy"
    assert verdict(architecture, option, 3, 1, 60, counted=True) == ALLOW


@BOTH
def test_sets_of_semaphores_are_small_only_where_no_group_counts_them(architecture: Architecture) -> None:
    number = SEMAPHORES.number(architecture) or -1
    assert [verdict(architecture, number, 0, size) for size in (0, 1, 64)] == [ALLOW] * 3
    assert [verdict(architecture, number, 0, size) for size in (65, 32000, 2**32 - 1)] == [TOO_MANY] * 3
    assert verdict(architecture, number, 0, 32000, counted=True) == ALLOW


@BOTH
def test_another_architecture_ends_the_process(architecture: Architecture) -> None:
    assert verdict(architecture, 1, audit=0x40000003) == KILL_PROCESS


def test_x32_seems_missing() -> None:
    assert verdict(Architecture.X86_64, 0x40000000 | 165) == MISSING


@BOTH
@pytest.mark.parametrize("flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
def test_new_namespaces_are_refused(architecture: Architecture, flag: int) -> None:
    for call in NAMESPACE_CALLS:
        assert verdict(architecture, call.number(architecture) or -1, flag | 17) == REFUSED


@BOTH
def test_threads_and_processes_are_allowed(architecture: Architecture) -> None:
    clone = NAMESPACE_CALLS[0].number(architecture) or -1
    assert verdict(architecture, clone, 0x3D0F00) == ALLOW  # what pthread_create passes
    assert verdict(architecture, clone, 0x4111) == ALLOW  # vfork with SIGCHLD


@BOTH
@pytest.mark.parametrize("bits", [0o4755, 0o2755, 0o6755])
def test_set_id_bits_are_refused(architecture: Architecture, bits: int) -> None:
    for call in MODE_CALLS:
        number = call.number(architecture)
        if number is None:
            continue
        arguments = [0] * 4
        arguments[call.mode_argument] = bits
        for flags in (0o101, 0o20200002) if call.flags_argument is not None else (None,):
            if call.flags_argument is not None and flags is not None:
                arguments[call.flags_argument] = flags
            assert verdict(architecture, number, *arguments) == REFUSED, call.name


@BOTH
def test_plain_modes_and_reads_are_allowed(architecture: Architecture) -> None:
    for call in MODE_CALLS:
        number = call.number(architecture)
        if number is None:
            continue
        arguments = [0] * 4
        arguments[call.mode_argument] = 0o1755
        if call.flags_argument is not None:
            arguments[call.flags_argument] = 0o101
        assert verdict(architecture, number, *arguments) == ALLOW, call.name
        if call.flags_argument is not None:
            # Without creation the third argument is whatever was in the register.
            arguments[call.flags_argument], arguments[call.mode_argument] = 0, 0o6777
            assert verdict(architecture, number, *arguments) == ALLOW, call.name


@BOTH
def test_terminal_input_is_refused_also_with_high_bits(architecture: Architecture) -> None:
    ioctl = IOCTL.number(architecture) or -1
    assert [verdict(architecture, ioctl, 0, request) for request in (0x5412, 0x541C, 0x5423)] == [REFUSED] * 3
    assert verdict(architecture, ioctl, 0, 0x1_0000_5412) == REFUSED
    assert verdict(architecture, ioctl, 0, 0x5401) == ALLOW


@BOTH
def test_few_socket_families(architecture: Architecture) -> None:
    number = SOCKET.number(architecture) or -1
    allowed = [family for family in range(50) if verdict(architecture, number, family) == ALLOW]
    assert allowed == [1, 2, 10, 16]


def test_ptrace_is_allowed() -> None:
    assert verdict(Architecture.X86_64, 101) == verdict(Architecture.AARCH64, 117) == ALLOW


@pytest.mark.parametrize(
    ("architecture", "header"),
    [
        (Architecture.X86_64, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        (Architecture.AARCH64, "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_numbers_are_the_kernels(architecture: Architecture, header: str) -> None:
    path = Path(header)
    if architecture is Architecture.X86_64 and platform.machine() != "x86_64":
        pytest.skip("this machine's headers know no other architecture's numbers")
    assert path.exists(), "the kernel's headers are missing: bash scripts/system-packages.sh test installs them"
    numbers = dict(re.findall(r"#define\s+__NR_(\w+)\s+(\d+)", path.read_text()))
    ours = (*DENIED, *PRETENDED_MISSING, *UNCOUNTED_FILES, *MODE_CALLS, *NAMESPACE_CALLS, IOCTL, SOCKET, SEMAPHORES)
    known = {call.name: call.number(architecture) for call in ours if call.name in numbers}
    assert known == {name: int(numbers[name]) for name in known}
    assert len(known) > 40
