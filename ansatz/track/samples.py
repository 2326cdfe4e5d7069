"""Files of scored rollouts: one JSON object per line, each with the version of its format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ansatz.errors import DataError
from ansatz.files import write_text
from ansatz.track.jsonl import Row, read_jsonl, to_line
from ansatz.types import ScoredRollout, scored_from_json, to_json

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
