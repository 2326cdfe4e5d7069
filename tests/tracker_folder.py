"""Reads what a Tracker has written, with the attributes of the fake tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansatz.track.jsonl import read_jsonl
from ansatz.track.step_files import EVALUATIONS, SAMPLES, step_files


class TrackerFolder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def steps(self) -> dict[int, dict[str, float]]:
        rows = read_jsonl(self.folder / "metrics.jsonl")
        return {row["step"]: {k: v for k, v in row.items() if k not in ("step", "seconds")} for row in rows}

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return read_jsonl(self.folder / "evaluations.jsonl")

    @property
    def responses(self) -> dict[tuple[str, int], list[dict[str, Any]]]:
        return {(file.kind, file.step): read_jsonl(file.path) for file in step_files(self.folder, EVALUATIONS)}

    @property
    def events(self) -> list[dict[str, Any]]:
        return read_jsonl(self.folder / "events.jsonl")

    @property
    def rows(self) -> dict[int, list[dict[str, Any]]]:
        return {file.step: read_jsonl(file.path) for file in step_files(self.folder, SAMPLES)}
