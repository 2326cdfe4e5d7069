"""Attacks on the sandbox from within: raw system calls, the gold answer, memory and descriptors, processes left behind.

`test_sandbox.py` has the attacks through Python's own functions. Here, each class of calls that reaches beyond the
process is tried by number, all in one program, so that the call filter is what answers.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansatz.errors import ConfigError
from ansatz.rewards import sandbox
from ansatz.rewards.sandbox import Ended, SandboxLimits, run

PATIENT = SandboxLimits(timeout_s=20)

# class -> name -> number on x86-64 and arguments. PARENT is the process that started the program, SPACE is memory of
# 4,096 bytes. With these arguments most calls would do nothing, even if they were allowed.
CALLS = {
    "signals": (
        "kill 62 PARENT 0, tkill 200 PARENT 0, tgkill 234 PARENT PARENT 0, rt_sigqueueinfo 129 PARENT 0 SPACE, "
        "rt_tgsigqueueinfo 297 PARENT PARENT 0 SPACE, pidfd_open 434 PARENT 0, pidfd_send_signal 424 1 0 0 0, "
        "pidfd_getfd 438 1 0 0, timer_create 222 1 0 SPACE, setitimer 38 9 0 0, alarm 37 0, timer_settime 223 0 0 "
        "SPACE 0, mq_notify 244 -1 SPACE"
    ),
    "signals by I/O": (
        "F_SETOWN 72 1 8 PARENT, F_SETSIG 72 1 10 9, F_SETOWN_EX 72 1 15 SPACE, F_NOTIFY 72 1 1026 0, F_SETFL 72 1 "
        "4 0, F_GETOWN 72 1 9 0, F_CANCELLK 72 0 1029 SPACE, FIOASYNC 16 1 0x5452 SPACE, FIOSETOWN 16 1 0x8901 "
        "SPACE, SIOCSPGRP 16 1 0x8902 SPACE"
    ),
    "terminals": (
        "TIOCSTI 16 0 0x5412 SPACE, TIOCSCTTY 16 0 0x540E 0, TIOCSPGRP 16 0 0x5410 SPACE, TIOCLINUX 16 0 0x541C "
        "SPACE, FIONBIO 16 1 0x5421 SPACE, vhangup 153"
    ),
    "memory of others": (
        "ptrace 101 16 PARENT 0 0, process_vm_readv 310 PARENT SPACE 1 SPACE 1 0, process_vm_writev 311 PARENT "
        "SPACE 1 SPACE 1 0, process_madvise 440 1 SPACE 1 4 0, process_mrelease 448 1 0, kcmp 312 PARENT PARENT 1 "
        "0 0, move_pages 279 PARENT 0 0 0 0 0, migrate_pages 256 PARENT 0 0 0, userfaultfd 323 0, membarrier 324 1 "
        "0 0, get_robust_list 274 PARENT SPACE SPACE, set_robust_list 273 SPACE 24, perf_event_open 298 SPACE "
        "PARENT -1 -1 0"
    ),
    "locks that involve others": (
        "FUTEX_LOCK_PI 202 OWNED 6 0 SPACE, FUTEX_LOCK_PI_PRIVATE 202 OWNED 134 0 SPACE, FUTEX_TRYLOCK_PI 202 "
        "OWNED 8, FUTEX_LOCK_PI2 202 OWNED 13 0 SPACE, FUTEX_CMP_REQUEUE_PI 202 OWNED 12 0 SPACE, "
        "FUTEX_WAIT_REQUEUE_PI 202 OWNED 11 0 SPACE, shared FUTEX_WAKE 202 OWNED 1 1, futex_wake 454 OWNED 1 1 2, "
        "futex_waitv 449 SPACE 0 0 0 0, flock 73 0 6, F_SETLK 72 0 6 SPACE, F_OFD_SETLK 72 0 37 SPACE, F_SETLEASE "
        "72 0 1024 0"
    ),
    "scheduling of others": (
        "setpriority 141 0 PARENT 0, sched_setaffinity 203 PARENT 0 SPACE, sched_setscheduler 144 PARENT 0 SPACE, "
        "sched_setparam 142 PARENT SPACE, sched_setattr 314 PARENT SPACE 0, ioprio_set 251 1 PARENT 0, prlimit 302 "
        "PARENT 7 0 SPACE, new limit 302 0 7 SPACE 0, high half 302 0 7 0x100000000 0, setrlimit 160 7 SPACE, core "
        "scheduling 157 62 1 PARENT 0 0, getpriority 140 0 PARENT, sched_getattr 315 PARENT SPACE 56 0, clock of "
        "another 228 CLOCK SPACE, its resolution 229 CLOCK SPACE, sleep by it 230 CLOCK 1 SPACE 0"
    ),
    "processes": (
        "clone 56 0xFFFFFFFF 0 0 0 0, clone3 435 SPACE 0, execve 59 0 0 0, execveat 322 -1 0 0 0 0, memfd_create "
        "319 SPACE 0, memfd_secret 447 0, setsid 112, setpgid 109 0 0, prctl 157 4 1 0 0 0, arch_prctl 158 0x1001 "
        "0, personality 135 0xFFFFFFFF, modify_ldt 154 0 SPACE 16, lsm_set_self_attr 460 100 SPACE 32 0, seccomp "
        "317 0 1 0, unshare 272 0, setns 308 -1 0, wait4 61 -1 SPACE 1 0"
    ),
    "privileges": (
        "setuid 105 0, setgid 106 0, setresuid 117 -1 -1 -1, setgroups 116 0 0, capset 126 SPACE SPACE, chroot 161 "
        "0, pivot_root 155 0 0, mount 165 0 0 0 0 0, umount2 166 0 0, fsopen 430 0 0, open_tree 428 -1 0 0, "
        "move_mount 429 -1 0 -1 0 0, landlock_create_ruleset 444 0 0 1, landlock_restrict_self 446 -1 0, bpf 321 "
        "-1 0 0, add_key 248 0 0 0 0 0, request_key 249 0 0 0 0, keyctl 250 -1 0 0 0 0, init_module 175 0 0 0, "
        "iopl 172 0, quotactl 179 -1 0 0 0, acct 163 1, sethostname 170 0 -1, settimeofday 164 1 1, clock_settime "
        "227 -1 0, syslog 103 10 0 0, name_to_handle_at 303 -1 0 0 0 0, open_by_handle_at 304 -1 SPACE 0"
    ),
    "sockets": (
        "AF_INET 41 2 1 0, AF_UNIX 41 1 1 0, AF_NETLINK 41 16 3 0, AF_ALG 41 38 5 0, AF_VSOCK 41 40 1 0, AF_PACKET "
        "41 17 3 0, socketpair 53 1 1 0 SPACE, connect 42 1 SPACE 0, bind 49 1 SPACE 0, sendto 44 1 SPACE 0 0 0 0, "
        "sendmsg 46 1 SPACE 0, recvmsg 47 0 SPACE 0"
    ),
    "objects of the kernel": (
        "io_uring_setup 425 1 SPACE, io_uring_enter 426 -1 0 0 0 0, io_setup 206 1 SPACE, pipe2 293 SPACE 0, "
        "epoll_create1 291 0, eventfd2 290 0 0, signalfd4 289 -1 SPACE 8 0, timerfd_create 283 1 0, inotify_init1 "
        "294 0, fanotify_init 300 0 0, shmget 29 0 4096 0x380, semget 64 0 1 0x380, msgget 68 0 0x380, mq_open 240 "
        "SPACE 0x42 384 0, splice 275 0 0 1 0 0 0, tee 276 0 1 0 0, vmsplice 278 1 SPACE 0 0, sendfile 40 1 0 0 0, "
        "copy_file_range 326 0 0 1 0 0 0, F_SETPIPE_SZ 72 1 1031 1048576, F_GETPIPE_SZ 72 1 1032 0, close_range "
        "436 50 60 0, sendmmsg 307 1 SPACE 0 0, statmount 457 SPACE SPACE 4096 0"
    ),
    "files": (
        "openat2 437 -1 0 0 0, creat 85 0 0, rename 82 0 0, unlink 87 0, link 86 0 0, symlink 88 0 0, mkdir 83 0 "
        "0, mknod 133 0 0 0, chmod 90 0 0, chown 92 0 0 0, fchmod 91 0 384, truncate 76 0 0, ftruncate 77 0 0, "
        "fallocate 285 0 0 0 1, utimensat 280 -1 0 0 0, setxattr 188 0 0 0 0 0, pwrite64 18 0 SPACE 0 0, pwritev "
        "296 0 SPACE 0 0 0, sync 162, O_TMPFILE 257 -100 SPACE 0x410002 384, O_TRUNC 2 SPACE 512 0, chdir 80 0, "
        "fadvise64 221 0 0 0 0, pwritev2 328 1 SPACE 0 0 0 0, readahead 187 0 0 4096, cachestat 451 0 SPACE SPACE "
        "0, F_ADD_SEALS 72 0 1033 1, F_SET_RW_HINT 72 0 1036 SPACE, FICLONE 16 0 0x40049409 1, FS_IOC_SETFLAGS 16 "
        "0 0x40086602 SPACE, quotactl_fd 443 0 0 0 0, mount_setattr 442 -1 SPACE 0 SPACE 32"
    ),
    "memory of the machine": (
        "MADV_HWPOISON 28 0 0 100, MADV_SOFT_OFFLINE 28 0 0 101, MADV_MERGEABLE 28 0 0 12, MADV_REMOVE 28 0 0 9, "
        "MADV_PAGEOUT 28 0 0 21, MAP_LOCKED 9 0 4096 3 0x2022 -1 0, MAP_HUGETLB 9 0 2097152 3 0x40022 -1 0, mlock "
        "149 SPACE 0, mlockall 151 0, swapon 167 0 0, mbind 237 0 0 0 0 0 0, remap_file_pages 216 0 0 0 0 0"
    ),
    "the x32 numbers": (
        "write 0x40000001 1 SPACE 0, kill 0x4000003E PARENT 0, rt_sigqueueinfo 0x4000020C PARENT 0 SPACE"
    ),
}

PLACES = [
    "/proc/self/mem", "/proc/self/environ", "/proc/self/cmdline", "/proc/PARENT/mem", "/proc/PARENT/environ",
    "/proc/PARENT/cmdline", "/proc/PARENT/maps", "/proc/PARENT/fd/0", "/proc/PARENT/root/etc/passwd",
    "/proc/PARENT/ns/pid", "/proc/self/exe", "/proc/sysrq-trigger", "/sys/kernel/uevent_seqnum",
    "/dev/tty", "/dev/mem", "/dev/kmsg", "/tmp", ".",
]  # fmt: skip

TRY_CALLS = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
space, owned = ctypes.create_string_buffer(4096), ctypes.c_uint32(os.getppid())
known = {"PARENT": os.getppid(), "CLOCK": (~os.getppid() << 3) | 2, "SPACE": ctypes.addressof(space),
         "OWNED": ctypes.addressof(owned)}
for kind, calls in CALLS.items():
    for call in calls.split(", "):
        words = call.split(" ")
        start = next(at for at, word in enumerate(words) if word[0].isdigit())
        numbers = [ctypes.c_long(known[word] if word in known else int(word, 0)) for word in words[start:]]
        ctypes.set_errno(0)
        if libc.syscall(*numbers) != -1 or ctypes.get_errno() != errno.EPERM:
            print(kind, ":", call)
print("tried")
"""


@pytest.fixture(scope="module", autouse=True)
def _needs_a_sandbox():
    try:
        sandbox.require("full")
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def allowed_calls() -> list[str]:
    if platform.machine() != "x86_64":
        pytest.skip("the numbers are those of x86-64")
    seen = run(f"CALLS = {CALLS!r}\n{TRY_CALLS}", limits=PATIENT)
    assert seen.stdout.endswith("tried\n"), seen.stderr
    return seen.stdout.split("\n")


@pytest.mark.parametrize("kind", CALLS)
def test_calls_with_effects_outside_are_refused(kind, allowed_calls):
    assert [call for call in allowed_calls if call.startswith(f"{kind} :")] == []


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86-64")
def test_the_calls_of_32_bit_programs_end_the_program():
    attack = r"""
import ctypes, mmap
code = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20 (getpid); int 0x80; ret
print("before", flush=True)
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())
"""
    seen = run(attack, limits=PATIENT)
    assert (seen.ended, seen.stdout) == (Ended.EXIT_ERROR, "before\n")


def test_the_input_cannot_be_changed_by_mapping_it():
    attack = """
import mmap, os
for way in (lambda: mmap.mmap(0, 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE), lambda: os.write(0, b"x")):
    try: print(way())
    except OSError: print("refused")
print(input())
"""
    assert run(attack, stdin="mine", limits=PATIENT).stdout == "refused\nrefused\nmine\n"


def test_memory_cannot_be_kept_outside_the_limit_through_descriptors():
    # root can open its own mappings as files, and an open file keeps memory that no longer counts as address space
    attack = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.mmap.restype, size = ctypes.c_void_p, 1 << 20
place = libc.mmap(None, ctypes.c_size_t(size), 3, 0x21, -1, 0)  # shared, anonymous
ctypes.memset(place, 1, size)
try: print("kept", os.open(f"/proc/self/map_files/{place:x}-{place + size:x}", os.O_RDONLY))
except OSError: print("refused")
descriptors = 3
try:
    while True: descriptors = max(os.dup(0), descriptors)
except OSError: print(descriptors)
"""
    assert run(attack, limits=PATIENT).stdout == "refused\n63\n"


@pytest.fixture(scope="module")
def opened() -> list[str]:
    """Those of PLACES that a program could open for reading."""
    attack = f"""
import os
for place in {[*PLACES, os.__file__]!r}:
    try: os.open(place.replace("PARENT", str(os.getppid())), os.O_RDONLY | os.O_NONBLOCK)
    except OSError: continue
    print(place)
"""
    seen = run(attack, limits=PATIENT).stdout.split("\n")
    assert os.__file__ in seen
    return seen


@pytest.mark.parametrize("place", PLACES)
def test_nothing_of_other_processes_and_of_devices_can_be_read(place, opened):
    assert place not in opened


def test_installed_packages_cannot_be_read_unless_they_are_asked_for():
    read = f"print(len(open({pytest.__file__!r}).read()) > 0)"
    seen = run(read, limits=PATIENT)
    assert (seen.stdout, "PermissionError" in seen.stderr) == ("", True)
    assert run(read, limits=PATIENT, packages=True).stdout == "True\n"


def test_installed_packages_among_the_standard_library_are_left_out(monkeypatch, tmp_path):
    standard = tmp_path / "lib" / "python3"
    for name in ("site-packages/data", "dist-packages", "json", "../openssl"):
        (standard / name).mkdir(parents=True)
    (tmp_path / "lib" / "elsewhere").symlink_to("/etc")
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sandbox.sysconfig, "get_path", lambda name: str(standard))
    monkeypatch.setattr(sandbox, "_LIBRARIES", ())
    assert sandbox._libraries() == [str(tmp_path / "lib" / "openssl"), str(standard / "json")]


def test_a_crash_starts_no_handler_and_root_keeps_no_privileges(monkeypatch):
    # without the call filter, so that the program can ask. The handler runs outside, even if there is no core file
    ask = """
import ctypes, struct
libc = ctypes.CDLL(None)
sets = ctypes.create_string_buffer(24)
libc.capget(struct.pack("Ii", 0x20080522, 0), sets)
effective, permitted, _, high, high_permitted, _ = struct.unpack("6I", sets)
print(libc.prctl(3), (effective | permitted) & ~4, high | high_permitted)
"""
    monkeypatch.setattr(sandbox, "build_filter", lambda: None)
    sandbox._access.cache_clear()
    try:
        assert run(ask, isolation="available", limits=PATIENT).stdout == "0 0 0\n"
    finally:
        sandbox._access.cache_clear()


def test_a_program_whose_parent_died_while_it_started_does_not_run(monkeypatch):
    monkeypatch.setattr(sandbox.os, "getpid", lambda: 1)
    seen = run("print('ran')")
    assert (seen.ended, seen.stdout) == (Ended.NEVER_RAN, "")
    assert "the parent died" in seen.stderr


def test_a_program_that_ignores_signals_ends_with_its_parent_and_at_its_deadline():
    stubborn = """
import os, signal, time
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
os.write(2, b'.')
time.sleep(60)
"""
    assert run(stubborn, limits=SandboxLimits(timeout_s=0.3)).ended is Ended.TIMEOUT
    grade = f"from ansatz.rewards import sandbox; sandbox.run({stubborn!r}, limits=sandbox.SandboxLimits(timeout_s=60))"
    parent = subprocess.Popen([sys.executable, "-c", grade])
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    try:
        until = time.monotonic() + 60
        while not (found := children.read_text().split()) and time.monotonic() < until:
            time.sleep(0.01)
        (program,) = found
        while signal.SIGTERM not in _ignored(program) and time.monotonic() < until:
            time.sleep(0.01)
        assert signal.SIGTERM in _ignored(program)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    while _is_running(program) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _is_running(program)


def _ignored(pid: str) -> set[int]:
    lines = Path(f"/proc/{pid}/status").read_text().split("\n")
    mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def _is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
