"""The contract of all weight stores, the one in memory included."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from fake_weight_store import FakeWeightStore
from tiny_models import some_prompts, tiny_policy
from torch import Tensor

from ansatz.errors import ModelError, RolloutError, StorageError
from ansatz.models.weights import LiveWeights, load_trained
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.rollout.weight_store import FileWeightStore, WeightStore, fingerprint


@dataclass(frozen=True)
class Numbers:
    """A source of two tensors, one of them in bfloat16."""

    version: int

    def tensors(self) -> dict[str, Tensor]:
        return self.trained()

    def trained(self) -> dict[str, Tensor]:
        number = float(self.version)
        return {"a": torch.full((3, 5), number), "b": torch.tensor(number / 3, dtype=torch.bfloat16)}


STORES: dict[str, Callable[[Path], WeightStore]] = {
    "files": lambda folder: FileWeightStore(folder),
    "many small files": lambda folder: FileWeightStore(folder, max_shard_bytes=16),
    "memory": lambda folder: FakeWeightStore(),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> WeightStore:
    return STORES[request.param](tmp_path / "weights")


def test_a_version_is_loaded_as_it_was_published(store: WeightStore) -> None:
    store.publish(7, Numbers(13))
    stored = store.load(7)
    assert stored.policy_version == 13
    assert stored.fingerprint == store.fingerprint(7) == fingerprint(Numbers(13).trained())
    assert {name: value.dtype for name, value in stored.tensors.items()} == {"a": torch.float32, "b": torch.bfloat16}
    for name, value in Numbers(13).trained().items():
        assert torch.equal(stored.tensors[name], value)


def test_only_the_user_can_read_published_weights(tmp_path: Path) -> None:
    FileWeightStore(tmp_path / "weights").publish(1, Numbers(1))
    assert (tmp_path / "weights").stat().st_mode & 0o777 == 0o700


def test_what_is_published_does_not_change_with_the_source(store: WeightStore) -> None:
    value = torch.zeros(3)

    class Source(Numbers):
        def trained(self) -> dict[str, Tensor]:
            return {"a": value}

    store.publish(0, Source(0))
    value += 1
    assert torch.equal(store.load(0).tensors["a"], torch.zeros(3))


def test_pinned_versions_and_the_newest_stay(store: WeightStore) -> None:
    for version in range(3):
        store.publish(version, Numbers(version))
        if version < 2:
            store.pin(version)
    store.pin(0)
    assert store.versions() == (0, 1, 2)
    store.release(1)
    assert store.versions() == (0, 2)
    store.release(0)
    assert store.versions() == (0, 2)
    store.release(0)
    assert store.versions() == (2,)
    store.publish(3, Numbers(3))
    assert store.versions() == (3,)
    with pytest.raises(ValueError, match="not pinned"):
        store.release(3)


def test_a_version_can_be_published_again_after_a_rollback(store: WeightStore) -> None:
    first, second = (store.publish(4, Numbers(number)) for number in (4, 5))
    assert first != second == store.fingerprint(4)
    assert store.load(4).policy_version == 5


def test_a_version_that_is_not_there_is_named(store: WeightStore) -> None:
    store.publish(2, Numbers(2))
    with pytest.raises(RolloutError, match=r"version 1 .* has \[2\]"):
        store.load(1)


def test_a_checkpoint_holds_the_versions_that_it_needs(store: WeightStore, tmp_path: Path) -> None:
    for version in (2, 3, 4):
        store.publish(version, Numbers(version))
        store.pin(version)
    store.save(tmp_path / "saved", (3, 4))
    store.publish(5, Numbers(5))
    store.pin(5)
    store.restore(tmp_path / "saved")
    assert store.versions() == (3, 4)
    for version in (3, 4):
        assert store.load(version).fingerprint == fingerprint(Numbers(version).trained())
    store.close()
    assert store.versions() == ()
    other = FileWeightStore(tmp_path / "other")
    other.restore(tmp_path / "saved")
    assert other.versions() == (3, 4)  # closing a store does not damage a checkpoint that shares its files


def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    store = FileWeightStore(tmp_path)
    store.publish(1, Numbers(1))
    file = store.path(1) / "model-00001.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(RolloutError, match="damaged"):
        store.load(1)


def test_a_copy_of_the_policy_samples_the_same_bits_with_stored_weights(store: WeightStore) -> None:
    trained, copy = tiny_policy(), tiny_policy()
    sampling = Sampling(num_samples=4, max_response_tokens=12, seed=1)
    with torch.no_grad():
        for parameter in trained.model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    store.publish(1, LiveWeights(policy=trained, version=1))
    expected = NativeSampler(trained, max_concurrent=32).generate(some_prompts(4), sampling)
    sampler = NativeSampler(copy, max_concurrent=32)
    assert sampler.generate(some_prompts(4), sampling) != expected
    load_trained(copy, store.load(1).tensors)
    assert sampler.generate(some_prompts(4), sampling) == expected


def test_weights_of_another_model_are_refused() -> None:
    with pytest.raises(ModelError, match="not those of this model: a has shape"):
        load_trained(tiny_policy(), Numbers(0).trained())


def test_a_full_disk_leaves_the_versions_as_they_were(tmp_path: Path) -> None:
    store = FileWeightStore(tmp_path / "weights")
    store.publish(1, Numbers(1))
    with full_disk(), pytest.raises(StorageError, match=r"version-000002 could not be written .* are needed, .* free"):
        store.publish(2, Numbers(2))
    with full_disk(), pytest.raises(StorageError):
        store.publish(1, Numbers(3))
    assert store.versions() == (1,)
    assert store.load(1).policy_version == 1
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["version-000001"]


@contextmanager
def full_disk() -> Iterator[None]:
    """A limit on the size of a file stands for a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
