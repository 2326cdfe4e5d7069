"""The real command in processes that are forked from one which has loaded the libraries already.

Loading torch and transformers takes most of the time of a run of a few toy steps. Such a process has arguments, output,
signals and an exit of its own, like one that has been started by itself. Two servers with different seeds of hashes
take turns, so that two runs still differ in the order of their sets. Unless a test asks for workers, those for algebra
start with the first answer that needs them, because few toy runs have one, and the processes of a sweep are forks too.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import count
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).parent
PROGRAM = "from warm_commands import serve; serve(); from ansatz.cli.main import main; main()"
LOADED = (
    "ansatz.cli.main",
    "ansatz.cli.eval",
    "ansatz.cli.sweep",
    "ansatz.cli.train",
    "ansatz.findings.run",
    "ansatz.loop.pipeline",
    "ansatz.track.report",
    "transformers.models.qwen3.modeling_qwen3",
    "transformers.models.auto.tokenization_auto",
)
_POLL_S = 0.01
_numbers = count()
_servers: dict[int, Server] = {}


class Server:
    """A process that starts commands. It ends with its parent, because its standard input does."""

    def __init__(self, number: int, environment: dict[str, str]) -> None:
        self.environment = environment
        own = {"PYTHONHASHSEED": str(number), "PYTHONPATH": str(HERE)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=HERE.parent,
            env=environment | own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, arguments: list[str], folder: Path, workers: bool) -> int:
        requests, replies = self.process.stdin, self.process.stdout
        assert requests is not None
        assert replies is not None
        requests.write(json.dumps([arguments, str(folder), self.environment, workers]) + "\n")
        requests.flush()
        return int(replies.readline())


class WarmCommand:
    """A command that has been started: what tests need of a `subprocess.Popen`."""

    def __init__(self, server: Server, arguments: list[str], workers: bool) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="command-"))
        for name in ("out", "err"):  # a command that is killed at once has not opened them
            (self._folder / name).touch()
        self.pid = server.start(arguments, self._folder, workers)

    def printed(self) -> str:
        """What the command has written on its standard output so far."""
        return (self._folder / "out").read_text(encoding="utf-8", errors="replace")

    def poll(self) -> int | None:
        if self.returncode is None and (self._folder / "code").exists():
            self.returncode = int((self._folder / "code").read_text())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        started = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() - started > timeout:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(_POLL_S)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        out, err = ((self._folder / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
        shutil.rmtree(self._folder)
        return out, err

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start_warm(arguments: list[str], environment: dict[str, str], *, workers: bool) -> WarmCommand | None:
    """Start a command; None in another environment than that of the servers, which libraries have read already."""
    environment = {name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"}
    number = next(_numbers) % 2
    server = _servers.get(number)
    if server is None or server.process.poll() is not None:
        server = _servers[number] = Server(number, environment)
    return WarmCommand(server, arguments, workers) if server.environment == environment else None


def serve() -> None:
    """Fork for each request on standard input, and return in the new process. The server itself never returns."""
    gc.disable()  # as in conftest.py
    importlib.import_module("known_tokenizers").try_each_once()  # before what imports the trial
    for name in ("idle_workers", *LOADED):
        importlib.import_module(name)
    sys.path.remove(str(HERE))
    gc.collect()
    gc.freeze()
    gc.enable()
    folders: dict[int, Path] = {}
    while True:
        while folders and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            draft = (folder := folders.pop(ended[0])) / "draft"
            draft.write_text(str(os.waitstatus_to_exitcode(ended[1])))
            draft.rename(folder / "code")
        if not select.select([sys.stdin], [], [], _POLL_S)[0]:
            continue
        line = sys.stdin.readline()
        if not line:
            os._exit(0)
        arguments, folder, environment, workers = json.loads(line)
        if pid := os.fork():
            folders[pid] = Path(folder)
            print(pid, flush=True)
            continue
        become(arguments, Path(folder), environment)
        if not workers:
            importlib.import_module("idle_workers").start_workers_when_needed()
            vars(importlib.import_module("ansatz.findings.run"))["get_context"] = lambda _: get_context("fork")
        return


def become(arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Take the place of a command that has just been started."""
    for descriptor, place in enumerate((os.devnull, folder / "out", folder / "err")):
        opened = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin, sys.argv = open(0, closefd=False), ["-c", *arguments]  # noqa: SIM115
    os.fsync = os.fstat  # as in conftest.py
    random.seed()
