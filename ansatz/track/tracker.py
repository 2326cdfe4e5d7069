"""The tracker of one stage: metrics.jsonl, evaluations.jsonl, samples/, TensorBoard and a console, in one folder.

    STAGE/metrics.jsonl              {"step": 12, "seconds": 34.5, "rollout/rewards": 0.53, ...}, one line per step
    STAGE/evaluations.jsonl          one evaluation per line
    STAGE/events.jsonl               {"step": 12, "kind": "skipped", "text": ..., ...}, decisions of the run itself
    STAGE/samples/step-000012.jsonl  one rollout per line (`track.rollout_rows`)
    STAGE/samples/step-000012.groups.jsonl  one group per line: its problem, prompt, and mean reward
    STAGE/samples/step-000012.tokens.npy  the tokens of some of the groups (`track.token_file`)
    STAGE/evaluations/heldout-000050.jsonl  the responses of an evaluation (`track.rollout_rows`), by split and step
    STAGE/tensorboard/               the metrics, and evaluations as eval/SPLIT/NAME[/LEVEL]

Every file is written when the call returns, so a killed process loses only the step that it was in. On a full disk rows
wait in memory until they can be written (`track.row_writer`), TensorBoard misses some, and responses of evaluations
are not stored.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansatz.files import not_written
from ansatz.links import check_no_links, list_folder, make_folder, open_file, remove
from ansatz.track.base import (
    EVALUATION_NUMBERS,
    EXACT,
    REWARD,
    ConsoleSink,
    Evaluation,
    checked_evaluation,
    checked_metrics,
    evaluation_key,
)
from ansatz.track.checked_rows import read_evaluations, read_events, read_metrics
from ansatz.track.jsonl import Row, keep_rows, read_jsonl, to_line, write_jsonl
from ansatz.track.rollbacks import seconds_logged
from ansatz.track.rollout_rows import StoredGroup
from ansatz.track.row_writer import RowWriter
from ansatz.track.step_files import (
    EVALUATIONS,
    SAMPLES,
    groups_path,
    step_files,
    step_files_after,
    step_path,
    tokens_path,
)
from ansatz.track.token_file import write_tokens

TENSORBOARD = "tensorboard"
"""The folder of a stage for TensorBoard."""


class Tracker:
    """Opens the folder of a stage. If it already holds steps, new ones follow its last complete line.

    console: shows the stage under the name of its folder. samples_keep: newest steps whose samples are kept; 0: all.
    clock: returns seconds (a test can pass its own).
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        console: ConsoleSink | None,
        tensorboard: bool = True,
        total_steps: int,
        samples_keep: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run_dir = Path(run_dir)
        self._metrics_path = self.run_dir / "metrics.jsonl"
        self._evaluations_path = self.run_dir / "evaluations.jsonl"
        self._tensorboard, self._samples_keep = tensorboard, samples_keep
        self._events: EventFile | None = None
        self._console = console
        self._clock = clock
        self._writer = RowWriter(self._show)
        make_folder(self.run_dir)
        check_no_links(self.run_dir / TENSORBOARD)  # of which a failing write ends no run
        self._truncate(after=None)
        if console is not None:
            console.begin(self.run_dir.name, total_steps=total_steps)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        numbers = checked_metrics(step, metrics, last_step=self._last_step)
        row = {"step": step, "seconds": round(self._seconds(), 3), **numbers}
        self._writer.append(step, self._metrics_path, to_line(row))
        self._last_step = step
        self._scalars(step, numbers)
        if self._console is not None:
            self._console.step(step, numbers)

    def samples(self, step: int, groups: Sequence[StoredGroup]) -> None:
        path, place = step_path(self.run_dir, SAMPLES, "step", step), f"{self.run_dir.name}/{step}"
        with suppress(OSError):  # of a full disk, which the writer waits for
            make_folder(path.parent, private=True)
        group_rows = [group.row(number) for number, group in enumerate(groups)]
        tokens = [each for group in groups for each in group.tokens]
        what = "tokens of this step are not stored; its responses are."
        if tokens and not self._store(step, tokens_path(path), lambda path: write_tokens(path, tokens), what):
            groups = [replace(group, tokens=()) for group in groups]
        rows, tokens_from = list[Row](), 0
        for number, group in enumerate(groups):
            rows += group.rows(place, number, tokens_from=tokens_from)
            tokens_from += sum(len(each.ids) for each in group.tokens)
        self._writer.replace(step, groups_path(path), lambda: "".join(map(to_line, group_rows)))
        self._writer.replace(step, path, lambda: "".join(map(to_line, rows)))
        for old in step_files(self.run_dir, SAMPLES) if self._samples_keep else ():
            if old.step <= step - self._samples_keep:
                for each in (old.path, groups_path(old.path), tokens_path(old.path)):
                    remove(each)

    def evaluation(self, row: Evaluation, responses: Sequence[Mapping[str, Any]] = ()) -> None:
        new = checked_evaluation(row)
        if responses:
            path = step_path(self.run_dir, EVALUATIONS, new["split"], new["step"])
            what = "responses of this evaluation are not stored; its numbers are."
            self._store(new["step"], path, lambda path: write_jsonl(path, map(dict, responses)), what)
        known = (row for row in read_jsonl(self._evaluations_path) if evaluation_key(row) == evaluation_key(new))
        repeated = any(evaluation_scalars(row) == evaluation_scalars(new) for row in known)
        self._writer.replace(new["step"], self._evaluations_path, lambda: self._evaluations_with(new))
        if not repeated:  # a resumed run evaluates its last step again if it had ended before its done.json
            self._scalars(new["step"], evaluation_scalars(new))
        if self._console is not None:
            self._console.evaluation(new)

    def event(self, step: int, kind: str, text: str, **numbers: float | str) -> None:
        row = {"step": step, "kind": kind, "text": text, **numbers}
        self._writer.append(step, self.run_dir / "events.jsonl", to_line(row))
        self._show(step, text)

    def has_evaluation(self, *, stage: str, step: int) -> bool:
        return any(row["stage"] == stage and row["step"] == step for row in read_jsonl(self._evaluations_path))

    def resume(self, step: int) -> None:
        self._writer.forget()
        self._truncate(after=step)
        logged = {row["step"] for row in read_jsonl(self._metrics_path)}
        if missing := [each for each in range(1, step + 1) if each not in logged]:
            self.event(
                step,
                "rows_missing",
                f"{self._metrics_path} has lost the rows of {len(missing)} steps, the first of which is {missing[0]}. "
                "The training is not affected, but curves and averages of the report are.",
            )

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None
        if self._console is not None:
            self._console.end()

    def _evaluations_with(self, new: Row) -> str:
        others = [old for old in read_jsonl(self._evaluations_path) if evaluation_key(old) != evaluation_key(new)]
        return "".join(map(to_line, [*others, new]))

    def _store(self, step: int, path: Path, write: Callable[[Path], None], what: str) -> bool:
        """Write a file that the run itself does not need. Return whether it was written; a failure becomes an event."""
        try:
            make_folder(path.parent, private=True)
            write(path)
        except OSError as error:
            self.event(step, "not_stored", f"{not_written(path, error)} The {what}")
            return False
        return True

    def _show(self, step: int, text: str) -> None:
        if self._console is not None:
            self._console.event(step, text)

    def _seconds(self) -> float:
        """Return the seconds since the stage began, without the time between a kill and its resume."""
        return self._seconds_before + self._clock() - self._opened

    def _truncate(self, *, after: int | None) -> None:
        rows = truncate_after(self.run_dir, after)
        self._last_step = rows[-1]["step"] if rows else -1
        self._first_event_step = (self._last_step if after is None else after) + 1
        self._seconds_before = seconds_logged(self.run_dir)
        self._opened = self._clock()
        if self._events is not None:
            self._events.close()
            self._events = None

    def _scalars(self, step: int, values: Mapping[str, float]) -> None:
        if not self._tensorboard:
            return
        try:
            if self._events is None:
                self._events = EventFile(self.run_dir / TENSORBOARD, first_step=self._first_event_step)
            self._events.scalars(step, values)
        except OSError:  # a full disk: another file is begun for a later step
            self._events, self._first_event_step = None, step + 1


def truncate_after(run_dir: Path, step: int | None) -> list[Row]:
    """Remove everything after `step` (None: only lines that were cut off). Returns the remaining metric lines.

    Raise DataError, before anything is removed, for a row that no run writes.
    """
    read_evaluations(run_dir / "evaluations.jsonl")
    read_events(run_dir / "events.jsonl")
    read_metrics(run_dir / "metrics.jsonl")
    if step is not None:
        for file in step_files_after(run_dir, step):
            remove(file.path)

    def is_kept(row: Row) -> bool:
        return step is None or row["step"] <= step

    keep_rows(run_dir / "evaluations.jsonl", is_kept)
    keep_rows(run_dir / "events.jsonl", is_kept)
    return keep_rows(run_dir / "metrics.jsonl", is_kept)


def evaluation_scalars(row: Evaluation) -> dict[str, float]:
    """Return the numbers of an evaluation by TensorBoard tag: eval/SPLIT/NAME, and eval/SPLIT/NAME/PART for each level
    and source. Means of single rewards are eval/SPLIT/reward/NAME."""
    prefix = f"eval/{row['split']}"
    names = (*EVALUATION_NUMBERS, EXACT, REWARD)
    out = {f"{prefix}/{name}": float(row[name]) for name in names if row.get(name) is not None}
    for part, numbers in {**row.get("by_level", {}), **row.get("by_source", {})}.items():
        for name in names:
            if numbers.get(name) is not None:
                out[f"{prefix}/{name}/{part}"] = float(numbers[name])
    return {**out, **{f"{prefix}/{REWARD}/{name}": float(mean) for name, mean in row.get("rewards", {}).items()}}


class EventFile:
    """One event file in `folder`. It hides values from older files for the steps from `first_step` on."""

    def __init__(self, folder: Path, *, first_step: int = 0) -> None:
        # Imported here: tensorboard takes 0.3 s to import, and reading a run needs none of it.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        # Generated modules: their classes are made at import, where a type checker does not see them.
        self._event: Any = event_pb2
        self._summary: Any = summary_pb2
        number = len(list_folder(make_folder(folder), "events.out.tfevents.*"))
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{number}"
        self._records = RecordWriter(open_file(folder / name, "xb"))
        self._write(self._event.Event(wall_time=time.time(), file_version="brain.Event:2"))
        if number > 0:
            start = self._event.SessionLog(status=self._event.SessionLog.START)
            self._write(self._event.Event(wall_time=time.time(), step=first_step, session_log=start))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        value_list = [self._summary.Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        summary = self._summary.Summary(value=value_list)
        self._write(self._event.Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        self._records.close()

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
        self._records.flush()
