"""Problems of a data set of the Hugging Face hub, by name, or of one saved in a folder. Needs the extra `datasets`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansatz.data.files import missing_extra
from ansatz.data.rows import Reading, Row, plain, problems_of, row_of
from ansatz.errors import DataError
from ansatz.types import Problem


def hub(
    *,
    split: str,
    dataset: str,
    config: str | None = None,
    revision: str | None = None,
    hub_split: str | None = None,
    question_key: str | None = None,
    answer_key: str | None = None,
    answer_from: str = "auto",
    id_key: str | None = None,
    level_key: str | None = None,
    solution_key: str | None = None,
    limit: int | None = None,
) -> Iterator[Problem]:
    """The data set's problems in order.

    dataset: a name on the hub ("openai/gsm8k"), or a folder that `save_to_disk` wrote or that holds data files. config:
    the hub's name for a part of it. revision: a commit, so that a run can be repeated. hub_split: the data set's own
    split, as `split` unless given. The other settings are those of `jsonl`.

    Raises DataError where the data set, its split or a row is wrong; ConfigError for a setting out of its range;
    MissingExtraError without datasets.
    """
    reading = Reading(
        question=question_key,
        answer=answer_key,
        answer_from=answer_from,
        id=id_key,
        level=level_key,
        solution=solution_key,
        limit=limit,
    )
    rows = read_rows(dataset, config=config, revision=revision, split=hub_split or split)
    return problems_of(rows, reading, split=split, source=dataset.rstrip("/").rpartition("/")[2])


def read_rows(name: str, *, split: str, config: str | None = None, revision: str | None = None) -> Iterator[Row]:
    for number, value in enumerate(_loaded(name, split, config, revision), start=1):
        yield row_of(f"{name} ({split})", number, plain(value), unit="row")


def _loaded(name: str, split: str, config: str | None, revision: str | None) -> Any:
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        missing_extra(f"{name} is a data set of the hub", "datasets", "datasets", error)
    saved = any((Path(name) / mark).is_file() for mark in ("dataset_dict.json", "state.json"))
    try:
        if not saved:
            return datasets.load_dataset(name, config, split=split, revision=revision)
        found: Any = datasets.load_from_disk(name)
    except Exception as error:  # of a network, a disk, a script, or an unknown split
        raise DataError(
            f"data set {name!r}, split {split!r}: {type(error).__name__}: {error}. "
            "Check dataset, config, revision and hub_split."
        ) from error
    if not isinstance(found, Mapping):
        return found
    if split not in found:
        raise DataError(
            f"data set {name!r} has no split {split!r}, it has {', '.join(map(repr, found))}. Set hub_split."
        )
    return found[split]
