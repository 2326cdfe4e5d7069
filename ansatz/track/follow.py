"""Sends the records of runs to a tracker such as W&B, from a process of its own.

A run knows of no tracker. This process reads the files of its folder every few seconds and sends the new records, so
that a slow, failing or missing tracker can neither stop nor slow the training. Its marks are in the run's folder:

    runs/NAME/trackers/wandb.json   {"folder": ..., "id": ..., "sent": {"rl/metrics": 17, ...}}
    runs/NAME/trackers/wandb.log    the errors of the tracker

A step that is marked is not sent again: a resumed run repeats steps with the same numbers. The mark is set before the
point is sent, so a kill in between loses the point and does not double it. Steps after a rollback, which differ from
those that it dropped, go to a curve of their own.

    python -m ansatz.track.follow '{"folder": ..., "tracker": ..., ...}'     the fields of `Job`
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ansatz.errors import DataError
from ansatz.files import append_text, check_ordinary_files, read_yaml, write_text
from ansatz.json_text import read_object
from ansatz.links import check_no_links, hold, list_folders, make_folder, open_file
from ansatz.track.checked_rows import read_evaluations, read_metrics
from ansatz.track.jsonl import Row, read_jsonl
from ansatz.track.rollbacks import Rollback, read_rollbacks
from ansatz.track.sinks import Opens, Sink, TrackedRun, opener
from ansatz.track.step_files import SAMPLES, groups_path, step_files
from ansatz.track.tracker import evaluation_scalars
from ansatz.trust import trusted

FOLDER = "trackers"
MAX_ROWS = 64
"""Responses in the table of a step: the first groups of the step."""
COLUMNS = ("group", "question", "answer", "text", "reward", "advantage", "correct", "reason", "tokens")
PAUSE_S, SHARE = 5.0, 20
"""Pause between two passes: at least this long, and this many times as long as the pass."""
TRIES = 5
"""How many passes may fail after the end of the run."""
WAIT_S = 60.0
"""How long the process that trained waits for the rest to be sent."""


class Job(NamedTuple):
    """The runs to send. folder: a run, or a folder of runs at most two levels below it. group: the tracker shows the
    runs together under this name. parent: the process that trains; 0: the runs have ended. known: the runs that were
    there before it, with the time of their recipe, which changes when a run begins or is resumed."""

    folder: str
    tracker: str
    known: Mapping[str, int]
    group: str = ""
    parent: int = 0


def runs_in(folder: Path, depth: int = 2) -> dict[str, int]:
    """Return the run folders at or below a folder, each with the time of its recipe in nanoseconds."""
    with suppress(FileNotFoundError):
        return {str(folder): (folder / "config.yaml").stat().st_mtime_ns}
    below = list_folders(folder, "[!.]*") if depth else []
    return {run: begun for path in below for run, begun in runs_in(path, depth - 1).items()}


class Point(NamedTuple):
    """Something to send. Of a series, later ones have larger steps."""

    series: str
    step: int
    send: Callable[[Sink], None]


def points(run: Path) -> Iterator[Point]:
    """Yield everything that a run has to send: of each stage its metrics, evaluations and samples, and its report."""
    for stage in (path for path in list_folders(run) if (path / "config.yaml").is_file()):
        rollbacks = read_rollbacks(stage)
        for row in read_metrics(stage / "metrics.jsonl"):
            numbers = {name: value for name, value in row.items() if name != "step"}
            yield _numbers("metrics", stage, rollbacks, row["step"], numbers)
        for row in sorted(read_evaluations(stage / "evaluations.jsonl"), key=lambda each: each["step"]):
            yield _numbers(f"eval/{row['split']}", stage, rollbacks, row["step"], evaluation_scalars(row))
        for file in step_files(stage, SAMPLES):
            curve = _curve(stage, rollbacks, file.step)
            send = partial(_send_samples, curve, file.step, file.path)
            yield Point(f"{curve}/samples", file.step, send)
    report = run / "report.html"
    if report.is_file():
        yield Point("report", report.stat().st_mtime_ns, lambda sink: sink.artifact(report))


def _numbers(what: str, stage: Path, rollbacks: tuple[Rollback, ...], step: int, numbers: Mapping[str, float]) -> Point:
    curve = _curve(stage, rollbacks, step)
    return Point(f"{curve}/{what}", step, lambda sink: sink.metrics(curve, step, numbers))


def _curve(stage: Path, rollbacks: tuple[Rollback, ...], step: int) -> str:
    """Return the stage's name, with the number of the last rollback to before this step."""
    last = max((number for number, each in enumerate(rollbacks, start=1) if each.to_step < step), default=0)
    return f"{stage.name}-after-rollback-{last}" if last else stage.name


def _send_samples(curve: str, step: int, path: Path, sink: Sink) -> None:
    groups = {row["group"]: row for row in read_jsonl(groups_path(path))}
    rows = [{**groups.get(row["group"], {}), **row} for row in read_jsonl(path)[:MAX_ROWS]]
    if rows:  # otherwise the file has been removed, as save.samples_keep asks for
        sink.table(curve, step, COLUMNS, [[row.get(column) for column in COLUMNS] for row in rows])


class FollowedRun:
    """A run folder, its marks, and the run of the tracker while it is open. Held against other followers.

    say: is told if another process holds the run. A job whose runs have ended then raises DataError; others wait.
    """

    def __init__(self, folder: Path, job: Job, *, say: Callable[[str], object]) -> None:
        check_ordinary_files(hold(folder))  # a pipe would be waited for
        self._folder, self._job = folder, job
        self._path = folder / FOLDER / _file_of(job, "json").name
        # Libraries write into it by paths. The links that wandb makes are to its own files, and to a log in its cache.
        check_no_links(make_folder(self._path.parent), inner=True, apart="debug-core.log")
        self._sink: Sink | None = None
        self._lock = open_file(self._path.with_suffix(".lock"), "a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if not job.parent:
                self._lock.close()
                raise DataError(f"another process sends this run to {job.tracker}, so it was left out.") from error
            say(f"{folder}: another process still sends this run to {job.tracker}; this one waits for it.")
            fcntl.flock(self._lock, fcntl.LOCK_EX)  # the one of an interrupted run sends what it has left
        self._id, self._sent = self._read()

    def send_new(self, open_run: Opens) -> None:
        """Send the points that are not marked yet. Raise any error of the tracker."""
        for point in points(self._folder):
            before = self._sent.get(point.series, -1)
            if point.step <= before:
                continue
            sink = self._open_sink(open_run)
            self._mark(point.series, point.step)
            try:
                point.send(sink)
            except BaseException:
                self._mark(point.series, before)
                raise

    def close(self) -> None:
        """Wait until the tracker has everything."""
        if self._sink is not None:
            self._sink.close()
        self._lock.close()

    def _open_sink(self, open_run: Opens) -> Sink:
        if self._sink is None:
            top = Path(self._job.folder)
            name = self._folder.name if self._folder == top else str(self._folder.relative_to(top))
            config = read_yaml(self._folder / "config.yaml")
            run = TrackedRun(name=name, group=self._job.group, folder=self._path.parent, config=config, id=self._id)
            self._sink = open_run(run)
            self._id = self._sink.id
            self._write()
        return self._sink

    def _read(self) -> tuple[str, dict[str, int]]:
        """Return the id and the marks. Both are empty in a copied folder, whose file belongs to the original run."""
        advice = "Remove the file: the run is then sent as a new one."
        marks = read_object(self._path, error=DataError, advice=advice) if self._path.is_file() else {}
        if marks.get("folder") != str(self._folder.resolve()):
            return "", {}
        return str(marks["id"]), {str(series): int(step) for series, step in marks["sent"].items()}

    def _mark(self, series: str, step: int) -> None:
        self._sent[series] = step
        self._write()

    def _write(self) -> None:
        marks: Row = {"folder": str(self._folder.resolve()), "id": self._id, "sent": self._sent}
        write_text(self._path, json.dumps(marks, indent=1))


def follow(job: Job, *, is_over: Callable[[], bool], say: Callable[[str], object], tries: int = 1) -> bool:
    """Send the records that the runs of a job write until it is over, and return whether everything was sent.

    say: takes sentences about errors. tries: passes that may fail after the end.
    """
    open_run, followed = opener(job.tracker), dict[str, FollowedRun]()
    while True:
        began, last = time.monotonic(), is_over()
        faults: list[str] = []
        for run, recipe_time in runs_in(Path(job.folder)).items():
            if job.known.get(run) == recipe_time and run not in followed:
                continue
            try:
                if run not in followed:
                    followed[run] = FollowedRun(Path(run), job, say=say)
                followed[run].send_new(open_run)
                if last:
                    followed.pop(run).close()
            except Exception as error:  # a tracker can raise anything
                faults.append(f"{run}: {type(error).__name__}: {error}")
                say(faults[-1])
        tries -= last
        if last and (not faults or not tries):
            break
        time.sleep(PAUSE_S if last else max(PAUSE_S, SHARE * (time.monotonic() - began)))
    return not faults


def _file_of(job: Job, ending: str) -> Path:
    """Return the file of the tracker in a folder of runs."""
    return Path(job.folder, FOLDER, f"{job.tracker.rpartition('/')[2].replace(':', '-')}.{ending}")


class Follower:
    """The process that follows the runs in a folder, from the side of the one that trains."""

    def __init__(self, folder: Path, tracker: str, *, group: str = "") -> None:
        """Raise ConfigError for a tracker that is unknown or not installed."""
        opener(tracker)
        self._job = Job(folder=str(folder), tracker=tracker, group=group, parent=os.getpid(), known=runs_in(folder))
        command = [sys.executable, "-P", "-m", "ansatz.track.follow", json.dumps(self._job._asdict())]
        out = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True)

    def finish(self) -> str:
        """Say that the run has ended, wait a while for the rest to be sent, and return a sentence about it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        log = _file_of(self._job, "log")
        try:
            if self._process.wait(WAIT_S) == 0:
                return f"{self._job.tracker} has the whole run."
        except subprocess.TimeoutExpired:
            return f"{self._job.tracker} still gets the end of the run from process {self._process.pid}; see {log}."
        again = f"ansatz track {self._job.folder} --to {self._job.tracker}"
        return f"{self._job.tracker} lacks a part of the run; {log} says why. To send it: {again}"


def main(text: str) -> None:
    """Follow the runs of the process that started this one, also after its end until everything is sent."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(name, signal.SIG_IGN)  # they are for the run; this process ends soon after it
    os.nice(10)
    job = Job(**trusted(json.loads(text)))  # of the process that has started this one

    def is_over() -> bool:
        """Tell whether the run has ended: its process has closed the pipe to this one, or is gone."""
        return bool(select.select([sys.stdin], [], [], 0)[0]) or os.getppid() != job.parent

    def say(sentence: str) -> None:
        append_text(_file_of(job, "log"), f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")

    sys.exit(0 if follow(job, is_over=is_over, say=say, tries=TRIES) else 1)


if __name__ == "__main__":
    main(sys.argv[1])
