"""The process in the sandbox: restricts itself, then runs the program. Started by path; standard library only.

argv: [a descriptor with the job as JSON, a descriptor that gets one byte when all restrictions are in place]. No
restriction needs privileges, and the program cannot remove any of them.

The job's role decides the next step. run: the source is executed. session: each line of the standard input is a
program as JSON. All run in one namespace, as the cells of a notebook do, and after each the second descriptor gets
another byte. program: prelude and source are executed, and then answer calls (`plain_calls`); instances of the named
classes are passed by their attributes. checker: tests call such a program (`code_checker`). For the last two, input and
output carry messages, and printed text goes nowhere.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import ctypes
import json
import os
import resource
import stat
import struct
import sys
import traceback
import types
from typing import Any

_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER_MODE = 1, 4, 38, 22, 2  # prctl(2)
_SIGKILL = 9
_CAPABILITY_VERSION, _CAP_DAC_READ_SEARCH = 0x20080522, 2  # capabilities(7), capset(2)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _PATH_BENEATH = 444, 445, 446, 1  # landlock(7); the same on all machines
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_READ = _READ_FILE | _READ_DIR
_ALL_RIGHTS = (1 << 13) - 1
_RIGHTS_SINCE = ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15))  # ABI version: moving files, truncating, device control

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    job_descriptor, ready_descriptor = int(sys.argv[1]), int(sys.argv[2])
    with os.fdopen(job_descriptor, "rb") as file:
        job: dict[str, Any] = json.load(file)
    program = types.ModuleType("__main__")
    sys.modules["__main__"] = program
    sys.argv, sys.path = ["program.py"], job["path"]
    builtins.exit = builtins.quit = sys.exit  # the site module, which defines them, is not loaded
    source: str = job["source"]
    cells = _take_input() if job["role"] == "session" else None
    send, receive = _take_messages() if job["role"] in ("program", "checker") else (None, None)
    calls = _sibling("plain_calls") if send else None
    checker = _sibling("code_checker") if job["role"] == "checker" else None
    restrict(job)
    os.write(ready_descriptor, b"1")
    if cells is not None:
        _run_cells(cells, program.__dict__, ready_descriptor)
        return
    os.close(ready_descriptor)
    if checker is not None:
        checker.serve(calls, send, receive)
        return
    exec(compile(job.get("prelude", ""), "prelude", "exec", dont_inherit=True), program.__dict__)
    exec(compile(source, "program.py", "exec", dont_inherit=True), program.__dict__)
    if calls is not None and send is not None:
        send("{}")
        calls.Peer(send, receive, namespace=program.__dict__, classes=tuple(job["classes"]), open=True).serve()
        os._exit(0)


def _sibling(name: str) -> Any:
    """Return a module of this folder, which the program cannot read."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    module = types.ModuleType(name)
    sys.modules[name] = module
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), name, "exec", dont_inherit=True), module.__dict__)
    return module


def _take_messages() -> tuple[Any, Any]:
    """Return functions that send and receive a line of text. Programs find an empty input and an output that goes
    nowhere."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.dup(1)
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        empty = os.open(os.devnull, mode)
        os.dup2(empty, number)
        os.close(empty)

    def send(text: str) -> None:
        line = memoryview(text.encode() + b"\n")
        while line:
            line = line[os.write(outgoing, line) :]

    def receive() -> str:
        if not (line := incoming.readline()):
            raise EOFError
        return line.decode()

    return send, receive


def _take_input() -> Any:
    """Return the standard input as a file for `_run_cells` alone. Programs find an empty input instead."""
    cells = os.fdopen(os.dup(0), "rb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return cells


def _run_cells(cells: Any, namespace: dict[str, Any], done_descriptor: int) -> None:
    """Run programs one after the other. One that exits, or closes the output, ends the session."""
    try:
        for line in cells:
            try:
                _run_cell(json.loads(line), namespace)
            except BaseException as error:
                if isinstance(error, SystemExit):
                    raise
                print(_described(error))
            sys.stdout.flush()
            os.write(done_descriptor, b"1")
    except BaseException:
        os._exit(1)  # without this, Python would print a traceback through this file


def _run_cell(source: str, namespace: dict[str, Any]) -> None:
    """Run a program. The value of an expression in its last line is printed, unless it is None."""
    tree = ast.parse(source, "cell")
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, "cell", "exec", dont_inherit=True), namespace)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "cell", "eval", dont_inherit=True), namespace)
        if value is not None:
            print(repr(value))


def _described(error: BaseException) -> str:
    """Return the error in a line, with the line of the program that raised it."""
    text = "".join(traceback.format_exception_only(error)).strip().rpartition("\n")[2]
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "cell"]
    return f"{text} (line {lines[-1]})" if lines else text


def restrict(job: dict[str, Any]) -> None:
    """Restrict limits and privileges, then files, then system calls. Raise OSError if a required restriction is not
    possible."""
    for name, value in job["limits"].items():
        limit = getattr(resource, name)
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    _be_ended_first()
    _checked(_libc.prctl(_SET_DEATH_SIGNAL, _SIGKILL, 0, 0, 0))  # when the parent dies, this process is killed
    if os.getppid() != job["parent"]:
        raise OSError("the parent died before the program started")
    _drop_capabilities()
    _checked(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0))  # a crash must not start the machine's handler of crashes
    _checked(_libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    try:
        _restrict_files(job["listable"], job["readable"])
    except OSError as error:
        if job["full"]:
            raise OSError(f"files cannot be protected with Landlock ({error.strerror})") from error
    if job["filter"]:
        _restrict_calls(bytes.fromhex(job["filter"]))
    elif job["full"]:
        raise OSError("the system calls of this machine architecture are not known")


def _be_ended_first() -> None:
    """Have the kernel end this process before the one that trains when the machine runs out of memory: the limit on
    memory is one of each process, and many responses can have one at the same time."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # without /proc: as it was
        file.write("1000")


def _drop_capabilities() -> None:
    """Make root a user like others, who can still read whatever Landlock then allows."""
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    sets = ctypes.create_string_buffer(24)  # effective, permitted, inheritable; then the same for the upper 32
    _checked(_libc.capget(header, sets))
    kept = struct.unpack("6I", sets)[1] & 1 << _CAP_DAC_READ_SEARCH
    _checked(_libc.capset(header, struct.pack("6I", kept, kept, 0, 0, 0, 0)))


def _restrict_files(listable: list[str], readable: list[str]) -> None:
    """Allow no writing from here on, and reading only under `readable` (Landlock). Folders under `listable` can be
    listed."""
    version = _checked(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))
    rights = _ALL_RIGHTS | sum(right for since, right in _RIGHTS_SINCE if version >= since)
    attributes = struct.pack("Q", rights)
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    for path, allowed in [(path, _READ_DIR) for path in listable] + [(path, _READ) for path in readable]:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:  # not on this machine, or removed since the parent listed it
            continue
        allowed = allowed if stat.S_ISDIR(os.fstat(place).st_mode) else allowed & _READ_FILE
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, place), 0))
        os.close(place)
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _restrict_calls(program: bytes) -> None:
    """Allow only the calls that the filter lists, from here on (Seccomp)."""
    instructions = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    _checked(_libc.prctl(_SET_SECCOMP, _FILTER_MODE, head, 0, 0))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


if __name__ == "__main__":
    main()
