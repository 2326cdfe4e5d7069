"""Rows that a stage learns from as they are: rows of a file, or of a data set of the hub.

The stages `preference` and `reward_model` read pairs and labelled responses from them (`data.pair_files`,
`data.label_files`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ansatz.data.files import source_name
from ansatz.data.formats import open_rows
from ansatz.data.hub import dataset_name, read_rows
from ansatz.data.rows import Row
from ansatz.errors import ConfigError
from ansatz.registry import bind, suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRows:
    """The rows of a file.

    path: the file (jsonl, json, csv, tsv, parquet).
    limit: rows to read, from the first on; null: all of them.
    min_gap: of scored responses, pairs whose scores differ by less are left out.
    """

    path: str
    limit: int | None = None
    min_gap: float = 0.0

    def __post_init__(self) -> None:
        _check_limit(self.limit)

    @property
    def place(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """Return the `source` of the problems that are made of the rows."""
        return source_name(Path(self.path))

    def rows(self) -> Iterator[Row]:
        return islice(open_rows(self.path), self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubRows:
    """The rows of a data set; needs the extra `datasets`.

    dataset: a name on the hub, or a folder that `save_to_disk` wrote or that contains data files.
    split: the data set's split.
    config: the hub's name for a part of the data set.
    revision: a commit, so that a run can be repeated.
    limit: rows to read, from the first on; null: all of them.
    min_gap: of scored responses, pairs whose scores differ by less are left out.
    """

    dataset: str
    split: str = "train"
    config: str | None = None
    revision: str | None = None
    limit: int | None = None
    min_gap: float = 0.0

    def __post_init__(self) -> None:
        _check_limit(self.limit)

    @property
    def place(self) -> str:
        return f"{self.dataset} ({self.split})"

    @property
    def name(self) -> str:
        """Return the `source` of the problems that are made of the rows."""
        return dataset_name(self.dataset)

    def rows(self) -> Iterator[Row]:
        rows = read_rows(self.dataset, split=self.split, config=self.config, revision=self.revision, setting="split")
        return islice(rows, self.limit)


GivenRows = FileRows | HubRows
GIVEN: dict[str, type[GivenRows]] = {"file": FileRows, "hub": HubRows}
"""By the `source` that a recipe names."""
_PLACES = {"file": ("path", "file"), "hub": ("dataset", "data set")}
"""By source: the setting that says where the rows are, and a word for that."""


def bind_given(settings: Mapping[str, Any], *, key: str) -> GivenRows:
    """Return the rows of {source: file, path: ...} or {source: hub, dataset: ...}. Reads none of them.

    key: of the recipe, for errors. Raise ConfigError for an unknown source or setting, and for one that is missing.
    """
    given = dict(settings)
    source = str(given.pop("source", None))
    if source not in GIVEN:
        raise ConfigError(f"{key}.source = {settings.get('source')!r} is unknown.{suggest(source, GIVEN)}")
    setting, place = _PLACES[source]
    if given.get(setting) is None:
        raise ConfigError(f"{key}.{setting} is missing. Give the {place} that contains the rows.")
    build: Any = bind(GIVEN[source], given, what=f"{key} with source {source}")
    try:
        return build()
    except ConfigError as error:
        raise ConfigError(f"{key}.{error}") from error


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise ConfigError(f"limit = {limit}: expected 1 or more. Remove it to read all rows.")
