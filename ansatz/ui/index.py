"""The index of a run's responses: a DuckDB table outside the run, derived from its files and thrown away at will.

A file of responses is read again when its inode, size or time of change differs. Only SQL that is made here runs, with
bound values, and the data base can read no file but the index's own drafts. Filters as SQL are the second back end of
`track.filters`, which a property test holds equal to the first.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from ansatz.errors import ConfigError, DataError
from ansatz.track import filters
from ansatz.track.filters import (
    PARTS,
    All,
    Either,
    Everything,
    Not,
    Other,
    Percentile,
    Query,
    Tree,
    Within,
    resolve_percentiles,
)
from ansatz.track.rollout_table import KINDS, RolloutFile, find_rollout_files, read_questions, read_rollouts

VERSION = 2
MAX_GRADED = 20_000
"""Responses that `other` grades at most."""

Sql = tuple[str, list[Any]]
"""A condition or an expression, and the values of its question marks."""

_TYPES = {"number": "DOUBLE", "text": "VARCHAR", "flag": "BOOLEAN"}
_COLUMNS = {name: _TYPES[kind] for name, kind in KINDS.items()}
_COLUMNS |= {"parts": "MAP(VARCHAR, DOUBLE)", "tokens_at": "BIGINT[]", "observations": "JSON", "steps": "JSON"}
_DRAFT_ROWS = 20_000


def cache_folder() -> Path:
    """Return where indices are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ansatz" / "index"


class RolloutIndex:
    """The responses of one folder. Its methods can be called from several threads."""

    def __init__(self, run: Path, *, folder: Path | None = None) -> None:
        self.run = run
        self._folder = cache_folder() if folder is None else folder
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = hashlib.sha256(f"{VERSION}\0{run.resolve()}".encode()).hexdigest()[:24]
        self._draft = self._folder / f"{name}-{os.getpid()}.jsonl"
        self._lock = threading.Lock()
        self._checked = 0.0
        self.problems: dict[str, dict[str, Any]] = {}
        self.notices: list[str] = []
        self._db = self._open(self._folder / f"{name}.duckdb")
        columns = ", ".join(f"{quote(name)} {kind}" for name, kind in _COLUMNS.items())
        self._db.execute(f"create table if not exists rollouts (file VARCHAR, written DOUBLE, {columns})")
        self._db.execute("create table if not exists files (file VARCHAR, state VARCHAR)")

    def _open(self, path: Path) -> duckdb.DuckDBPyConnection:
        """Open the stored index; one in memory if another viewer holds it or it is damaged."""
        settings = {"allowed_paths": [str(self._draft)], "enable_external_access": False}
        try:
            db = duckdb.connect(str(path))
        except duckdb.Error:
            db = duckdb.connect()
        for key, value in settings.items():
            db.execute(f"set {key} = ?", [value])
        db.execute("set lock_configuration = true")
        return db

    def refresh(self, *, every_s: float = 1.0) -> None:
        """Read files that have changed since the last call, unless that was less than `every_s` ago."""
        with self._lock:
            if time.monotonic() - self._checked < every_s and self._checked:
                return
            now = {str(file.path.relative_to(self.run)): file for file in find_rollout_files(self.run)}
            states = {name: _state_of(file.path) for name, file in now.items()}
            known = dict(self._db.execute("select file, state from files").fetchall())
            gone = [name for name in known if states.get(name) != known[name]]
            for table in ("rollouts", "files"):
                self._db.execute(f"delete from {table} where list_contains(?, file)", [gone])
            missing = [name for name in reversed(now) if known.get(name) != states[name]]
            if missing:
                self.problems = read_questions(self.run)
            rows: list[dict[str, Any]] = []
            for name in missing:
                written = now[name].path.stat().st_mtime
                rows += [{"file": name, "written": written, **row} for row in self._read(now[name])]
                self._db.execute("insert into files values (?, ?)", [name, states[name]])
                if len(rows) >= _DRAFT_ROWS or name == missing[-1]:
                    self._insert(rows)
                    rows = []
            self._checked = time.monotonic()

    def _read(self, file: RolloutFile) -> list[dict[str, Any]]:
        try:
            return read_rollouts(file, self.problems)
        except DataError as error:
            self.notices.append(str(error))
            return []

    def _insert(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return
        columns = {"file": "VARCHAR", "written": "DOUBLE", **_COLUMNS}
        with self._draft.open("w", encoding="utf-8", errors="replace") as file:
            for row in rows:
                file.write(json.dumps({name: row[name] for name in columns}) + "\n")
        kinds = "{" + ", ".join(f"{quote(name)}: '{kind}'" for name, kind in columns.items()) + "}"
        reader = f"read_json(?, columns = {kinds}, format = 'newline_delimited', maximum_object_size = 134217728)"
        try:
            self._db.execute(f"insert into rollouts select * from {reader}", [str(self._draft)])
        finally:
            self._draft.unlink(missing_ok=True)

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._db.cursor().execute(sql, list(values)).fetchall()
        except duckdb.InvalidInputException as error:  # of a regular expression that RE2 does not have
            raise ConfigError(f"the filter cannot be applied ({str(error)[:200]}).") from error

    def resolve(self, tree: Tree, grade: Callable[[Mapping[str, Any], str], bool]) -> Tree:
        """Return the tree with numbers as percentiles, and lists of responses for what `other` finds."""
        tree = resolve_percentiles(tree, self._find_percentile)
        for mode in sorted(_graders_of(tree)):
            bounds = Either((_replace_other(tree, Everything()), _replace_other(tree, Either(()))))
            rows = self.select(Query(bounds), limit=MAX_GRADED + 1)
            if len(rows) > MAX_GRADED:
                raise ConfigError(f"other({mode}) grades at most {MAX_GRADED} responses. Narrow the filter with and.")
            found = tuple(row["id"] for row in rows if grade(row, mode))
            tree = _replace_other(tree, Within("id", found), mode)
        return tree

    def _find_percentile(self, wanted: Percentile) -> float | None:
        column, values = column_of(wanted.field)
        return self._all(f"select quantile_cont({column}, {wanted.percent / 100}) from rollouts", values)[0][0]

    def count(self, tree: Tree = Everything()) -> int:
        """Return how many responses the tree selects."""
        condition, values = compile_sql(tree)
        return self._all(f"select count(*) from rollouts where {condition}", values)[0][0]

    def select(self, query: Query, *, limit: int, offset: int = 0) -> list[dict[str, Any]]:
        """Return the rows that a query selects."""
        condition, values = compile_sql(query.tree)
        order, more = order_by(query.sort)
        names = ["file", *_COLUMNS]
        sql = f"select {', '.join(map(quote, names))} from rollouts where {condition} order by {order} limit ? offset ?"
        rows = [dict(zip(names, row, strict=True)) for row in self._all(sql, [*values, *more, limit, offset])]
        for row in rows:
            row |= {name: json.loads(row[name] or "[]") for name in ("observations", "steps")}
            row |= {name: int(value) for name, value in row.items() if isinstance(value, float) and value.is_integer()}
        return rows

    def count_values(self, tree: Tree, field: str, *, limit: int = 12) -> list[tuple[Any, int]]:
        """Return the most frequent values of a field among the responses that the tree selects."""
        condition, values = compile_sql(tree)
        counted = f"select {quote(field)}, count(*) as n from rollouts where {condition} group by 1"
        return [(value, count) for value, count in self._all(f"{counted} order by n desc, 1 limit ?", [*values, limit])]

    def bin_values(self, tree: Tree, field: str, *, bins: int = 24) -> list[tuple[float, float, int]]:
        """Return (low, high, count) of equal parts of the range of a number; empty without values."""
        condition, values = compile_sql(tree)
        column = quote(field)
        low, high = self._all(f"select min({column}), max({column}) from rollouts where {condition}", values)[0]
        if low is None:
            return []
        width = (high - low) / bins or 1.0
        place = f"select least(floor(({column} - ?) / ?), ?), count(*) from rollouts"
        sql = f"{place} where {condition} and {column} is not null group by 1"
        found = dict(self._all(sql, [low, width, bins - 1, *values]))
        return [(low + k * width, low + (k + 1) * width, found.get(float(k), 0)) for k in range(bins)]


def _state_of(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"


def _graders_of(tree: Tree) -> set[str]:
    match tree:
        case All(items) | Either(items):
            return {grader for item in items for grader in _graders_of(item)}
        case Not(item):
            return _graders_of(item)
        case Other(grader):
            return {grader}
        case _:
            return set()


def _replace_other(tree: Tree, by: Tree, grader: str = "") -> Tree:
    match tree:
        case All(items) | Either(items):
            return replace(tree, items=tuple(_replace_other(item, by, grader) for item in items))
        case Not(item):
            return Not(_replace_other(item, by, grader))
        case Other(name) if grader in ("", name):
            return by
        case _:
            return tree


def compile_sql(tree: Tree) -> Sql:
    """Return a condition and the values of its question marks. Percentiles and `other` are resolved before."""
    match tree:
        case filters.Everything():
            return "true", []
        case filters.All(items):
            return _join([compile_sql(item) for item in items], " and ", "true")
        case filters.Either(items):
            return _join([compile_sql(item) for item in items], " or ", "false")
        case filters.Not(item):
            condition, values = compile_sql(item)
            return f"(not {condition})", values
        case filters.Flag(field):
            return f"coalesce({quote(field)}, false)", []
        case filters.Contains(text):
            return "contains(text, ?)", [text]
        case filters.Matches(field, pattern):
            return f"coalesce(regexp_matches({quote(field)}, ?), false)", [pattern]
        case filters.Within(field, members):
            column, bound = column_of(field)
            return f"coalesce(list_contains(?, {column}), false)", [list(members), *bound]
        case filters.Compare(field, sign, value, absolute):
            column, values = column_of(field)
            left = f"abs({column})" if absolute else column
            if isinstance(value, filters.FieldPlus):
                other, more = column_of(value.field)
                return f"coalesce({left} {sign} {other} + ?, false)", [*values, *more, value.plus]
            return f"coalesce({left} {sign} ?, false)", [*values, value]
        case _:
            raise TypeError(f"{tree} is resolved before it becomes SQL")


def column_of(field: str) -> Sql:
    """Return the expression of a field and the values of its question marks."""
    if field.startswith(PARTS):
        return "element_at(parts, ?)[1]", [field[len(PARTS) :]]
    return quote(field), []


def quote(field: str) -> str:
    """Return the name of a column, quoted. The field is one of the closed list."""
    assert '"' not in field, field
    return f'"{field}"'


def order_by(sort: Sequence[str]) -> Sql:
    """Return what comes after ORDER BY: the given fields, then the newest files first."""
    keys: list[str] = []
    values: list[Any] = []
    for name in sort:
        column, bound = column_of(name.lstrip("-"))
        keys.append(f"{column} {'desc' if name.startswith('-') else 'asc'} nulls last")
        values += bound
    return ", ".join([*keys, "written desc", "stage", "step", "split", '"group"', "greedy", "sample"]), values


def _join(parts: Sequence[Sql], word: str, empty: str) -> Sql:
    if not parts:
        return empty, []
    return f"({word.join(condition for condition, _ in parts)})", [value for _, values in parts for value in values]
