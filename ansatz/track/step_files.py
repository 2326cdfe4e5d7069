"""The files of a stage that belong to one step each, such as samples/step-000012.jsonl, and the rollouts in them.

A file of rollouts has one JSON object per line, each with the version of its format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ansatz.errors import DataError
from ansatz.files import write_text
from ansatz.track.jsonl import Row, read_jsonl, to_line
from ansatz.types import ScoredRollout, scored_from_json, to_json

SAMPLES, EVALUATIONS = "samples", "evaluations"
_NAME = re.compile(r"(.+)-(\d{6,})\.jsonl")


class StepFile(NamedTuple):
    """path: FOLDER/KIND-STEP.jsonl. kind: `step` for samples, the split for evaluations."""

    step: int
    kind: str
    path: Path


def step_path(stage: Path, folder: str, kind: str, step: int) -> Path:
    """Return where the file of a step is written."""
    return stage / folder / f"{kind}-{step:06d}.jsonl"


def step_files(stage: Path, folder: str) -> list[StepFile]:
    """Return the files in a folder of the stage, by step and kind."""
    matches = ((_NAME.fullmatch(path.name), path) for path in (stage / folder).glob("*.jsonl"))
    return sorted(StepFile(int(match[2]), match[1], path) for match, path in matches if match and path.is_file())


def step_files_after(stage: Path, step: int) -> Iterator[StepFile]:
    """Yield the files of all later steps, in every folder."""
    for folder in (SAMPLES, EVALUATIONS):
        yield from (file for file in step_files(stage, folder) if file.step > step)


FORMAT = 2
"""Version of the fields of a rollout. Format 1 had no version number and other names for some of the fields."""


def write_samples(path: Path, scored: Sequence[ScoredRollout]) -> None:
    """Replace the file by these rollouts."""
    write_text(path, samples_text(scored))


def samples_text(scored: Sequence[ScoredRollout]) -> str:
    """Return what the file of these rollouts holds."""
    return "".join(to_line({"format": FORMAT, **to_json(rollout)}) for rollout in scored)


def read_samples(path: Path) -> list[ScoredRollout]:
    """Return the rollouts of a file. Raise DataError for a file in another format, or a row that is not a rollout."""
    rows = read_jsonl(path)
    other = next((row.get("format", 1) for row in rows if row.get("format", 1) != FORMAT), None)
    if other is not None:
        raise DataError(
            f"{path} has rollout format {other}, but this version of Ansatz reads format {FORMAT}. Move the samples "
            "folder out of the run folder, or use the version of Ansatz that wrote it."
        )
    return [_rollout(row, f"{path}, line {number}") for number, row in enumerate(rows, start=1)]


def _rollout(row: Row, place: str) -> ScoredRollout:
    try:
        return scored_from_json({key: value for key, value in row.items() if key != "format"})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{place}: not a rollout ({type(error).__name__}: {error}). Remove the line.") from error
