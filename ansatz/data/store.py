"""Problems in a run folder: every field of `Problem`, one JSON object per line; reading restores them exactly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from ansatz.data.files import replacing
from ansatz.errors import DataError
from ansatz.json_text import parse_json
from ansatz.links import open_file
from ansatz.types import Problem, problem_from_json, problem_row


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write the file atomically. Raise the errors of `stored_lines`."""
    with replacing(path) as file:
        file.writelines(stored_lines(problems))


def stored_lines(problems: Iterable[Problem]) -> Iterator[str]:
    """Yield the lines of the file.

    Raise DataError if two problems have the same id, which would make them one group, or if a text is not valid
    Unicode.
    """
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise DataError(
                f"two problems of {problem.source!r} have the id {problem.id!r}; ids must be unique. "
                "Repair the ids, or set id_key to another field."
            )
        seen.add(problem.id)
        line = json.dumps(problem_row(problem), ensure_ascii=False) + "\n"
        try:
            line.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"problem {problem.id!r} of {problem.source!r} contains half a character "
                f"(the surrogate {error.object[error.start]!r}). Repair its text, or remove the problem."
            ) from error
        yield line


def read_problems(path: Path) -> list[Problem]:
    """Read a file that `write_problems` wrote. Raise DataError if it is missing, or if something else has changed
    it."""
    if not path.is_file():
        raise DataError(f"{path} is missing. The stage `problems` writes it; start the run over with --fresh.")
    with open_file(path) as file:
        try:
            return [problem_from_json(parse_json(line, own=True)) for line in file]
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{path} was changed after it was written ({error}). Start the run over with --fresh."
            ) from error
