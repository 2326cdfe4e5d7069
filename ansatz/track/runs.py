"""A run folder, read back: the data of the report and its figures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansatz.errors import DataError
from ansatz.track.jsonl import Row, read_jsonl

STAGE_FILES = ("config.yaml", "metrics.jsonl", "evaluations.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """The folder of one stage. metrics: one row per step. evaluations: in the order of their steps."""

    name: str
    folder: Path
    metrics: tuple[Row, ...]
    evaluations: tuple[Row, ...]

    @property
    def last_step(self) -> int:
        """The last step with metrics or an evaluation; 0 for a stage without steps."""
        return max((int(row["step"]) for row in (*self.metrics, *self.evaluations)), default=0)

    @property
    def seconds(self) -> float:
        return float(self.metrics[-1]["seconds"]) if self.metrics else 0.0

    def curve(self, name: str) -> list[tuple[float, float]]:
        """(step, value) of a metric at the steps that have it."""
        return [(row["step"], row[name]) for row in self.metrics if name in row]

    def metric_names(self) -> list[str]:
        """Every metric of any step, in order of first appearance."""
        names = dict.fromkeys(name for row in self.metrics for name in row)
        return [name for name in names if name not in ("step", "seconds")]

    def sample_files(self) -> list[tuple[int, Path]]:
        """(step, path) of the saved rollouts, by step."""
        paths = self.folder.glob("samples/*.jsonl")
        matches = ((re.fullmatch(r"step-(\d+)\.jsonl", path.name), path) for path in paths)
        return sorted((int(match[1]), path) for match, path in matches if match)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """A run folder. summary is empty while the run is in progress. stages are in the order in which they ran."""

    folder: Path
    config_text: str
    summary: dict[str, Any]
    stages: tuple[StageRun, ...]
    files: dict[str, list[Row]]
    """The problem files that were trained on, by split: each {path, decontaminated}."""
    unfit: dict[str, list[Row]]
    """The rows that data.unfit: drop left out, by split: each {place, reason, gold}."""

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def seconds(self) -> float:
        """Wall time of the run; while it is in progress, of the steps of its stages only."""
        return float(self.summary.get("seconds", sum(stage.seconds for stage in self.stages)))

    def evaluations(self) -> list[Row]:
        """All evaluations in order: those of the summary, or those of the stages while the run is in progress."""
        return self.summary.get("evaluations") or [row for stage in self.stages for row in stage.evaluations]

    def splits(self) -> list[str]:
        return list(dict.fromkeys(str(row["split"]) for row in self.evaluations()))


def read_pipeline(folder: Path) -> PipelineRun:
    """DataError if the folder does not exist, or has neither a summary nor a stage."""
    folder = Path(folder)
    summary_path = folder / "summary.json"
    summary = json.loads(summary_path.read_text(encoding="utf-8")) if summary_path.exists() else {}
    stages = tuple(_in_order(_read_stages(folder), summary))
    if not summary and not stages:
        raise DataError(
            f"{folder} is not a run folder: it has neither summary.json nor the files of a stage. "
            "Give the folder that a training run wrote, such as runs/NAME."
        )
    files = json.loads(_text(folder / "problems" / "decontamination.json") or "{}")
    unfit = json.loads(_text(folder / "problems" / "unfit.json") or "{}")
    return PipelineRun(
        folder=folder,
        config_text=_text(folder / "config.yaml"),
        summary=summary,
        stages=stages,
        files=files,
        unfit=unfit,
    )


def _read_stages(folder: Path) -> Iterator[StageRun]:
    for stage in sorted(path for path in folder.glob("*") if path.is_dir()):
        if any((stage / name).exists() for name in STAGE_FILES):
            yield StageRun(
                name=stage.name,
                folder=stage,
                metrics=tuple(read_jsonl(stage / "metrics.jsonl")),
                evaluations=tuple(sorted(read_jsonl(stage / "evaluations.jsonl"), key=lambda row: int(row["step"]))),
            )


def _in_order(stages: Iterator[StageRun], summary: dict[str, Any]) -> list[StageRun]:
    """In the order of the summary if it names all stages with steps. Otherwise by the age of their first files, which
    are lost when a folder is copied."""
    all_stages = list(stages)
    named = [row["stage"] for row in summary.get("evaluations", [])]
    if named and all(stage.name in named for stage in all_stages if stage.metrics):
        return sorted(all_stages, key=lambda stage: named.index(stage.name) if stage.name in named else -1)
    return sorted(all_stages, key=lambda stage: (_created(stage.folder), stage.name))


def _created(folder: Path) -> float:
    return min(path.stat().st_mtime for name in STAGE_FILES if (path := folder / name).exists())


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
