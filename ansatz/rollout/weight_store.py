"""The weights that samplers need, by version: published by the trainer, loaded by workers.

A version is the step after which the weights were published. Open tickets pin the versions that they are sampled with;
other old versions are dropped. The newest version always stays.

    weights/version-000012/     version.json (version, policy version, fingerprint)
                                model-00001.safetensors, model-00002.safetensors, ...
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ansatz.errors import RolloutError, StorageError
from ansatz.files import not_written, remedy, storage_errors
from ansatz.json_text import read_object
from ansatz.links import copy_tree, list_folder, make_folder, make_new_folder, open_file, remove, rename
from ansatz.models.weights import SelfStoringWeights, WeightSource, fingerprint, store_tensors

META_FILE = "version.json"
MAX_SHARD_BYTES = 5_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """One version of the trained parameters, by their names in the policy's module.

    policy_version: number of optimizer steps. Every token sampled with these weights gets it.
    fingerprint: of the tensors; see `fingerprint`.
    """

    policy_version: int
    fingerprint: str
    tensors: Mapping[str, Tensor]


class WeightStore(Protocol):
    def publish(self, version: int, source: WeightSource) -> str:
        """Store the current trained weights, and return their fingerprint.

        A version that exists is replaced. Raise StorageError if the disk is full; nothing has then changed.
        """
        ...

    def load(self, version: int, *, verify: bool = True) -> StoredWeights:
        """Load a version. Raise RolloutError if it is not there or is damaged.

        verify: compare the bits with the fingerprint, which for large models takes longer than to read them.
        """
        ...

    def fingerprint(self, version: int) -> str:
        """Return the fingerprint of a version, without loading it. Raise RolloutError if the version is not there."""
        ...

    def versions(self) -> tuple[int, ...]:
        """List all versions that are there, ascending."""
        ...

    def pin(self, version: int) -> None:
        """Keep the version until it has been released as often as it was pinned."""
        ...

    def release(self, version: int) -> None:
        """Undo one `pin`. A version without pins is dropped once it is not the newest."""
        ...

    def save(self, folder: Path, versions: Iterable[int]) -> None:
        """Put these versions into the folder, which must not exist: a part of a checkpoint."""
        ...

    def restore(self, folder: Path) -> None:
        """Replace all versions by the ones in a folder that `save` wrote, without pins."""
        ...

    def close(self) -> None:
        """Drop every version."""
        ...


class _Pins(ABC):
    """Counts pins; the part that both stores share."""

    def __init__(self) -> None:
        self._pins = Counter[int]()

    def pin(self, version: int) -> None:
        self._pins[version] += 1

    def release(self, version: int) -> None:
        if self._pins[version] <= 0:
            raise ValueError(f"version {version} of the weights is not pinned, so it cannot be released")
        self._pins[version] -= 1
        self._drop_unused()

    @abstractmethod
    def versions(self) -> tuple[int, ...]: ...

    @abstractmethod
    def _drop(self, version: int) -> None: ...

    def _drop_unused(self) -> None:
        for version in self.versions()[:-1]:
            if not self._pins[version]:
                self._drop(version)


class FileWeightStore(_Pins):
    """Versions as folders of safetensors files. Each is written as a draft and then renamed, so that a worker never
    sees half of one. Only one process publishes; others load.

    folder: made when it is needed. max_shard_bytes: of one file.
    Example: `store.publish(3, trainer.weights())` and, in a worker, `store.load(3).tensors`.
    """

    def __init__(self, folder: Path, *, max_shard_bytes: int = MAX_SHARD_BYTES) -> None:
        super().__init__()
        self.folder, self._max_shard_bytes = folder, max_shard_bytes

    def path(self, version: int) -> Path:
        """Return the folder of a version."""
        return self.folder / f"version-{version:06d}"

    def publish(self, version: int, source: WeightSource) -> str:
        draft, final = self._draft(version), self.path(version)
        try:
            make_folder(self.folder, private=True)
            make_new_folder(draft)
            with storage_errors(draft):
                stored = self._store(source, draft)
            meta = {"version": version, "policy_version": source.version, "fingerprint": stored}
            with open_file(draft / META_FILE, "x", encoding="utf-8") as file:
                json.dump(meta, file)
        except (OSError, SafetensorError) as error:  # a failure that has no number
            remove(draft, ignore_errors=True)
            cause = error if isinstance(error, OSError) else OSError(str(error))
            raise StorageError(
                f"{not_written(final, cause, needed=_num_bytes(source))} Samplers need these weights, so the run ends. "
                f"The last checkpoint is intact. {remedy(cause)}, then continue with --resume."
            ) from error
        self._drop(version)
        rename(draft, final)
        self._drop_unused()
        return stored

    def _store(self, source: WeightSource, folder: Path) -> str:
        if isinstance(source, SelfStoringWeights):
            return source.store(folder.absolute(), max_shard_bytes=self._max_shard_bytes)
        return store_tensors(sorted(source.trained().items()), folder, max_shard_bytes=self._max_shard_bytes)

    def load(self, version: int, *, verify: bool = True) -> StoredWeights:
        meta = self._meta(version)
        try:
            files = list_folder(self.path(version), "*.safetensors")
            tensors = {name: value for file in files for name, value in load_file(file).items()}
        except (OSError, SafetensorError) as error:
            raise RolloutError(f"the weights in {self.path(version)} cannot be read: {error}.") from error
        if verify and fingerprint(tensors) != meta["fingerprint"]:
            raise RolloutError(
                f"version {version} of the weights in {self.folder} is damaged: its fingerprint is not "
                f"{meta['fingerprint']}, as it was when the version was published. Resume the run."
            )
        return StoredWeights(policy_version=meta["policy_version"], fingerprint=meta["fingerprint"], tensors=tensors)

    def fingerprint(self, version: int) -> str:
        return self._meta(version)["fingerprint"]

    def versions(self) -> tuple[int, ...]:
        return _versions_in(self.folder)

    def save(self, folder: Path, versions: Iterable[int]) -> None:
        """Save by hard links where the file system allows them, and by copies elsewhere: nothing changes a published
        file."""
        make_folder(folder, private=True)
        for version in versions:
            self._meta(version)
            copy_tree(self.path(version), folder / self.path(version).name, hard_links=True)

    def restore(self, folder: Path) -> None:
        self.close()
        make_folder(self.folder, private=True)
        for version in _versions_in(folder):
            source = folder / self.path(version).name
            draft = self._draft(version)
            remove(draft)
            copy_tree(source, draft, hard_links=True)
            rename(draft, self.path(version))

    def close(self) -> None:
        self._pins.clear()
        remove(self.folder, ignore_errors=True)

    def _draft(self, version: int) -> Path:
        """Return the folder where a version is written. A killed process may have left something there."""
        return self.folder / f".version-{version:06d}.draft"

    def _drop(self, version: int) -> None:
        if self.path(version).exists():
            doomed = self.folder / f".version-{version:06d}.old"  # a half-removed version must not look whole
            remove(doomed, ignore_errors=True)
            remove(rename(self.path(version), doomed))

    def _meta(self, version: int) -> dict[str, Any]:
        file = self.path(version) / META_FILE
        if not file.is_file():
            raise _not_there(version, self.versions())
        meta = read_object(file, error=RolloutError, advice="Resume the run.")
        if not isinstance(meta.get("fingerprint"), str) or not isinstance(meta.get("policy_version"), int):
            raise RolloutError(f"{file} was changed after it was written: it holds {meta!r:.120}. Resume the run.")
        return meta


def _num_bytes(source: WeightSource) -> int:
    if isinstance(source, SelfStoringWeights):
        return source.num_bytes
    return sum(value.nbytes for value in source.trained().values())


def _versions_in(folder: Path) -> tuple[int, ...]:
    return tuple(sorted(int(path.name.removeprefix("version-")) for path in list_folder(folder, "version-*")))


def _not_there(version: int, versions: tuple[int, ...]) -> RolloutError:
    return RolloutError(
        f"version {version} of the weights is not in the store, which has {list(versions) or 'none'}. A ticket pins "
        "the version that it needs."
    )
