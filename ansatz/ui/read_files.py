"""Files of responses into the table of the index: by DuckDB where their rows are flat, else row by row in Python.

DuckDB reads about ten times as fast. It reads the files of samples and evaluations (`track.rollout_rows`); rows of
older runs and of stores, and files with a row that it cannot read, go through `track.rollout_table`, which also says
what is wrong with them. A test holds both ways equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb

from ansatz.track.rollout_table import CUT_OFF, TRAIN, RolloutFile
from ansatz.track.step_files import groups_path

MAX_LINE_BYTES = 1 << 27
_FLAT: Mapping[str, str] = {
    **dict.fromkeys(("id", "problem", "reason", "extracted", "grader_stage", "finish", "text"), "VARCHAR"),
    **dict.fromkeys(("reward", "advantage", "mean_logp", "repetition", "temperature"), "DOUBLE"),
    **dict.fromkeys(("group", "sample", "seed", "tokens", "version_min", "version_max"), "DOUBLE"),
    **dict.fromkeys(("correct", "used"), "BOOLEAN"),
    "parts": "MAP(VARCHAR, DOUBLE)",
    "tokens_at": "BIGINT[]",
    "observations": "JSON",
    "steps": "JSON",
}
"""What is read of a flat row."""
_ASKED: Mapping[str, str] = dict.fromkeys(("group", "level", "subject", "answer"), "VARCHAR")
NEEDED = ("id", "problem", "reason", "finish", "correct", "text", "sample")
"""What every flat row has. A file with a row without it is read in Python."""


def can_read(file: RolloutFile) -> bool:
    """Return whether the rows of a file are flat."""
    return not file.is_store and (file.split != TRAIN or groups_path(file.path).is_file())


def insert_flat(db: duckdb.DuckDBPyConnection, files: Mapping[str, RolloutFile]) -> None:
    """Insert the rows of flat files of the same kind, training or evaluations. files: by name, which the table `files`
    has with the path and place of each. Raise duckdb.Error if one cannot be read."""
    paths = [str(file.path) for file in files.values()]
    is_training = next(iter(files.values())).split == TRAIN
    groups = [[str(groups_path(file.path)) for file in files.values()]] if is_training else []
    db.execute(_statement(is_training=is_training), [paths, *groups])
    missing = " or ".join(f'"{name}" is null' for name in NEEDED)
    odd = f"select count(*) from rollouts where list_contains(?, file) and ({missing})"
    if (count := db.execute(odd, [list(files)]).fetchall()[0][0]) > 0:
        raise duckdb.InvalidInputException(f"{count} rows are not complete")


def insert_problems(db: duckdb.DuckDBPyConnection, problems: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the table of problems, in which evaluations find the answers."""
    db.execute(
        "create or replace temp table problems (problem VARCHAR, level VARCHAR, subject VARCHAR, answer VARCHAR)"
    )
    columns = [list(problems), *([row[name] for row in problems.values()] for name in ("level", "subject", "answer"))]
    db.execute("insert into problems select unnest(?), unnest(?), unnest(?), unnest(?)", columns)


def json_reader(columns: Mapping[str, str], *, path: str = "path") -> str:
    """Return the function that reads JSON lines from the files of one question mark. path: the column with their
    names."""
    kinds = ", ".join(f"{name!r}: '{kind}'" for name, kind in columns.items())
    return (
        f"read_json(?, columns = {{{kinds}}}, format = 'newline_delimited', filename = '{path}', "
        f"maximum_object_size = {MAX_LINE_BYTES})"
    )


def _statement(*, is_training: bool) -> str:
    """Return the statement that inserts files. Its columns are those of the table `rollouts`, in any order."""
    if is_training:
        group, used, greedy = 'r."group"', "coalesce(r.used, true)", "false"
        asked = f'{json_reader(_ASKED, path="asked")} a on a.asked = f.groups and cast(a."group" as DOUBLE) = r."group"'
    else:
        group, used = r"cast(regexp_extract(r.id, '/(\d+)/[^/]+$', 1) as DOUBLE)", "false"
        greedy, asked = "coalesce(r.temperature = 0, false)", "problems a on a.problem = r.problem"
    finishes = ", ".join(f"'{name}'" for name in CUT_OFF)
    chosen = (
        "f.file, f.written, f.stage, f.step, f.split",
        'r.* exclude (path, "group", reward, used, temperature, observations, steps)',
        f'{group} as "group", {used} as used, {greedy} as greedy, r.finish in ({finishes}) as truncated',
        "coalesce(r.reward, 0) as reward, r.tokens_at is not null as has_tokens",
        *(f"coalesce(a.{name}, '') as {name}" for name in ("level", "subject", "answer")),
        *(f"coalesce(r.{name}, '[]') as {name}" for name in ("observations", "steps")),
    )
    numbers = {
        "size": "count(*)",
        "mean": "avg(reward)",
        "std": "stddev_pop(reward)",
        "correct": "count(*) filter (where correct)",
    }
    shared = ", ".join(f'{number} over w as "group.{name}"' for name, number in numbers.items())
    return (
        f"insert into rollouts by name select *, {shared} from (select {', '.join(chosen)} from "
        f"{json_reader(_FLAT)} r join files f on f.path = r.path left join {asked}) "
        'window w as (partition by file, "group", greedy)'
    )
