"""The system calls that a sandboxed Python program can make, as a seccomp filter (Linux; no privileges needed).

Every other call fails with EPERM: no sockets, no processes or threads, no signals to others, no change of files or
limits. Files can be opened only for reading. The filter is a BPF program (seccomp(2), linux/filter.h).
"""

from __future__ import annotations

import platform
import struct
from dataclasses import dataclass
from typing import NamedTuple


class _Calls(NamedTuple):
    """Call numbers of a machine. plain: allowed with any arguments. open_flags: call -> index of its flags argument."""

    audit_arch: int
    plain: tuple[int, ...]
    open_flags: dict[int, int]
    ioctl: int
    fcntl: int
    madvise: int
    prlimit: int


# read write close fstat lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread readv writev
# sched_yield mremap dup nanosleep getpid uname getcwd gettimeofday getrusage sysinfo times getuid getgid
# geteuid getegid getppid sigaltstack gettid futex sched_getaffinity getdents64 clock_gettime clock_getres
# clock_nanosleep exit exit_group newfstatat readlinkat faccessat pselect6 ppoll dup3 getrandom statx rseq faccessat2
# set_robust_list membarrier, and on x86-64 the older stat lstat poll access select getdents readlink dup2 time
_X86_64 = _Calls(
    audit_arch=0xC000003E,
    plain=(
        0, 1, 3, 5, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 20, 24, 25, 32, 35, 39, 63, 79, 96, 98, 99, 100, 102,
        104, 107, 108, 110, 131, 186, 202, 204, 217, 228, 229, 230, 60, 231, 262, 267, 269, 270, 271, 292, 318, 332,
        334, 439, 273, 324, 4, 6, 7, 21, 23, 78, 89, 33, 201,
    ),
    open_flags={2: 1, 257: 2},
    ioctl=16,
    fcntl=72,
    madvise=28,
    prlimit=302,
)  # fmt: skip
_AARCH64 = _Calls(
    audit_arch=0xC00000B7,
    plain=(
        63, 64, 57, 80, 62, 222, 226, 215, 214, 134, 135, 139, 67, 65, 66, 124, 216, 23, 101, 172, 160, 17,
        169, 165, 179, 153, 174, 176, 175, 177, 173, 132, 178, 98, 123, 61, 113, 114, 115, 93, 94, 79, 78, 48, 72, 73,
        24, 278, 291, 293, 439, 99, 283,
    ),
    open_flags={56: 2},
    ioctl=29,
    fcntl=25,
    madvise=233,
    prlimit=261,
)  # fmt: skip
_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}

_IOCTLS = (0x5401, 0x5450, 0x5451)  # is it a terminal; keep or close on exec
# F_DUPFD F_GETFD F_SETFD F_GETFL F_DUPFD_CLOEXEC. Without this list, F_SETOWN, F_SETSIG and O_ASYNC (by F_SETFL) make
# the kernel send a signal of the program's choice to any process of the same user.
_FCNTLS = (0, 1, 2, 3, 1030)
# MADV_NORMAL RANDOM SEQUENTIAL WILLNEED DONTNEED FREE HUGEPAGE NOHUGEPAGE: what allocators use. MADV_HWPOISON and
# MADV_SOFT_OFFLINE, which take memory away from the whole machine when the user is root, are not in it.
_ADVICE = (0, 1, 2, 3, 4, 8, 14, 15)
_WRITING = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000 | 0o20000000  # O_WRONLY O_RDWR O_CREAT O_TRUNC O_APPEND O_TMPFILE's own

_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, |JSET|K, BPF_RET|K
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050000 | 1, 0x7FFF0000  # RET_KILL_PROCESS, RET_ERRNO|EPERM, RET_ALLOW
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; little-endian


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction. then, otherwise: number of instructions that a jump skips."""

    code: int
    value: int
    then: int = 0
    otherwise: int = 0

    def packed(self) -> bytes:
        return struct.pack("<HBBI", self.code, self.then, self.otherwise, self.value)


def build_filter(machine: str | None = None) -> bytes | None:
    """The filter as an array of struct sock_filter. None for a machine whose call numbers are not known here."""
    calls = _MACHINES.get(machine or platform.machine())
    if calls is None:
        return None
    steps = [
        _Step(_LOAD, _ARCH),
        _Step(_JUMP_EQUAL, calls.audit_arch, then=1),
        _Step(_RETURN, _KILL),
        _Step(_LOAD, _NUMBER),
    ]
    for number, index in calls.open_flags.items():
        steps += _only_if(number, [_low(index), _Step(_JUMP_ANY_BIT, _WRITING, otherwise=1), _Step(_RETURN, _REFUSE)])
    for number, index, allowed in ((calls.ioctl, 1, _IOCTLS), (calls.fcntl, 1, _FCNTLS), (calls.madvise, 2, _ADVICE)):
        values = [_Step(_JUMP_EQUAL, value, then=len(allowed) - at) for at, value in enumerate(allowed)]
        steps += _only_if(number, [_low(index), *values, _REFUSED])
    new_limit = [half for low in (True, False) for half in (_half(2, low=low), _Step(_JUMP_EQUAL, 0, then=1), _REFUSED)]
    steps += _only_if(calls.prlimit, new_limit)  # limits can be read, not set
    for number in calls.plain:
        steps += [_Step(_JUMP_EQUAL, number, otherwise=1), _ALLOWED]
    return b"".join(step.packed() for step in [*steps, _REFUSED])


_REFUSED, _ALLOWED = _Step(_RETURN, _REFUSE), _Step(_RETURN, _ALLOW)


def _only_if(number: int, checks: list[_Step]) -> list[_Step]:
    """For the call of that number: the checks, then allow it if none refuses."""
    return [_Step(_JUMP_EQUAL, number, otherwise=len(checks) + 1), *checks, _ALLOWED]


def _low(index: int) -> _Step:
    return _half(index, low=True)


def _half(index: int, *, low: bool) -> _Step:
    """Load 32 bits of the 64-bit argument with that index."""
    return _Step(_LOAD, _FIRST_ARGUMENT + 8 * index + (0 if low else 4))
