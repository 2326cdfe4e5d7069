"""Problems in a run folder: every field of `Problem`, one JSON object a line, back as they were."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ansatz.errors import DataError
from ansatz.types import Problem, to_json


def write_problems(path: Path, problems: Iterable[Problem]) -> int:
    """Writes the file whole or not at all; returns the number of problems."""
    draft = path.with_name(f".{path.name}.draft")
    count = 0
    with draft.open("w", encoding="utf-8") as file:
        for problem in problems:
            file.write(json.dumps(to_json(problem), ensure_ascii=False) + "\n")
            count += 1
    draft.replace(path)
    return count


def read_problems(path: Path) -> list[Problem]:
    """What `write_problems` wrote. Raises DataError for a missing file."""
    if not path.is_file():
        raise DataError(f"{path} is missing; it is written by the stage `problems`. Start the run over with --fresh.")
    with path.open(encoding="utf-8") as file:
        return [Problem(**json.loads(line)) for line in file]
