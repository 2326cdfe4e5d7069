"""Files of responses into the table of the index: by DuckDB where their rows are flat, else row by row in Python.

DuckDB reads about ten times as fast. It reads the files of samples and evaluations (`track.rollout_rows`); rows of
stores, and files with a row that it cannot read, go through `track.rollout_table`, which also describes their errors. A
test holds both ways equal. A pool of processes would be slower: for 120 MB, two processes took 2.4 s of CPU time to
parse the rows with `json` and to send them as lists, before any was inserted; DuckDB's parallel reader parses them in
0.65 s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from ansatz.links import is_own_file
from ansatz.track.rollout_table import ASKED, CUT_OFF, TRAIN, RolloutFile
from ansatz.track.step_files import groups_path

MAX_LINE_BYTES = 1 << 24
NESTED = {"parts": "MAP(VARCHAR, DOUBLE)", "tokens_at": "BIGINT[]", "observations": "JSON", "steps": "JSON"}
_FLAT: Mapping[str, str] = {
    **dict.fromkeys(("id", "problem", "reason", "extracted", "grader_stage", "finish", "text"), "VARCHAR"),
    **dict.fromkeys(("reward", "advantage", "mean_logp", "repetition", "temperature"), "DOUBLE"),
    **dict.fromkeys(("mean_entropy", "mismatch_mean", "mismatch_max", "clip_share"), "DOUBLE"),
    **dict.fromkeys(("group", "sample", "seed", "tokens", "version_min", "version_max"), "DOUBLE"),
    **dict.fromkeys(("correct", "used"), "BOOLEAN"),
    **NESTED,
}
"""The fields that are read from a flat row, and their types."""
_ASKED: Mapping[str, str] = dict.fromkeys(("group", *ASKED), "VARCHAR")
NEEDED = ("id", "problem", "reason", "finish", "correct", "text", "sample")
"""The fields of every flat row. A file with a row that lacks one is read in Python."""


def can_read(file: RolloutFile) -> bool:
    """Return whether the rows of a file are flat, and no link leads to them, which DuckDB would follow."""
    is_alone = file.split != TRAIN
    return not file.is_store and is_own_file(file.path) and (is_alone or is_own_file(groups_path(file.path)))


def insert_flat(db: duckdb.DuckDBPyConnection, files: Sequence[RolloutFile]) -> None:
    """Insert the rows of flat files of the same kind, training or evaluations, which the table `files` names. Raise
    duckdb.Error if one cannot be read."""
    paths, is_training = [str(file.path) for file in files], files[0].split == TRAIN
    groups = [[str(groups_path(file.path)) for file in files]] if is_training else []
    db.execute(_statement(is_training=is_training), [paths, paths, *groups])


def insert_problems(db: duckdb.DuckDBPyConnection, problems: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the table of problems. Evaluations find their answers there."""
    columns = [list(problems), *([row[name] for row in problems.values()] for name in ASKED)]
    unnested = ", ".join(f"unnest(cast(? as VARCHAR[])) as {name}" for name in ("problem", *ASKED))
    db.execute(f"create or replace temp table problems as select {unnested}", columns)


def json_reader(columns: Mapping[str, str], *, path: str = "path", longest: int = MAX_LINE_BYTES) -> str:
    """Return the function that reads JSON lines from the files of one question mark. path: the column with their
    names. longest: bytes of a line that can be read; each thread holds twice as many. Folders with names such as
    temperature=0 add no columns."""
    kinds = ", ".join(f"{name!r}: '{kind}'" for name, kind in columns.items())
    return (
        f"read_json(?, columns = {{{kinds}}}, format = 'newline_delimited', filename = '{path}', "
        f"hive_partitioning = false, maximum_object_size = {max(longest, MAX_LINE_BYTES)})"
    )


def _statement(*, is_training: bool) -> str:
    """Return the statement that inserts files. It names the columns of the table `rollouts`, in any order.

    Each file is read twice, the second time for the rewards of its groups alone: so no text waits in memory.
    """
    if is_training:
        group, used, greedy = '"group"', "coalesce(used, true)", "false"
        asked = f'{json_reader(_ASKED, path="asked")} a on asked = groups and cast(a."group" as DOUBLE) = r."group"'
    else:
        group, used = r"cast(regexp_extract(id, '/(\d+)/[^/]+$', 1) as DOUBLE)", "false"
        greedy, asked = "coalesce(temperature = 0, false)", "problems a on a.problem = r.problem"
    reader, finishes = json_reader(_FLAT), ", ".join(f"'{name}'" for name in CUT_OFF)
    missing = " or ".join(f'"{name}" is null' for name in (*NEEDED, *["group"] * is_training))
    place = f'path, {group} as "group", coalesce(reward, 0) as reward, {greedy} as greedy'
    row = (
        f"{place}, case when {missing} then error('a row is not complete') else id end as id, {used} as used",
        "coalesce(observations, '[]') as observations, coalesce(steps, '[]') as steps",
        f"finish in ({finishes}) as truncated, tokens_at is not null as has_tokens",
        '* exclude (path, "group", reward, temperature, used, id, observations, steps)',
    )
    size, mean, std = 'count(*) as "group.size"', 'avg(reward) as "group.mean"', 'stddev_pop(reward) as "group.std"'
    shared = f'{size}, {mean}, {std}, count(*) filter (where correct) as "group.correct"'
    known = ", ".join(f"coalesce(a.{name}, '') as {name}" for name in ASKED)
    return (
        f'insert into rollouts by name select r.* exclude (path), s.* exclude (path, "group", greedy), {known}, '
        f"file, written, stage, step, split from (select {', '.join(row)} from {reader}) r "
        f'join (select path, "group", greedy, {shared} from (select {place}, correct from {reader}) group by all) s '
        f'using (path, "group", greedy) join files using (path) left join {asked}'
    )
