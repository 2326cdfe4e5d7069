"""FakeWeightStore: the fake of the seam of stored weights. It keeps them in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ansatz.links import make_folder
from ansatz.models.weights import WeightSource, fingerprint
from ansatz.rollout.weight_store import FileWeightStore, StoredWeights, _not_there, _Pins


class FakeWeightStore(_Pins):
    """Versions in memory, for tests and for a run in one process."""

    def __init__(self) -> None:
        super().__init__()
        self._stored: dict[int, StoredWeights] = {}

    def publish(self, version: int, source: WeightSource) -> str:
        tensors = {name: value.detach().to("cpu", copy=True) for name, value in source.trained().items()}
        self._stored[version] = StoredWeights(
            policy_version=source.version, fingerprint=fingerprint(tensors), tensors=tensors
        )
        self._drop_unused()
        return self._stored[version].fingerprint

    def load(self, version: int, *, verify: bool = True) -> StoredWeights:
        if version not in self._stored:
            raise _not_there(version, self.versions())
        return self._stored[version]

    def fingerprint(self, version: int) -> str:
        return self.load(version).fingerprint

    def versions(self) -> tuple[int, ...]:
        return tuple(sorted(self._stored))

    def save(self, folder: Path, versions: Iterable[int]) -> None:
        files = FileWeightStore(folder)
        make_folder(folder, private=True)
        for version in versions:
            files.pin(version)
            files.publish(version, _Stored(self.load(version)))

    def restore(self, folder: Path) -> None:
        files = FileWeightStore(folder)
        self.close()
        self._stored = {version: files.load(version) for version in files.versions()}

    def close(self) -> None:
        self._pins.clear()
        self._stored.clear()

    def _drop(self, version: int) -> None:
        del self._stored[version]


@dataclass(frozen=True, slots=True)
class _Stored:
    """Stored weights as a source that can be published again."""

    stored: StoredWeights

    @property
    def version(self) -> int:
        return self.stored.policy_version

    def tensors(self) -> Mapping[str, Tensor]:
        return self.stored.tensors

    def trained(self) -> Mapping[str, Tensor]:
        return self.stored.tensors
