"""Disturbs runs at random moments: each is killed, signalled, stopped, damaged and left without disk space.

It is then continued to its end, and compared with an undisturbed one.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .adapters import WEIGHTS, Adapter, Reached, wait_random
from .processes import Started, descendants, is_alive, kill, kill_tree, left_alive

MOST_FAULTS = 10
"""In one run."""
MOST_FAILURES = 3
"""Of commands that should have gone on. Then the run is given up."""
ORPHANS_S = 10.0
NOTHING = "nothing"
"""Instead of a fault: the run goes on to its end."""
STOPPED_S = (1.0, 8.0)
"""How long a command is stopped. Calls of tools and environments, programs and algebra have limits of 1 to 5 s."""
FILE_BYTES = (0, 50, 5000, 100_000)
"""How large files can become when the disk is full."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """fault: one of WEIGHTS. of: what was killed or stopped, the signal, the damage, or how large a file may become.

    aimed, phases: see Reached. at: seconds since the command was started, or since the fault before. code: the exit
    code, if the command ended. effect: of damage and of a full disk.
    """

    fault: str
    of: str
    aimed: str = ""
    phases: tuple[str, ...] = ()
    at: float = 0.0
    code: int | None = None
    effect: str = ""


@dataclass(slots=True, kw_only=True)
class DisturbedRun:
    """seed: of the draws. differences: from the undisturbed run. unexpected: exits, times and processes that should not
    be."""

    kind: str
    seed: int
    faults: list[Fault] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)


Plan = Sequence[tuple[str, Any]]
"""Faults, each with the aim that the adapter is given, or with the name of a damage."""


class Disturber:
    """Disturbs one run of a kind, and lets it end. seed: of all draws.

    plan: instead of drawn faults.
    """

    def __init__(self, adapter: Adapter, run: Path, seed: int, plan: Plan | None = None) -> None:
        self._adapter, self._run, self._draw = adapter, run, random.Random(seed)
        self._plan = None if plan is None else list(plan)
        self.result = DisturbedRun(kind=adapter.name, seed=seed)
        self._left_s, self._failures = adapter.life_s, 0
        self._process: Started | None = None
        self._copy, self._damaged = run.with_name("undamaged"), list[str]()

    def disturb(self) -> DisturbedRun:
        try:
            self._disturb()
        finally:
            if self._process is not None:
                kill_tree(self._process)
        if self._failures < MOST_FAILURES:
            faults = {each.fault for each in self.result.faults}
            self.result.differences = self._adapter.differences(self._run, faults, self._damaged)
        return self.result

    def _disturb(self) -> None:
        """Returns when the run has ended, or is given up."""
        disturb = {"kill": self._kill, "signal": self._signal, "full disk": self._fill, "stop": self._stop}
        while self._failures < MOST_FAILURES:
            fault, aim = self._next()
            if fault == "damage":
                self._damage(aim)
                continue
            started = time.monotonic()
            reached = self._reach(fault, aim)
            self._process = reached.process
            if fault != NOTHING and is_alive(reached.process.pid):
                at = time.monotonic() - started
                goes_on = disturb[fault](reached, at)
                self._left_s = max(self._left_s - at / 2, self._adapter.life_s / 4)
            else:
                goes_on = False
                if self._wait_for_end(reached.process) == 0:
                    self._process = None
                    return
            if not goes_on:
                self._process = None

    def _next(self) -> tuple[str, Any]:
        """The next fault and its aim. Damage is done to a run that was killed, and only one at a time."""
        faults = self.result.faults
        if self._plan is not None:
            return self._plan.pop(0) if self._plan else (NOTHING, None)
        if len(faults) >= MOST_FAULTS:
            return NOTHING, None
        was_killed = self._process is None and bool(faults) and faults[-1].fault == "kill" and not self._copy.exists()
        possible = [fault for fault in self._adapter.faults if fault != "damage" or was_killed]
        return self._draw.choices(possible, [WEIGHTS[fault] for fault in possible])[0], None

    def _reach(self, fault: str, aim: Any) -> Reached:
        """The command at the moment of the fault, started or resumed if it does not run."""
        if self._process is not None:
            if fault != NOTHING:
                wait_random(self._process, self._left_s / 6, self._draw)
            return Reached(process=self._process)
        if fault == NOTHING:
            return Reached(process=self._adapter.launch(self._run))
        return self._adapter.reach(self._run, aim, fault, self._left_s, self._draw)

    def _add(self, fault: str, of: str, reached: Reached, at: float, code: int | None = None) -> Fault:
        phases = tuple(reached.phases())
        added = Fault(fault=fault, of=of, aimed=reached.aimed, phases=phases, at=round(at, 2), code=code)
        self.result.faults.append(added)
        self._failures = 0
        return added

    def _kill(self, reached: Reached, at: float) -> bool:
        """SIGKILL to the command alone, as the kernel does when memory is short, to all that it has started as well, or
        to a child. Returns whether the command goes on."""
        process, children = reached.process, self._adapter.victims(reached.process)
        of, below = self._draw.choice(["command", "tree", *children]), descendants(process.pid)
        if of in children:
            with suppress(ProcessLookupError):
                os.kill(children[of], signal.SIGKILL)
            self._add("kill", of, reached, at)
            return True
        code = (kill if of == "command" else kill_tree)(process)
        if code != -signal.SIGKILL:  # it has just ended
            self._judge_exit(code, process)
            return False
        self._add("kill", of, reached, at, code)
        self._look_for_orphans(below, f"a kill of the {of}")
        return False

    def _signal(self, reached: Reached, at: float) -> bool:
        process, name = reached.process, self._draw.choice(list(self._adapter.signals))
        below, sent = descendants(process.pid), time.monotonic()
        fault = self._add("signal", name, reached, at)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.Signals[name])
        fault.code = self._wait(process)
        took_s = time.monotonic() - sent
        if fault.code not in self._adapter.stop_codes:
            self._judge_exit(fault.code, process)
        elif took_s > self._adapter.stop_s:
            self.result.unexpected.append(f"{name} in {fault.phases}: {took_s:.1f} s until the exit")
        self._look_for_orphans(below, name)
        return False

    def _fill(self, reached: Reached, at: float) -> bool:
        """A limit on the size of files stands for a full disk, for some time. Returns whether the command goes on."""
        process, size = reached.process, self._draw.choice(FILE_BYTES)
        fault = self._add("full disk", f"{size} bytes", reached, at)
        fault.effect = "continued"
        _limit_files(process, size)
        wait_random(process, self._draw.choice((0.2, 1.0, self._left_s)), self._draw)
        _limit_files(process, resource.RLIM_INFINITY)
        if not is_alive(process.pid):
            self._wait_for_end(process)
            return False
        return True

    def _stop(self, reached: Reached, at: float) -> bool:
        """SIGSTOP to the command alone, or to all that it has started as well, and SIGCONT some seconds later. The
        command goes on."""
        process, of = reached.process, self._draw.choice(["command", "tree"])
        paused_s = self._draw.uniform(*STOPPED_S)
        self._add("stop", of, reached, at).effect = f"for {paused_s:.1f} s"
        _send_all(signal.SIGSTOP, [process.pid])
        pids = [process.pid, *(descendants(process.pid) if of == "tree" else ())]
        _send_all(signal.SIGSTOP, pids)
        time.sleep(paused_s)
        _send_all(signal.SIGCONT, pids)
        return True

    def _damage(self, name: str | None) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)  # an earlier damage was no reason to refuse the run
        shutil.copytree(self._run, self._copy, symlinks=True)
        if (damage := self._adapter.damage(self._run, name, self._draw)) is None:
            shutil.rmtree(self._copy)
            return
        self.result.faults.append(Fault(fault="damage", of=damage.name, effect="not refused"))
        self._damaged += damage.files

    def _wait_for_end(self, process: Started) -> int:
        return self._judge_exit(self._wait(process), process)

    def _wait(self, process: Started) -> int:
        deadline = time.monotonic() + self._adapter.limit_s
        while is_alive(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        if is_alive(process.pid):
            self.result.unexpected.append(f"no end within {self._adapter.limit_s:g} s: {process.error()[-3000:]}")
            return kill_tree(process)
        return process.wait()

    def _judge_exit(self, code: int, process: Started) -> int:
        """Note whether a command that has ended by itself may have done so, and why. Returns its exit code."""
        if code == 0:
            return code
        said = process.error().strip()
        is_refusal = code in self._adapter.refusal_codes and "Traceback" not in said
        last = self.result.faults[-1] if self.result.faults else None
        lost_child = any(each.fault == "kill" and each.code is None for each in self.result.faults)
        if is_refusal and self._copy.exists():
            damage = next(each for each in reversed(self.result.faults) if each.fault == "damage")
            damage.code, damage.effect = code, f"refused: {said[-300:]}"
        elif is_refusal and last is not None and last.fault == "full disk":
            last.code, last.effect = code, "stopped"
        elif not (lost_child and (is_refusal or code in self._adapter.stop_codes)):
            self._failures += 1
            self.result.unexpected.append(f"exit code {code}: {said[-3000:]}")
        if self._copy.exists():  # as if it were restored from a backup
            shutil.rmtree(self._run)
            self._copy.rename(self._run)
            self._damaged.clear()
        return code

    def _look_for_orphans(self, below: list[int], after: str) -> None:
        if left := left_alive(below, within_s=ORPHANS_S):
            names = [_command_line(pid) for pid in left]
            self.result.unexpected.append(f"left alive {ORPHANS_S:g} s after {after}: {names}")
            _send_all(signal.SIGKILL, left)


def _send_all(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")[:100]
    except OSError:
        return "ended"


def _limit_files(process: Started, size: int) -> None:
    for pid in (process.pid, *descendants(process.pid)):
        with suppress(ProcessLookupError, PermissionError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            if hard == resource.RLIM_INFINITY:  # a sandbox may write nothing in any case
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
