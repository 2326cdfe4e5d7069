"""Problems of a data set on the Hugging Face hub, or of one saved in a folder. Needs the extra `datasets`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ansatz.data.files import missing_extra
from ansatz.data.row_problems import row_source
from ansatz.data.rows import Row, json_value, row_of
from ansatz.errors import DataError, NotStoredError
from ansatz.hub import downloads_allowed


def _open_hub(
    *, split: str, dataset: str, config: str | None = None, revision: str | None = None, hub_split: str | None = None
) -> Iterable[tuple[Iterable[Row], str]]:
    """Return the data set's problems in order.

    dataset: a name on the hub ("openai/gsm8k"), or a folder that `save_to_disk` wrote or that contains data files.
    config: the hub's name for a part of the data set.
    revision: a commit, so that a run can be repeated.
    hub_split: the name of the data set's split; `split` by default.

    Raise DataError if the data set, its split or a row is wrong; raise ConfigError for a setting outside its range;
    Raise MissingExtraError without datasets.
    """
    rows = read_rows(dataset, config=config, revision=revision, split=hub_split or split)
    return [(rows, dataset_name(dataset))]


hub = row_source("hub", _open_hub)


def dataset_name(dataset: str) -> str:
    """Return the `source` of the problems of a data set: its name without the owner, or its folder's name."""
    return dataset.rstrip("/").rpartition("/")[2]


def read_rows(
    name: str, *, split: str, config: str | None = None, revision: str | None = None, setting: str = "hub_split"
) -> Iterator[Row]:
    """Yield the rows of a data set, in order. setting: the one that names the split, for errors.

    Raise the errors of the source `hub`.
    """
    for number, value in enumerate(_load(name, split, config, revision, setting), start=1):
        yield row_of(f"{name} ({split})", number, json_value(value), unit="row")


def _load(name: str, split: str, config: str | None, revision: str | None, setting: str) -> Any:
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        missing_extra(f"{name} is a data set on the hub", "datasets", "datasets", error)
    saved = any((Path(name) / mark).is_file() for mark in ("dataset_dict.json", "state.json"))
    try:
        if not saved:
            return _from_hub_or_cache(datasets, name, split, config, revision)
        data: Any = datasets.load_from_disk(name)
    except NotStoredError:
        raise
    except Exception as error:  # errors of the network, the disk, a loading script, or an unknown split
        raise DataError(
            f"data set {name!r}, split {split!r}: {type(error).__name__}: {error}. "
            f"Check dataset, config, revision and {setting}."
        ) from error
    if not isinstance(data, Mapping):
        return data
    if split not in data:
        raise DataError(
            f"data set {name!r} has no split {split!r}; its splits are {', '.join(map(repr, data))}. Set {setting}."
        )
    return data[split]


def _from_hub_or_cache(datasets: Any, name: str, split: str, config: str | None, revision: str | None) -> Any:
    """Return the data set of the hub. Without a network, the package only knows data sets that it has prepared before;
    those that `hf download --repo-type dataset` put into the hub's cache are read from there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    refusal: Exception = NotStoredError(f"the data set {name} is not on this machine; a run downloads it.")
    if downloads_allowed() or Path(name).exists():
        try:
            return datasets.load_dataset(name, config, split=split, revision=revision)
        except ConnectionError as error:
            refusal = error
    try:
        folder = snapshot_download(name, repo_type="dataset", revision=revision, local_files_only=True)
    except (LocalEntryNotFoundError, ValueError):  # not in the cache either, or a name that the hub cannot have
        raise refusal from None
    return datasets.load_dataset(folder, config, split=split)
