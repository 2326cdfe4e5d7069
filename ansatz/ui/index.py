"""The index of a run's responses: a DuckDB table outside the run, derived from its files and thrown away at will.

A file of responses is read again when its inode, size or time of change differs. Only SQL that is made here and in
`ui.sql` runs, with bound values, and the data base can read no files but the index's own drafts and the run's files.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, groupby, pairwise, product
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from ansatz.errors import ConfigError, DataError
from ansatz.links import list_folder
from ansatz.track import filters
from ansatz.track.filters import All, Either, Other, Query, Tree, Within
from ansatz.track.rollout_table import KINDS, TRAIN, RolloutFile, find_rollout_files, read_questions, read_rollouts
from ansatz.track.step_files import groups_path
from ansatz.ui.read_files import NESTED, can_read, insert_flat, insert_problems, json_reader
from ansatz.ui.sql import column_of, compile_sql, count_sql, order_by, quote

VERSION = 7
MAX_GRADED = 20_000
"""Responses that `other` grades at most."""

_TYPES = {"number": "DOUBLE", "text": "VARCHAR", "flag": "BOOLEAN"}
_COLUMNS = {name: _TYPES[kind] for name, kind in KINDS.items() if kind in _TYPES}
_COLUMNS |= NESTED
_FILES = ", ".join(f"{name} VARCHAR" for name in ("file", "state", "path", "groups", "stage", "split", "notice"))
_FILES += ", step DOUBLE, written DOUBLE"
_BATCH_BYTES = 1 << 26
_ROWS_TOGETHER = 8192
"""Rows that are compressed together, each such group by one thread. DuckDB's own 122,880 would be one thread's work."""
_MEMORY_MB, _MOST_MEMORY_MB = 192, 6144
_SETTINGS = {
    "allowed_configs": ["memory_limit"],  # see `_grow`
    "threads": min(4, os.cpu_count() or 1),
    "max_vacuum_tasks": 0,  # which would compress most rows a second time
    "preserve_insertion_order": False,
    "disabled_optimizers": "join_order,build_side_probe_side",  # which would hold all rows in memory instead of groups
}


Bin = tuple[float, float, int]
"""low, high, and how many values are between them."""


class Summary(NamedTuple):
    """A summary of the responses that a filter selects. facets: (value, count) by field, the most frequent first. bins:
    by field."""

    total: int
    facets: dict[str, list[tuple[Any, int]]]
    bins: dict[str, list[Bin]]


Connection = duckdb.DuckDBPyConnection


class IndexedFile(NamedTuple):
    """A file as it was read. name: its path within the run. state: its inode, size and time of change."""

    name: str
    state: str
    written: float
    num_bytes: int
    file: RolloutFile


class RolloutIndex:
    """The responses of one folder. Its methods can be called from several threads.

    folder: where indices are kept, by default in the user's cache. waiting: files that are still to be read.
    """

    def __init__(self, run: Path, *, folder: Path | None = None) -> None:
        self.run = run
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._folder = folder or caches / "ansatz" / "index"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = hashlib.sha256(f"{VERSION}\0{run.resolve()}".encode()).hexdigest()[:24]
        self._draft = self._folder / f"{name}-{os.getpid()}.jsonl"
        self._lock = threading.Lock()
        self._reading = threading.Thread()
        self._checked = 0.0
        self._questions: tuple[str, dict[str, dict[str, Any]]] = "", {}
        self.waiting, self._memory_mb = 0, _MEMORY_MB
        self._db = self._open(self._folder / f"{name}.duckdb")
        columns = ", ".join(f"{quote(name)} {kind}" for name, kind in _COLUMNS.items())
        self._db.execute(f"create table if not exists rollouts (file VARCHAR, written DOUBLE, {columns})")
        self._db.execute(f"create table if not exists files ({_FILES})")

    def _open(self, path: Path) -> Connection:
        """Open the stored index; one in memory if another viewer holds it or it is damaged."""
        db, attach = duckdb.connect(), f"attach '{{}}' as stored (row_group_size {_ROWS_TOGETHER})"
        more = {"memory_limit": f"{_MEMORY_MB}MiB", "temp_directory": str(self._draft.with_suffix(".tmp"))}
        for key, value in {**_SETTINGS, **more}.items():
            with suppress(duckdb.CatalogException):  # an older DuckDB lacks the setting
                db.execute(f"set global {key} = ?", [value])
        try:
            db.execute(attach.format(str(path).replace("'", "''")))
        except duckdb.Error:
            db.execute(attach.format(":memory:"))
        db.execute("set allowed_directories = ?", [[str(self.run.resolve()), str(self._folder)]])
        db.execute("use stored; set enable_external_access = false; set lock_configuration = true")
        return db

    def _cursor(self) -> Connection:
        """Return a connection of its own to the index."""
        return self._db.cursor().execute("use stored")

    def _grow(self, error: duckdb.Error) -> bool:
        """Allow twice the memory if it was not enough, as for texts of 100 kB. Return whether to try again."""
        if "memory_limit" in str(error) and self._memory_mb < _MOST_MEMORY_MB:  # which the advice of the error names
            self._memory_mb *= 2
            with suppress(duckdb.InvalidInputException):  # an older DuckDB cannot
                self._db.cursor().execute(f"set global memory_limit = '{self._memory_mb}MiB'")
                return True
        return False

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
        files = list_folder(self.run / "problems", "*.jsonl")
        now = " ".join(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files)
        if self._questions[0] != now:
            self._questions = now, read_questions(self.run)
        return self._questions[1]

    def refresh(self, *, every_s: float = 1.0, wait_s: float = 5.0) -> None:
        """Read files that have changed since the last call, unless that was less than `every_s` ago. Reading that takes
        longer than `wait_s` goes on in the background, the newest files first, and later calls do not wait for it."""
        with self._lock:
            is_recent = self._checked and time.monotonic() - self._checked < every_s
            if not is_recent and not self._reading.is_alive():
                missing = self._find_missing()
                self._checked, self.waiting = time.monotonic(), len(missing)
                if missing:
                    problems = self.problems  # here, so that an error is the page's
                    self._reading = threading.Thread(target=self._read_all, args=(missing, problems), daemon=True)
                    self._reading.start()
        if self._reading.is_alive():
            self._reading.join(max(0.0, self._checked + wait_s - time.monotonic()))

    def _find_missing(self) -> list[IndexedFile]:
        """Return new and changed files, the newest first. Drop the rows of those, and of files that are gone."""
        now = {file.name: file for file in map(self._look_at, find_rollout_files(self.run)) if file is not None}
        known = dict(self._db.execute("select file, state from files").fetchall())
        gone = [name for name, state in known.items() if name not in now or now[name].state != state]
        for table in ("rollouts", "files") if gone else ():
            self._db.execute(f"delete from {table} where list_contains(?, file)", [gone])
        return [file for file in reversed(now.values()) if known.get(file.name) != file.state]

    def _look_at(self, file: RolloutFile) -> IndexedFile | None:
        with suppress(FileNotFoundError):  # removed by a rollback
            stat = file.path.stat()
            state = f"{stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
            return IndexedFile(str(file.path).removeprefix(f"{self.run}/"), state, stat.st_mtime, stat.st_size, file)
        return None

    def _read_all(self, missing: Sequence[IndexedFile], problems: Mapping[str, dict[str, Any]]) -> None:
        """Read files in a thread of its own, in batches of the same kind."""
        db = self._cursor()
        insert_problems(db, problems)
        totals = accumulate(each.num_bytes for each in missing)
        kinds = ((can_read(each.file), each.file.split == TRAIN) for each in missing)
        parts = zip(kinds, (total // _BATCH_BYTES for total in totals), strict=True)
        for ((is_flat, _), _), pairs in groupby(zip(parts, missing, strict=True), key=itemgetter(0)):
            batch = [each for _, each in pairs]
            for file in self._insert_flat(db, batch) if is_flat else batch:
                self._insert_by_row(db, file, problems)
            self.waiting -= len(batch)

    def _insert(self, db: Connection, batch: Sequence[IndexedFile], insert: Callable[[], None]) -> str:
        """Insert files and their rows, all or nothing. Return why DuckDB cannot do so; empty if it can."""
        db.begin()
        try:
            self._name_files(db, batch)
            insert()
            db.commit()
        except duckdb.Error as error:
            with suppress(duckdb.TransactionException):  # a commit that fails has ended the transaction
                db.rollback()
            if self._grow(error):
                return self._insert(db, batch, insert)
            reason = str(error).splitlines()[0].replace(f' in file "{self._draft}",', "")
            return f"{batch[0].file.path} cannot be indexed ({reason})."
        return ""

    def _insert_flat(self, db: Connection, batch: list[IndexedFile]) -> list[IndexedFile]:
        """Insert flat files. Return those that DuckDB cannot read."""
        if not self._insert(db, batch, lambda: insert_flat(db, [each.file for each in batch])):
            return []
        return batch if len(batch) == 1 else [odd for each in batch for odd in self._insert_flat(db, [each])]

    def _insert_by_row(self, db: Connection, of: IndexedFile, problems: Mapping[str, dict[str, Any]]) -> None:
        """Insert a file that only Python can read. Its error becomes a notice."""
        try:
            rows = [{"file": of.name, "written": of.written, **row} for row in read_rollouts(of.file, problems)]
            notice = self._insert(db, [of], lambda: self.insert_rows(db, rows))
        except DataError as error:
            notice = str(error)
        if notice:
            self._name_files(db, [of], notice=notice)

    def _name_files(self, db: Connection, batch: Sequence[IndexedFile], notice: str = "") -> None:
        rows = [
            (name, state, str(of.path), str(groups_path(of.path)), of.stage, of.split, notice, of.step, written)
            for name, state, written, _, of in batch
        ]
        columns = list(map(list, zip(*rows, strict=True)))
        db.execute(f"insert into files select {', '.join(['unnest(?)'] * len(columns))}", columns)

    def insert_rows(self, db: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows of `rollout_table`, through a file of JSON lines."""
        columns = {"file": "VARCHAR", "written": "DOUBLE", **_COLUMNS}
        lines = [json.dumps({name: row[name] for name in columns}) + "\n" for row in rows]
        self._draft.write_text("".join(lines), encoding="utf-8")
        reader = json_reader(columns, longest=max(map(len, lines), default=0))
        try:
            db.execute(f"insert into rollouts select * exclude (path) from {reader}", [str(self._draft)])
        finally:
            self._draft.unlink(missing_ok=True)

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._cursor().execute(sql, list(values)).fetchall()
        except (duckdb.InvalidInputException, duckdb.OutOfMemoryException) as error:  # such as what RE2 does not have
            if self._grow(error):
                return self._all(sql, values)
            raise ConfigError(f"the filter cannot be applied ({str(error)[:200]}).") from error

    def resolve(self, tree: Tree, grade: Callable[[Mapping[str, Any], str], bool]) -> Tree:
        """Return the tree with a number for each percentile, and a list of responses for each test with `other`."""
        tree = filters.resolve_percentiles(tree, self._find_percentile)
        asked = dict[str, Tree]()
        filters.map_leaves(tree, lambda test: asked.setdefault(test.grader, test) if isinstance(test, Other) else test)
        if not asked:
            return tree
        verdicts = product((All(()), Either(())), repeat=len(asked))
        bounds = Either(tuple(_replace_other(tree, dict(zip(asked, each, strict=True))) for each in verdicts))
        rows = self.select(Query(bounds), limit=MAX_GRADED + 1)
        if len(rows) > MAX_GRADED:
            raise ConfigError(f"other() grades at most {MAX_GRADED} responses. Narrow the filter with and.")
        found = {mode: Within("id", tuple(row["id"] for row in rows if grade(row, mode))) for mode in asked}
        return _replace_other(tree, found)

    def _find_percentile(self, wanted: filters.Percentile) -> float | None:
        column, values = column_of(wanted.field)
        return self._all(f"select quantile_cont({column}, {wanted.percent / 100}) from rollouts", values)[0][0]

    def find_parts(self) -> list[str]:
        """Return the names of the rewards that responses have."""
        return [name for (name,) in self._all("select distinct unnest(map_keys(parts)) from rollouts")]

    def count(self, tree: Tree = All(())) -> int:
        """Return how many responses the tree selects."""
        condition, values = compile_sql(tree)
        return self._all(f"select count(*) from rollouts where {condition}", values)[0][0]

    def select(self, query: Query, *, limit: int, offset: int = 0) -> list[dict[str, Any]]:
        """Return the rows that a query selects."""
        condition, values = compile_sql(query.tree)
        order, more = order_by(query.sort)
        names = ["file", *_COLUMNS]
        chosen = f"select rowid from rollouts where {condition} order by {order} limit ? offset ?"
        sql = f"select {', '.join(map(quote, names))} from rollouts where rowid in ({chosen}) order by {order}"
        rows = [dict(zip(names, row, strict=True)) for row in self._all(sql, [*values, *more, limit, offset, *more])]
        for row in rows:
            row |= {"label": ""} | {name: json.loads(row[name] or "[]") for name in ("observations", "steps")}
            row |= {name: int(value) for name, value in row.items() if isinstance(value, float) and value.is_integer()}
        return rows

    def find_ids(self, tree: Tree) -> list[str]:
        """Return the ids of all responses that the tree selects, in the order of `select`."""
        condition, values = compile_sql(tree)
        order, _ = order_by(())
        return [name for (name,) in self._all(f"select id from rollouts where {condition} order by {order}", values)]

    def summarise(
        self, tree: Tree, *, facets: Sequence[str] = (), numbers: Sequence[str] = (), bins: int = 24
    ) -> Summary:
        """Count the responses that the tree selects.

        facets: fields whose most frequent values are counted. numbers: other fields whose range is cut into equal
        parts, each with its count; one without values has none.
        """
        condition, values = compile_sql(tree)
        out = Summary(0, {name: [] for name in facets}, {name: [] for name in numbers})
        rows = self._all(count_sql(condition, facets, numbers, bins), values)
        rows.sort(key=lambda row: (row[2] is None, -(row[4] or 0), str(row[1])))  # ranges first, then frequent values
        for name, value, low, high, count in rows:
            if not name:
                out = out._replace(total=count)
            elif name in out.facets:
                out.facets[name].append((value == "true" if KINDS[name] == "flag" else value, count))
            elif low is not None:
                part = (high - low) / bins or 1.0
                ends = [low + place * part for place in range(bins)] + [high if high > low else low + bins]
                out.bins[name][:] = [(start, stop, 0) for start, stop in pairwise(ends)]
            elif value is not None:
                place = min(int(value), bins - 1)  # the largest value belongs to the last part
                start, stop, counted = out.bins[name][place]
                out.bins[name][place] = (start, stop, counted + count)
        return out


def _replace_other(tree: Tree, by: Mapping[str, Tree]) -> Tree:
    return filters.map_leaves(tree, lambda test: by[test.grader] if isinstance(test, Other) else test)
