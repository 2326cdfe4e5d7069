"""The real command, with marks of what it is doing. A parent reads them while it runs and after it was killed.

    python -m benchmarks.faults.marked MARKS PLAN ARGUMENTS...    the command, with its arguments
    python -m benchmarks.faults.marked serve                      forks such commands, which saves their imports

MARKS is a file with a counter for each phase, of the calls that are in progress, and a last byte: whether the target is
reached. PLAN is JSON, {"run": FOLDER, "phase": PHASE, "rows": N}. The target is the first call of this phase when the
run has N rows of metrics. In a HELD phase the command waits there until it is killed. Without "phase", nothing is held,
and MARKS.log gets a line for each call that has ended.
"""

from __future__ import annotations

import functools
import importlib
import json
import mmap
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = {
    "start": ["ansatz.loop.pipeline:check_recipe", "ansatz.loop.pipeline:prepare_run_dir"],
    "problems": ["ansatz.loop.stages.problems:ProblemsStage.run"],
    "model": ["ansatz.loop.stages.model:ModelStage.run"],
    "start of a stage": ["ansatz.loop.workplace:OwnProcess.place"],
    "resuming": ["ansatz.train.checkpoint:restore", "ansatz.loop.pipeline:resumed_record"],
    "sampling": ["ansatz.rollout.native.sampler:NativeSampler.generate"],
    "grading": ["ansatz.rewards.grader:RewardGrader.score"],
    "batch": ["ansatz.train.local:LocalTrainer.batch"],
    "update": ["ansatz.train.local:LocalTrainer.update"],
    "publishing weights": ["ansatz.rollout.weight_store:FileWeightStore.publish"],
    "writing the ledger": ["ansatz.loop.ledger:Ledger._append"],
    "evaluation": ["ansatz.evaluate.evaluate:Evaluator.run"],
    "saving": ["ansatz.train.checkpoint:save"],
    "samples": ["ansatz.track.tracker:Tracker.samples"],
    "rolling back": ["ansatz.loop.watch:write_rollbacks", "ansatz.loop.watch:set_aside"],
    "skipped update": ["ansatz.train.skipped:write_skipped"],
    "selection": ["ansatz.loop.stages.rejection:write_selection"],
    "end of a stage": ["ansatz.loop.pipeline:write_done"],
    "report": ["ansatz.track.report:write_report"],
}
"""The calls of each phase: module and name, in the module that makes the call."""
HELD = {
    "half a row": ["ansatz.track.row_writer:append_text", "ansatz.track.jsonl:append_text"],
    "before a file is replaced": ["ansatz.files:rename"],
    "before a checkpoint is renamed": ["ansatz.train.checkpoint:rename"],
    "half of a folder removed": ["ansatz.train.checkpoint:remove_path", "ansatz.loop.run_folder:remove"],
}
"""Calls with a path as their first argument. Only those within the run folder count."""
PHASES = (*CALLS, *HELD)
SIZE = len(PHASES) + 1


def active_phases(marks: bytes) -> list[str]:
    """The phases that were in progress."""
    return [phase for phase, count in zip(PHASES, marks, strict=False) if count]


class Marks:
    """Writes the file of marks of this process."""

    def __init__(self, path: Path, plan: dict[str, Any]) -> None:
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), SIZE)
        self._run, self._phase, self._rows = Path(plan["run"]), plan.get("phase"), plan.get("rows", 0)
        self._lock, self._started = threading.Lock(), time.monotonic()
        self._log = path.with_suffix(".log").open("a", buffering=1) if self._phase is None else None

    def install(self) -> None:
        for phase, calls in {**CALLS, **HELD}.items():
            for call in calls:
                _replace(call, functools.partial(self._marked, phase))

    def _marked(self, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def marked(*arguments: Any, **options: Any) -> Any:
            if phase in HELD and not Path(arguments[0]).is_relative_to(self._run):
                return call(*arguments, **options)
            rows, started = self._enter(phase), time.monotonic()
            try:
                return call(*arguments, **options)
            finally:
                self._leave(phase, rows, started)

        def held(*arguments: Any, **options: Any) -> Any:
            if self._target_reached(phase, arguments[0]):
                with self._lock:
                    self._bytes[PHASES.index(phase)] += 1
                _half(phase, *arguments)
                self._bytes[-1] = 1
                time.sleep(600)
            return marked(*arguments, **options)

        return held if phase in HELD and phase == self._phase else marked

    def _target_reached(self, phase: str, path: Path) -> bool:
        return phase == self._phase and Path(path).is_relative_to(self._run) and self._num_rows() >= self._rows

    def _num_rows(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in self._run.glob("*/metrics.jsonl"))

    def _enter(self, phase: str) -> int:
        rows = self._num_rows() if self._phase in (None, phase) else -1
        with self._lock:
            self._bytes[PHASES.index(phase)] += 1
            if phase == self._phase and rows >= self._rows:
                self._bytes[-1] = 1
        return rows

    def _leave(self, phase: str, rows: int, started: float) -> None:
        with self._lock:
            self._bytes[PHASES.index(phase)] -= 1
            if self._log is not None:
                times = {"at": started - self._started, "seconds": time.monotonic() - started}
                self._log.write(json.dumps({"phase": phase, "rows": rows, **times}) + "\n")


def _replace(call: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put what `make` makes of a function in its place. call: MODULE:NAME."""
    module, _, name = call.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = name.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, make(getattr(owner, name)))


def _half(phase: str, path: Path, *arguments: Any) -> None:
    """Do half of what the call does; nothing of those that the file system does as a whole."""
    if phase == "half a row":
        path.parent.mkdir(parents=True, exist_ok=True)
        line = arguments[0].encode()
        with path.open("ab") as file:
            file.write(line[: len(line) // 2])
    elif phase == "half of a folder removed":
        for file in sorted(each for each in Path(path).rglob("*") if each.is_file())[:1]:
            file.unlink()


def run(marks: str, plan: str, *arguments: str) -> None:
    from ansatz.cli.main import main

    Marks(Path(marks), json.loads(plan)).install()
    sys.argv = ["ansatz", *arguments]
    main()


def serve() -> None:
    """For each line of standard input, a JSON list of arguments of `run`: fork, print its pid, then its exit status."""
    import ansatz.cli.main
    import ansatz.loop.pipeline
    import ansatz.train.local  # noqa: F401

    for line in sys.stdin:
        child = os.fork()
        if not child:
            os.setsid()
            with open(os.devnull, "r+b") as null:
                for stream in (0, 1):
                    os.dup2(null.fileno(), stream)
            code = 1
            try:
                run(*json.loads(line))
                code = 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else run(*sys.argv[1:])
