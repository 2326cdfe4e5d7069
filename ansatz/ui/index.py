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
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from ansatz.errors import ConfigError, DataError
from ansatz.track import filters
from ansatz.track.filters import PARTS, Either, Everything, Other, Query, Tree, Within
from ansatz.track.rollout_table import KINDS, TRAIN, RolloutFile, find_rollout_files, read_questions, read_rollouts
from ansatz.track.step_files import groups_path
from ansatz.ui.read_files import can_read, insert_flat, insert_problems, json_reader

VERSION = 3
MAX_GRADED = 20_000
"""Responses that `other` grades at most."""

MAX_VALUES = 12
"""Values of a facet that are counted, the most frequent ones."""

Sql = tuple[str, list[Any]]
"""A condition or an expression, and the values of its question marks."""

_TYPES = {"number": "DOUBLE", "text": "VARCHAR", "flag": "BOOLEAN"}
_COLUMNS = {name: _TYPES[kind] for name, kind in KINDS.items() if kind in _TYPES}
_COLUMNS |= {"parts": "MAP(VARCHAR, DOUBLE)", "tokens_at": "BIGINT[]", "observations": "JSON", "steps": "JSON"}
_FILES = ", ".join(f"{name} VARCHAR" for name in ("file", "state", "path", "groups", "stage", "split", "notice"))
_FILES += ", step DOUBLE, written DOUBLE"
_BATCH_FILES = 64


def cache_folder() -> Path:
    """Return where indices are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ansatz" / "index"


Bin = tuple[float, float, int]
"""low, high, and how many values are between them."""


class Summary(NamedTuple):
    """What a filter selects. facets: (value, count) by field, the most frequent first. bins: by field."""

    total: int
    facets: dict[str, list[tuple[Any, int]]]
    bins: dict[str, list[Bin]]


class IndexedFile(NamedTuple):
    """A file as it was read. name: its path within the run. state: its inode, size and time of change."""

    name: str
    state: str
    written: float
    file: RolloutFile


class RolloutIndex:
    """The responses of one folder. Its methods can be called from several threads.

    waiting: files that are still to be read.
    """

    def __init__(self, run: Path, *, folder: Path | None = None) -> None:
        self.run = run
        self._folder = cache_folder() if folder is None else folder
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = hashlib.sha256(f"{VERSION}\0{run.resolve()}".encode()).hexdigest()[:24]
        self._draft = self._folder / f"{name}-{os.getpid()}.jsonl"
        self._lock = threading.Lock()
        self._reading = threading.Thread()
        self._checked = 0.0
        self._questions: tuple[str, dict[str, dict[str, Any]]] = "", {}
        self.waiting = 0
        self._db = self._open(self._folder / f"{name}.duckdb")
        columns = ", ".join(f"{quote(name)} {kind}" for name, kind in _COLUMNS.items())
        self._db.execute(f"create table if not exists rollouts (file VARCHAR, written DOUBLE, {columns})")
        self._db.execute(f"create table if not exists files ({_FILES})")

    def _open(self, path: Path) -> duckdb.DuckDBPyConnection:
        """Open the stored index; one in memory if another viewer holds it or it is damaged."""
        readable = [str(self.run.resolve()), str(self._folder)]
        settings = {"allowed_directories": readable, "enable_external_access": False, "preserve_insertion_order": False}
        try:
            db = duckdb.connect(str(path))
        except duckdb.Error:
            db = duckdb.connect()
        for key, value in settings.items():
            db.execute(f"set {key} = ?", [value])
        db.execute("set lock_configuration = true")
        return db

    def close(self) -> None:
        """Wait for files that are being read, and let another process open the index."""
        if self._reading.is_alive():
            self._reading.join()
        self._db.close()

    @property
    def notices(self) -> list[str]:
        """Return sentences about files that cannot be read."""
        return [notice for (notice,) in self._all("select notice from files where notice <> '' order by file")]

    @property
    def problems(self) -> dict[str, dict[str, Any]]:
        """Return the problems of the run by id, read again when their files have changed."""
        files = sorted((self.run / "problems").glob("*.jsonl"))
        now = " ".join(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files)
        if self._questions[0] != now:
            self._questions = now, read_questions(self.run)
        return self._questions[1]

    def refresh(self, *, every_s: float = 1.0, wait_s: float = 5.0) -> None:
        """Read files that have changed since the last call, unless that was less than `every_s` ago. What takes longer
        than `wait_s` goes on meanwhile, the newest files first."""
        with self._lock:
            is_recent = self._checked and time.monotonic() - self._checked < every_s
            if not is_recent and not self._reading.is_alive():
                missing = self._find_missing()
                self._checked, self.waiting = time.monotonic(), len(missing)
                if missing:
                    self._reading = threading.Thread(target=self._read_all, args=(missing,), daemon=True)
                    self._reading.start()
        if self._reading.is_alive():
            self._reading.join(wait_s)

    def _find_missing(self) -> list[IndexedFile]:
        """Return new and changed files, the newest first. Drop the rows of those, and of files that are gone."""
        now = {file.name: file for file in map(self._look_at, find_rollout_files(self.run)) if file is not None}
        known = dict(self._db.execute("select file, state from files").fetchall())
        gone = [name for name, state in known.items() if name not in now or now[name].state != state]
        for table in ("rollouts", "files") if gone else ():
            self._db.execute(f"delete from {table} where list_contains(?, file)", [gone])
        return [file for file in reversed(now.values()) if known.get(file.name) != file.state]

    def _look_at(self, file: RolloutFile) -> IndexedFile | None:
        try:
            stat = file.path.stat()
            state = f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
            return IndexedFile(str(file.path).removeprefix(f"{self.run}/"), state, stat.st_mtime, file)
        except FileNotFoundError:  # removed by a rollback
            return None

    def _read_all(self, missing: Sequence[IndexedFile]) -> None:
        """Read files in a thread of its own, in batches of the same kind."""
        db, problems = self._db.cursor(), self.problems
        insert_problems(db, problems)
        for (is_flat, _), files in groupby(missing, key=lambda each: (can_read(each.file), each.file.split == TRAIN)):
            every = list(files)
            for start in range(0, len(every), _BATCH_FILES):
                batch = every[start : start + _BATCH_FILES]
                if not is_flat or not self._insert(db, batch):
                    for file in batch:
                        if not is_flat or not self._insert(db, [file]):
                            self._insert_by_row(db, file, problems)
                self.waiting -= len(batch)

    def _insert(self, db: duckdb.DuckDBPyConnection, batch: Sequence[IndexedFile]) -> bool:
        """Insert flat files. Return whether DuckDB can read them."""
        db.begin()
        try:
            self._name_files(db, batch)
            insert_flat(db, {each.name: each.file for each in batch})
            db.commit()
        except duckdb.Error:
            db.rollback()
            return False
        return True

    def _insert_by_row(
        self, db: duckdb.DuckDBPyConnection, of: IndexedFile, problems: Mapping[str, dict[str, Any]]
    ) -> None:
        """Insert a file that only Python can read. What is wrong with it becomes a notice."""
        try:
            rows = read_rollouts(of.file, problems)
        except DataError as error:
            self._name_files(db, [of], notice=str(error))
            return
        db.begin()
        self._name_files(db, [of])
        self.insert_rows(db, [{"file": of.name, "written": of.written, **row} for row in rows])
        db.commit()

    def _name_files(self, db: duckdb.DuckDBPyConnection, batch: Sequence[IndexedFile], notice: str = "") -> None:
        rows = [
            (
                name,
                state,
                str(file.path),
                str(groups_path(file.path)),
                file.stage,
                file.split,
                notice,
                file.step,
                written,
            )
            for name, state, written, file in batch
        ]
        columns = list(map(list, zip(*rows, strict=True)))
        db.execute(f"insert into files select {', '.join(['unnest(?)'] * len(columns))}", columns)

    def insert_rows(self, db: duckdb.DuckDBPyConnection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows of `rollout_table`, through a file of JSON lines."""
        columns = {"file": "VARCHAR", "written": "DOUBLE", **_COLUMNS}
        with self._draft.open("w", encoding="utf-8", errors="replace") as file:
            for row in rows:
                file.write(json.dumps({name: row[name] for name in columns}) + "\n")
        try:
            db.execute(f"insert into rollouts select * exclude (path) from {json_reader(columns)}", [str(self._draft)])
        finally:
            self._draft.unlink(missing_ok=True)

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._db.cursor().execute(sql, list(values)).fetchall()
        except duckdb.InvalidInputException as error:  # of a regular expression that RE2 does not have
            raise ConfigError(f"the filter cannot be applied ({str(error)[:200]}).") from error

    def resolve(self, tree: Tree, grade: Callable[[Mapping[str, Any], str], bool]) -> Tree:
        """Return the tree with numbers as percentiles, and lists of responses for what `other` finds."""
        tree = filters.resolve_percentiles(tree, self._find_percentile)
        asked = dict[str, Tree]()
        filters.map_leaves(tree, lambda test: asked.setdefault(test.grader, test) if isinstance(test, Other) else test)
        if not asked:
            return tree
        verdicts = product((Everything(), Either(())), repeat=len(asked))
        bounds = Either(tuple(_replace_other(tree, dict(zip(asked, each, strict=True))) for each in verdicts))
        rows = self.select(Query(bounds), limit=MAX_GRADED + 1)
        if len(rows) > MAX_GRADED:
            raise ConfigError(f"other() grades at most {MAX_GRADED} responses. Narrow the filter with and.")
        found = {mode: Within("id", tuple(row["id"] for row in rows if grade(row, mode))) for mode in asked}
        return _replace_other(tree, found)

    def _find_percentile(self, wanted: filters.Percentile) -> float | None:
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
            row |= {"label": ""} | {name: json.loads(row[name] or "[]") for name in ("observations", "steps")}
            row |= {name: int(value) for name, value in row.items() if isinstance(value, float) and value.is_integer()}
        return rows

    def summarise(
        self, tree: Tree, *, facets: Sequence[str] = (), numbers: Sequence[str] = (), bins: int = 24
    ) -> Summary:
        """Count the responses that the tree selects, in one pass over them.

        facets: fields of which the most frequent values are counted. numbers: fields whose range is cut into equal
        parts, each with its count; one without values has none.
        """
        condition, values = compile_sql(tree)
        columns = ", ".join(map(quote, dict.fromkeys([*facets, *numbers]))) or "1"
        parts = ["select '', null, null, null, count(*) from hits"]
        parts += [
            f"(select {name!r}, cast({quote(name)} as VARCHAR), null, null, count(*) from hits group by 2 "
            f"order by 5 desc, 2 limit {MAX_VALUES})"
            for name in facets
        ]
        parts += [_count_bins(name, bins) for name in numbers]
        sql = (
            f"with hits as materialized (select {columns} from rollouts where {condition}) {' union all '.join(parts)}"
        )
        out = Summary(0, {name: [] for name in facets}, {name: [] for name in numbers})
        for name, value, low, high, count in self._all(sql, values):
            if not name:
                out = out._replace(total=count)
            elif low is None:
                out.facets[name].append((value == "true" if KINDS[name] == "flag" else value, count))
            else:
                out.bins[name] = out.bins[name] or _empty_bins(low, high, bins)
                start, stop, _ = out.bins[name][int(value)]
                out.bins[name][int(value)] = (start, stop, count)
        for counted in out.facets.values():
            counted.sort(key=lambda each: (-each[1], str(each[0])))
        return out


def _count_bins(name: str, bins: int) -> str:
    """Return the part of a statement that counts the values of a number in equal parts of its range."""
    column = quote(name)
    place = f"least(floor(({column} - low) / case when high > low then (high - low) / {bins} else 1 end), {bins - 1})"
    ends = f"(select min({column}) as low, max({column}) as high from hits)"
    return (
        f"select {name!r}, cast(cast({place} as INTEGER) as VARCHAR), low, high, count(*) from hits, {ends} "
        f"where {column} is not null group by all"
    )


def _empty_bins(low: float, high: float, bins: int) -> list[Bin]:
    width = (high - low) / bins or 1.0
    return [(low + place * width, low + (place + 1) * width, 0) for place in range(bins)]


def _replace_other(tree: Tree, by: Mapping[str, Tree]) -> Tree:
    return filters.map_leaves(tree, lambda test: by[test.grader] if isinstance(test, Other) else test)


def compile_sql(tree: Tree) -> Sql:
    """Return a condition and the values of its question marks. Percentiles and `other` are resolved before."""
    match tree:
        case Everything():
            return "true", []
        case filters.All(items):
            return _join([compile_sql(item) for item in items], " and ", "true")
        case Either(items):
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
        case Within(field, members):
            column, bound = column_of(field)
            chosen = f"coalesce({column} in (select unnest(?)), false)"  # a join, so that many members cost little
            return (chosen, [*bound, list(members)]) if members else ("false", [])
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
