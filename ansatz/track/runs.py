"""A run folder, read back: the data of the report and its figures."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ansatz.errors import DataError
from ansatz.json_text import parse_json, read_object
from ansatz.links import hold, list_folders, read_bytes, read_text
from ansatz.track.checked_rows import evaluation_rows, read_evaluations, read_metrics
from ansatz.track.jsonl import Row
from ansatz.track.rollbacks import Event, event_history
from ansatz.track.step_files import SAMPLES, step_files

STAGE_FILES = ("config.yaml", "metrics.jsonl", "evaluations.jsonl")
SHOWN_TEXTS = "rendered.txt"
"""In a run folder: the first prompt and the first demonstration, as the policy gets them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """The folder of one stage. metrics: one row per step. evaluations: in the order of their steps. events: oldest
    first."""

    name: str
    folder: Path
    metrics: tuple[Row, ...]
    evaluations: tuple[Row, ...]
    events: tuple[Event, ...] = ()

    @property
    def config_text(self) -> str:
        return _text(self.folder / "config.yaml")

    @property
    def last_step(self) -> int:
        """Return the last step with metrics or an evaluation; 0 for a stage without steps."""
        return max((int(row["step"]) for row in (*self.metrics, *self.evaluations)), default=0)

    @property
    def total_steps(self) -> int:
        """Return the steps that the stage's recipe asks for; 0 if that depends on its data."""
        kind = re.sub(r"_\d+$", "", self.name)
        recipe = re.search(rf"^{'train' if kind == 'rl' else kind}:\n((?:  .*\n)*)", self.config_text, re.M)
        asked = dict(re.findall(r"^  (steps|epochs): (\d+)$", recipe[1], re.M)) if recipe else {}
        return int(asked.get("steps", 0)) if kind == "rl" or asked.get("epochs", "0") == "0" else 0

    @property
    def seconds(self) -> float:
        return float(self.metrics[-1]["seconds"]) if self.metrics else 0.0

    def curve(self, name: str) -> list[tuple[float, float]]:
        """Return (step, value) of a metric at the steps that have it."""
        return [(row["step"], row[name]) for row in self.metrics if name in row]

    def metric_names(self) -> list[str]:
        """Return every metric of any step, in order of first appearance."""
        names = dict.fromkeys(name for row in self.metrics for name in row)
        return [name for name in names if name not in ("step", "seconds")]

    @property
    def best(self) -> Row | None:
        """Return the evaluation of the best checkpoint that the stage still has; None if it has no evaluated one."""
        names = (re.fullmatch(r"step-(\d+)", path.name) for path in list_folders(self.folder / "checkpoints"))
        rows = (row for row in self.evaluations if row["stage"] == self.name)
        return best_evaluation(rows, {int(match[1]) for match in names if match})

    def sample_files(self) -> list[tuple[int, Path]]:
        """Return (step, path) of the saved rollouts, by step."""
        return [(file.step, file.path) for file in step_files(self.folder, SAMPLES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """A run folder. summary is empty unless the run is complete. stages are in the order of the run."""

    folder: Path
    config_text: str
    summary: dict[str, Any]
    stages: tuple[StageRun, ...]
    files: dict[str, list[Row]]
    """The problem files that were trained on, by split: each {path, decontaminated}."""
    unfit: dict[str, list[Row]]
    """The rows that data.unfit: drop left out, by split: each {place, reason, gold}."""
    end: Mapping[str, str]
    """How the run ended: state, sentence and resume. Empty while it goes on, and if its process was killed."""

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def seconds(self) -> float:
        """Return the wall time of the run; while it is in progress, of the steps of its stages only."""
        return float(self.summary.get("seconds", sum(stage.seconds for stage in self.stages)))

    def evaluations(self) -> list[Row]:
        """Return all evaluations in order: from the summary, or from the stages while the run is in progress."""
        return self.summary.get("evaluations") or [row for stage in self.stages for row in stage.evaluations]

    def splits(self) -> list[str]:
        return list(dict.fromkeys(str(row["split"]) for row in self.evaluations()))


def read_pipeline(folder: Path) -> PipelineRun:
    """Raise DataError if the folder does not exist, or has neither a summary nor a stage."""
    folder = hold(Path(folder))
    summary_path = folder / "summary.json"
    summary = _summary(summary_path) if summary_path.exists() else {}
    stages = tuple(_in_order(_read_stages(folder), summary))
    end = _end(folder / "run.json")
    is_over = end is None or end.get("state") == "done"
    if stages and summary and not is_over and (end or _went_on(stages, summary_path)):
        summary = {}  # of the run before it was extended
    if not summary and not stages:
        raise DataError(
            f"{folder} is not a run folder: it has neither summary.json nor the files of a stage. "
            "Give the folder that a training run wrote, such as runs/NAME."
        )
    files = _rows_by_split(folder / "problems" / "decontamination.json", {"path": str, "decontaminated": list})
    unfit = _rows_by_split(folder / "problems" / "unfit.json", {"place": str, "reason": str, "gold": str})
    return PipelineRun(
        folder=folder,
        config_text=_text(folder / "config.yaml"),
        summary=summary,
        stages=stages,
        files=files,
        unfit=unfit,
        end=end or {},
    )


def _end(path: Path) -> dict[str, str] | None:
    """Return how the run ended: empty if it goes on or was killed, None if the file does not say."""
    try:
        end = parse_json(read_bytes(path), own=True)["end"]
    except (OSError, ValueError, LookupError, TypeError):  # of an older version or another program, or damaged
        return None
    if end is None:
        return {}
    known = {"state", "sentence", "resume"}
    return {key: str(value) for key, value in end.items()} if isinstance(end, dict) and known <= end.keys() else None


def _read_stages(folder: Path) -> Iterator[StageRun]:
    for stage in list_folders(folder):
        if any((stage / name).exists() for name in STAGE_FILES):
            yield StageRun(
                name=stage.name,
                folder=stage,
                metrics=tuple(read_metrics(stage / "metrics.jsonl")),
                evaluations=tuple(sorted(read_evaluations(stage / "evaluations.jsonl"), key=lambda row: row["step"])),
                events=tuple(event_history(stage)),
            )


def _in_order(stages: Iterator[StageRun], summary: dict[str, Any]) -> list[StageRun]:
    """Return the stages in the order of the summary if it names all stages with steps. Otherwise by the age of their
    first files, which are lost when a folder is copied."""
    all_stages = list(stages)
    named = [row["stage"] for row in summary.get("evaluations", [])]
    if named and all(stage.name in named for stage in all_stages if stage.metrics):
        return sorted(all_stages, key=lambda stage: named.index(stage.name) if stage.name in named else -1)
    return sorted(all_stages, key=lambda stage: (min(_times_of(stage.folder), default=0.0), stage.name))


def _went_on(stages: Iterable[StageRun], summary: Path) -> bool:
    """Tell whether a stage has begun or got further since the summary was written. Earlier versions also removed the
    end of a finished run from its record if a resume was refused."""
    return max((time for stage in stages for time in _times_of(stage.folder)), default=0.0) > summary.stat().st_mtime


def _times_of(folder: Path) -> list[float]:
    times = list[float]()
    for name in STAGE_FILES:
        with suppress(OSError):  # one is missing, or is removed meanwhile
            times.append((folder / name).stat().st_mtime)
    return times


def _summary(path: Path) -> dict[str, Any]:
    """Return summary.json. Raise DataError if it was changed."""
    advice = "Resume the run with --resume: a finished run then writes the file again."
    summary = read_object(path, error=DataError, advice=advice)
    seconds = summary.get("seconds", 0.0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e12:
        raise DataError(f"{path}: seconds is {seconds!r:.60}, expected a number. {advice}")
    if not isinstance(summary.get("model", ""), str):
        raise DataError(f"{path}: model is {summary['model']!r:.60}, expected a path. {advice}")
    return {**summary, "evaluations": evaluation_rows(summary.get("evaluations", []), path)}


def _rows_by_split(path: Path, fields: Mapping[str, type]) -> dict[str, list[Row]]:
    """Return the file's rows by split; empty if there is none. Raise DataError if it was changed. fields: the keys that
    each row has, with their types."""
    if not path.exists():
        return {}
    advice = "Remove the file: the report then leaves this part out."
    splits = read_object(path, error=DataError, advice=advice)
    for split, rows in splits.items():
        for row in cast("list[Any]", rows) if isinstance(rows, list) else [None]:
            entry = cast("Row", row) if isinstance(row, dict) else {}
            if not all(isinstance(entry.get(key), kind) for key, kind in fields.items()):
                raise DataError(f"{path}: {split[:40]!r} has {row!r:.60}, expected {', '.join(fields)}. {advice}")
    return splits


def _text(path: Path) -> str:
    """Return the text of the file; bytes that are not UTF-8 become question marks, as it is only shown."""
    return read_text(path, errors="replace") if path.is_file() else ""


def best_evaluation(evaluations: Iterable[Row], steps: Collection[int]) -> Row | None:
    """Return the evaluation with the highest pass@1 at one of the given steps; of equal ones, the earliest step. If no
    reward says which responses are correct, the mean reward decides. If the last row says `best_by`, the name of a
    source, its problems decide for all rows, and rows without any of them are left out: `save.best` may have changed.

    pass@1 is the mean over samples, which varies less than greedy accuracy. As the best of several evaluations on the
    same problems, it is a little higher than the model would score on new ones.
    """
    rows = sorted(evaluations, key=lambda row: row["step"])
    source = rows[-1].get("best_by") if rows else None
    judged = [row for row in rows if row["step"] in steps and (not source or source in row.get("by_source", {}))]
    return max(judged, key=lambda row: _score(row["by_source"][source] if source else row), default=None)


def _score(numbers: Row) -> float:
    return numbers["pass@1"] if numbers["pass@1"] is not None else numbers.get("reward") or 0.0
