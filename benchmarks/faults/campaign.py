"""Faults at random moments, for as long as there is time: runs of every kind are killed, stopped, damaged and left without
disk space again and again, and then compared with an undisturbed run."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .adapters import FAULTS, Adapter, Reached, wait_random
from .processes import Started, descendants, is_alive, kill, kill_tree, left_alive

MOST_FAULTS = 10
"""In one run."""
ORPHANS_S = 10.0


@dataclass(slots=True, kw_only=True)
class Fault:
    """fault: one of FAULTS. of: what was killed, the signal, the damage, or the bytes that a file may have.

    at: seconds of this command. code: the exit code, if it ended. effect: of damage and of full disks.
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
    """seed: of the draws. differences: from the undisturbed run. unexpected: what else went wrong."""

    kind: str
    seed: int
    faults: list[Fault] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Disturber:
    """Disturbs one run until it has ended."""

    def __init__(self, adapter: Adapter, run: Path, seed: int) -> None:
        self.adapter, self.run, self.draw = adapter, run, random.Random(seed)
        self.result = DisturbedRun(kind=adapter.name, seed=seed)
        self.left_s, self.first, self.failed = adapter.life_s, True, 0
        self.copy, self.damaged = run.with_name("undamaged"), list[str]()

    def disturb(self) -> DisturbedRun:
        started = time.monotonic()
        process: Started | None = None
        while len(self.result.faults) < MOST_FAULTS and self.failed < 3:
            fault = self._drawn()
            if fault == "damage":
                self._damage()
            begun = time.monotonic()
            if process is None:
                reached = self.adapter.reach(self.run, self.left_s, self.draw, first=self.first, fault=fault)
            else:
                wait_random(process, self.left_s, self.draw)
                reached = Reached(process=process)
            self.first, process = False, reached.process
            if not is_alive(process.pid):
                if self._ended(process) == 0:
                    break
                process = None
                continue
            process = self._disturb(fault, reached, at=time.monotonic() - begun)
            self.left_s = max(self.left_s - (time.monotonic() - begun) / 2, self.adapter.life_s / 4)
        else:
            self._finish(process)
        if self.failed < 3:
            faults = {each.fault for each in self.result.faults}
            self.result.differences = self.adapter.differences(self.run, faults, self.damaged)
        self.result.seconds = round(time.monotonic() - started, 1)
        return self.result

    def _drawn(self) -> str:
        possible = [name for name in self.adapter.faults if name != "damage" or self._can_be_damaged()]
        return self.draw.choices(possible, [FAULTS[name] for name in possible])[0]

    def _can_be_damaged(self) -> bool:
        return bool(self.result.faults) and self.result.faults[-1].fault == "kill" and not self.copy.exists()

    def _disturb(self, fault: str, reached: Reached, *, at: float) -> Started | None:
        """Returns the command if it goes on."""
        about = {"aimed": reached.aimed, "at": round(at, 2)}
        if fault == "signal":
            return self._signal(reached, about)
        if fault == "full disk":
            return self._fill(reached, about)
        return self._kill(reached, about)

    def _kill(self, reached: Reached, about: dict[str, Any]) -> Started | None:
        process, victims = reached.process, self.adapter.victims(reached.process)
        below = descendants(process.pid)
        kinds = ["command", "tree", *victims]
        of = self.draw.choice(kinds)
        if of in victims:
            with suppress(ProcessLookupError):
                os.kill(victims[of], signal.SIGKILL)
            self.result.faults.append(Fault(fault="kill", of=of, phases=tuple(reached.phases()), **about))
            return process
        code = (kill if of == "command" else kill_tree)(process)
        if code != -signal.SIGKILL:
            self._note_end(code, process)
            return None
        self.result.faults.append(Fault(fault="kill", of=of, phases=tuple(reached.phases()), code=code, **about))
        self._look_for_orphans(below, f"kill of the {of}")
        return None

    def _signal(self, reached: Reached, about: dict[str, Any]) -> None:
        process, name = reached.process, self.draw.choice(list(self.adapter.signals))
        below, phases, sent = descendants(process.pid), tuple(reached.phases()), time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.Signals[name])
        code = self._wait(process)
        took = time.monotonic() - sent
        self.result.faults.append(Fault(fault="signal", of=name, phases=phases, code=code, **about))
        if code not in self.adapter.stop_codes:
            self.result.unexpected.append(f"{name} in {phases}: exit code {code}: {process.error()[-3000:]}")
        if took > self.adapter.stop_s:
            self.result.unexpected.append(f"{name} in {phases}: {took:.1f} s until the exit")
        self._look_for_orphans(below, name)

    def _fill(self, reached: Reached, about: dict[str, Any]) -> Started | None:
        """A limit on the size of files stands for a full disk, for a while."""
        process, phases = reached.process, tuple(reached.phases())
        size = self.draw.choice((0, 50, 5000, 100_000))
        fault = Fault(fault="full disk", of=f"{size} bytes", phases=phases, effect="continued", **about)
        self.result.faults.append(fault)
        _limit_files(process, size)
        wait_random(process, self.draw.choice((0.2, 1.0, self.left_s)), self.draw)
        _limit_files(process, resource.RLIM_INFINITY)
        if is_alive(process.pid):
            return process
        fault.code = self._wait(process)
        fault.effect = "stopped"
        if fault.code and (fault.code not in self.adapter.refusal_codes or "Traceback" in process.error()):
            self.result.unexpected.append(f"full disk in {phases}: exit code {fault.code}: {process.error()[-3000:]}")
        return None

    def _damage(self) -> None:
        shutil.copytree(self.run, self.copy)
        if (what := random_damage(self.run, self.draw)) is None:
            shutil.rmtree(self.copy)
            return
        self.result.faults.append(Fault(fault="damage", of=what, effect="not refused"))
        self.damaged += what.partition(": ")[2].split(", ")

    def _ended(self, process: Started) -> int:
        return self._note_end(self._wait(process), process)

    def _note_end(self, code: int, process: Started) -> int:
        """A command has ended by itself. Returns its exit code."""
        if code == 0:
            return 0
        said = process.error()
        if self.copy.exists() and code in self.adapter.refusal_codes and "Traceback" not in said:
            fault = next(each for each in reversed(self.result.faults) if each.fault == "damage")
            fault.code, fault.effect = code, f"refused: {said.strip()[-300:]}"
            self._restore()
            return code
        last = self.result.faults[-1] if self.result.faults else None
        if last is not None and last.fault == "full disk" and code in self.adapter.refusal_codes:
            if "Traceback" not in said:  # what could not be written is noticed later
                last.code, last.effect = code, "stopped"
                return code
        lost = any(each.of in ("raylet", "gcs_server") for each in self.result.faults)
        if not (lost and code == 75):
            self.failed += 1
            self.result.unexpected.append(f"exit code {code} without a fault: {said[-3000:]}")
        if self.copy.exists():
            self._restore()
        return code

    def _restore(self) -> None:
        shutil.rmtree(self.run)
        self.copy.rename(self.run)
        self.damaged.clear()

    def _finish(self, process: Started | None) -> None:
        while self.failed < 3:
            process = process or self.adapter.launch(self.run, first=self.first)
            if self._ended(process) == 0:
                return
            process = None

    def _wait(self, process: Started) -> int:
        deadline = time.monotonic() + self.adapter.limit_s
        while is_alive(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        if is_alive(process.pid):
            self.result.unexpected.append(f"no end within {self.adapter.limit_s:g} s: {process.error()[-3000:]}")
            return kill_tree(process)
        return process.wait()

    def _look_for_orphans(self, below: list[int], after: str) -> None:
        if left := left_alive(below, within_s=ORPHANS_S):
            names = [_name(pid) for pid in left]
            self.result.unexpected.append(f"left alive {ORPHANS_S:g} s after the {after}: {names}")
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")[:100]
    except OSError:
        return "ended"


def _limit_files(process: Started, size: int) -> None:
    for pid in (process.pid, *descendants(process.pid)):
        with suppress(ProcessLookupError, PermissionError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def random_damage(run: Path, draw: random.Random) -> str | None:
    """Damage a random file. Returns what was done, and the file. None if there is no file."""
    files = sorted(path for path in run.rglob("*") if path.is_file() and not path.is_symlink())
    files = [path for path in files if not path.name.startswith(".") and "tensorboard" not in path.parts]
    if not files:
        return None
    file, name = draw.choice(files), draw.choice(list(DAMAGES))
    other = DAMAGES[name](file, draw)
    return f"{name}: " + ", ".join(str(each.relative_to(run)) for each in (file, other) if each is not None)


def _flip(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes() or b"\0")
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def _cut(file: Path, draw: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: draw.randrange(len(content) or 1)])


def _zeros(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes())
    start = draw.randrange(len(content) or 1)
    length = min(draw.choice((1, 512, 4096)), len(content) - start)
    content[start : start + length] = bytes(length)
    file.write_bytes(content)


def _swap(file: Path, draw: random.Random) -> Path:
    others = sorted(path for path in file.parents[1].rglob(file.name) if path != file and path.is_file())
    other = draw.choice(others) if others else file
    mine, its = file.read_bytes(), other.read_bytes()
    file.write_bytes(its)
    other.write_bytes(mine)
    return other


def _append(file: Path, draw: random.Random) -> None:
    file.write_bytes(file.read_bytes() + draw.randbytes(50))


def _empty(file: Path, draw: random.Random) -> None:
    file.write_bytes(b"")


def _to_folder(file: Path, draw: random.Random) -> None:
    file.unlink()
    file.mkdir()


DAMAGES: dict[str, Callable[[Path, random.Random], Path | None]] = {
    "flipped bit": _flip,
    "cut": _cut,
    "zeros": _zeros,
    "empty": _empty,
    "removed": lambda file, draw: file.unlink(),
    "swapped with one of the same name": _swap,
    "random bytes at the end": _append,
    "a folder": _to_folder,
}


def as_json(result: DisturbedRun) -> dict[str, Any]:
    return asdict(result)
