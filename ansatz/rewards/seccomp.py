"""The system calls that a sandboxed Python program can make, as a seccomp filter (Linux; no privileges needed).

Every other call fails with EPERM: no sockets, no processes or threads, no signals to others, no change of files or
limits. Files can be opened only for reading. Calls that could do more depending on an argument are allowed only with
the arguments that Python and its libraries use. The filter is a BPF program (seccomp(2), linux/filter.h).
"""

from __future__ import annotations

import platform
import struct
from typing import NamedTuple


class _Calls(NamedTuple):
    """Call numbers of a machine. plain: allowed with any arguments. checked: name -> number, see `_CHECKS`."""

    audit_arch: int
    plain: tuple[int, ...]
    checked: dict[str, int]


# read write close fstat lseek mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread readv writev
# sched_yield mremap dup nanosleep getpid uname getcwd gettimeofday getrusage sysinfo times getuid getgid
# geteuid getegid getppid sigaltstack gettid sched_getaffinity getdents64 exit exit_group newfstatat readlinkat
# faccessat pselect6 ppoll dup3 getrandom statx faccessat2, and on x86-64 the older stat lstat poll access select
# getdents readlink dup2 time
_X86_64 = _Calls(
    audit_arch=0xC000003E,
    plain=(
        0, 1, 3, 5, 8, 10, 11, 12, 13, 14, 15, 17, 19, 20, 24, 25, 32, 35, 39, 63, 79, 96, 98, 99, 100, 102,
        104, 107, 108, 110, 131, 186, 204, 217, 60, 231, 262, 267, 269, 270, 271, 292, 318, 332, 439, 4, 6, 7, 21, 23,
        78, 89, 33, 201,
    ),
    checked={
        "open": 2, "openat": 257, "mmap": 9, "ioctl": 16, "madvise": 28, "fcntl": 72, "futex": 202,
        "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230, "prlimit": 302,
    },
)  # fmt: skip
_AARCH64 = _Calls(
    audit_arch=0xC00000B7,
    plain=(
        63, 64, 57, 80, 62, 226, 215, 214, 134, 135, 139, 67, 65, 66, 124, 216, 23, 101, 172, 160, 17,
        169, 165, 179, 153, 174, 176, 175, 177, 173, 132, 178, 123, 61, 93, 94, 79, 78, 48, 72, 73, 24, 278, 291, 439,
    ),
    checked={
        "openat": 56, "mmap": 222, "ioctl": 29, "madvise": 233, "fcntl": 25, "futex": 98,
        "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115, "prlimit": 261,
    },
)  # fmt: skip
_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}

_WRITING = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000 | 0o20000000  # O_WRONLY O_RDWR O_CREAT O_TRUNC O_APPEND O_TMPFILE's own
_MACHINE_MEMORY = 0x2000 | 0x40000  # MAP_LOCKED MAP_HUGETLB: memory that cannot be swapped; the pool of huge pages
_IOCTLS = (0x5401, 0x5450, 0x5451)  # is it a terminal; keep or close on exec
# F_DUPFD F_GETFD F_SETFD F_GETFL F_DUPFD_CLOEXEC. Without this list, F_SETOWN, F_SETSIG and O_ASYNC (by F_SETFL) make
# the kernel send a signal of the program's choice to any process of the same user.
_FCNTLS = (0, 1, 2, 3, 1030)
# MADV_NORMAL RANDOM SEQUENTIAL WILLNEED DONTNEED FREE HUGEPAGE NOHUGEPAGE: what allocators use. MADV_HWPOISON and
# MADV_SOFT_OFFLINE, which take memory away from the whole machine when the user is root, are not in it.
_ADVICE = (0, 1, 2, 3, 4, 8, 14, 15)
# FUTEX_WAIT WAKE WAIT_BITSET WAKE_BITSET, private to the process; the third also by the clock of the day. FUTEX_LOCK_PI
# and its relatives are not in it: they tie the kernel's account of any other process, of any user, to a lock made here.
_FUTEXES = (128, 129, 137, 138, 137 | 256)
_OTHER_PROCESS = 1 << 31  # a negative clock is the CPU clock of another process, or of a device

_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, |JSET|K, BPF_RET|K
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050000 | 1, 0x7FFF0000  # RET_KILL_PROCESS, RET_ERRNO|EPERM, RET_ALLOW
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; little-endian


def _step(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """Return one instruction. then, otherwise: number of instructions that a jump skips."""
    return struct.pack("<HBBI", code, then, otherwise, value)


_REFUSED, _ALLOWED = _step(_RETURN, _REFUSE), _step(_RETURN, _ALLOW)


def build_filter(machine: str | None = None) -> bytes | None:
    """Return the filter as an array of struct sock_filter. None for a machine whose call numbers are not known here."""
    calls = _MACHINES.get(machine or platform.machine())
    if calls is None:
        return None
    steps = [
        _step(_LOAD, _ARCH),
        _step(_JUMP_EQUAL, calls.audit_arch, then=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    for name, number in calls.checked.items():
        checks = _CHECKS[name]
        steps += [_step(_JUMP_EQUAL, number, otherwise=len(checks) + 1), *checks, _ALLOWED]
    for number in calls.plain:
        steps += [_step(_JUMP_EQUAL, number, otherwise=1), _ALLOWED]
    return b"".join([*steps, _REFUSED])


def _half(index: int, *, low: bool) -> bytes:
    """Load 32 bits of the 64-bit argument with that index."""
    return _step(_LOAD, _FIRST_ARGUMENT + 8 * index + (0 if low else 4))


def _without(bits: int, index: int) -> list[bytes]:
    """Refuse a call whose 32-bit argument with that index has one of the bits."""
    return [_half(index, low=True), _step(_JUMP_ANY_BIT, bits, otherwise=1), _REFUSED]


def _one_of(values: tuple[int, ...], index: int) -> list[bytes]:
    """Refuse a call whose 32-bit argument with that index is not one of the values."""
    matches = [_step(_JUMP_EQUAL, value, then=len(values) - at) for at, value in enumerate(values)]
    return [_half(index, low=True), *matches, _REFUSED]


_CHECKS = {
    "open": _without(_WRITING, 1),
    "openat": _without(_WRITING, 2),
    "mmap": _without(_MACHINE_MEMORY, 3),
    "ioctl": _one_of(_IOCTLS, 1),
    "madvise": _one_of(_ADVICE, 2),
    "fcntl": _one_of(_FCNTLS, 1),
    "futex": _one_of(_FUTEXES, 1),
    "clock_gettime": _without(_OTHER_PROCESS, 0),
    "clock_getres": _without(_OTHER_PROCESS, 0),
    "clock_nanosleep": _without(_OTHER_PROCESS, 0),
    # the program's own limits can be read: no other process, and no pointer to new limits
    "prlimit": [
        *_one_of((0,), 0),
        *(step for low in (True, False) for step in (_half(2, low=low), _step(_JUMP_EQUAL, 0, then=1), _REFUSED)),
    ],
}
