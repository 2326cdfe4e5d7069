"""The files of a stage that belong to one step each, such as samples/step-000012.jsonl."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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
