"""The files of a stage that belong to one step each, such as samples/step-000012.jsonl and its groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ansatz.links import list_folder

SAMPLES, EVALUATIONS = "samples", "evaluations"
_NAME = re.compile(r"(.+)-(\d{6,})\.jsonl")
_ANY_NAME = re.compile(r"(.+)-(\d{6,})\.(?:groups\.jsonl|tokens\.npy|jsonl)")


class StepFile(NamedTuple):
    """path: FOLDER/KIND-STEP.jsonl. kind: `step` for samples, the split for evaluations."""

    step: int
    kind: str
    path: Path


def step_path(stage: Path, folder: str, kind: str, step: int) -> Path:
    """Return where the file of a step is written."""
    return stage / folder / f"{kind}-{step:06d}.jsonl"


def groups_path(rollouts: Path) -> Path:
    """Return the file with the groups of a file of rollouts."""
    return rollouts.with_name(f"{rollouts.stem}.groups.jsonl")


def tokens_path(rollouts: Path) -> Path:
    """Return the file with the tokens of a file of rollouts."""
    return rollouts.with_name(f"{rollouts.stem}.tokens.npy")


def step_files(stage: Path, folder: str) -> list[StepFile]:
    """Return the files of rollouts in a folder of the stage, by step and kind."""
    return _find_files(stage / folder, _NAME)


def step_files_after(stage: Path, step: int) -> Iterator[StepFile]:
    """Yield the files of all later steps, in every folder, those that come with the rollouts included."""
    for folder in (SAMPLES, EVALUATIONS):
        yield from (file for file in _find_files(stage / folder, _ANY_NAME) if file.step > step)


def _find_files(folder: Path, pattern: re.Pattern[str]) -> list[StepFile]:
    matches = [(pattern.fullmatch(path.name), path) for path in list_folder(folder)]
    return sorted(StepFile(int(match[2]), match[1], path) for match, path in matches if match and path.is_file())
