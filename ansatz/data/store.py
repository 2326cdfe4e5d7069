"""Problems in a run folder: every field of `Problem`, one JSON object a line, back as they were."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ansatz.errors import DataError
from ansatz.types import Problem, to_json


def write_problems(path: Path, problems: Iterable[Problem]) -> int:
    """Writes the file whole or not at all; returns the number of problems.

    Raises DataError where two problems have one id, which would make them one group, and for text that is no Unicode.
    """
    draft = path.with_name(f".{path.name}.draft")
    seen: set[str] = set()
    with draft.open("w", encoding="utf-8") as file:
        for problem in problems:
            if problem.id in seen:
                raise DataError(
                    f"two problems of {problem.source!r} have the id {problem.id!r}; each needs its own. "
                    "Repair the ids, or set id_key to another field or to none."
                )
            seen.add(problem.id)
            try:
                file.write(json.dumps(to_json(problem), ensure_ascii=False) + "\n")
            except UnicodeEncodeError as error:
                raise DataError(
                    f"problem {problem.id!r} of {problem.source!r} holds half a character "
                    f"({error.object[error.start]!r}). Repair its text, or take the problem out."
                ) from error
    draft.replace(path)
    return len(seen)


def read_problems(path: Path) -> list[Problem]:
    """What `write_problems` wrote. Raises DataError for a missing file, or one that something else has changed."""
    if not path.is_file():
        raise DataError(f"{path} is missing; it is written by the stage `problems`. Start the run over with --fresh.")
    with path.open(encoding="utf-8") as file:
        try:
            return [Problem(**json.loads(line)) for line in file]
        except (ValueError, TypeError) as error:
            raise DataError(f"{path} is not as it was written ({error}). Start the run over with --fresh.") from error
