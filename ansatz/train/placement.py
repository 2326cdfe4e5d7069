"""Where a trainer keeps its weights: all of them in one process, or a share in each of several (`train.fsdp`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ansatz.models.load import Policy
from ansatz.train.optim import MasterAdamW
from ansatz.train.optimizers import bind_optimizer
from ansatz.train.ranks import ONE_RANK, Ranks
from ansatz.train.trainer import TRAINING, incomplete

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

EXACT_WEIGHTS = "weights"
"""Name of the float32 weights in TRAINING of a checkpoint whose model folder holds rounded weights."""


class Placement(Protocol):
    """Places models, and reads and writes their tensors. Every rank makes the same calls in the same order.

    Example: `OneProcess().optimizer({"name": "adamw"})(model, torch.bfloat16)`.
    """

    @property
    def ranks(self) -> Ranks: ...

    def optimizer(self, settings: Mapping[str, Any]) -> Callable[[Any, torch.dtype], MasterAdamW]:
        """Return the function of (model, compute type) that builds the recipe's optimizer of a placed model."""
        ...

    def policy(self, policy: Policy, dtype: torch.dtype) -> Policy:
        """Return the policy with its weights in their place, ready to compute in dtype."""
        ...

    def shard(self, module: nn.Module, transformer: nn.Module, dtype: torch.dtype) -> nn.Module | None:
        """Shard the weights of a module, layer by layer of its transformer, and return the root that it runs through.

        Return None if all of its weights stay in this process.
        """
        ...

    def gathered(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yield whole tensors, one after the other, on the rank that writes files (rank 0). Nothing on other ranks.

        Every rank must use up the iterator.
        """
        ...

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return whole tensors on the rank that writes model folders (rank 0). Empty on other ranks."""
        ...

    def write(self, folder: Path, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Write tensors under a name into a folder that all ranks share."""
        ...


class OneProcess:
    """All weights are in this process."""

    ranks: Ranks = ONE_RANK

    def optimizer(self, settings: Mapping[str, Any]) -> Callable[[Any, torch.dtype], MasterAdamW]:
        return bind_optimizer(settings)

    def policy(self, policy: Policy, dtype: torch.dtype) -> Policy:
        return policy

    def shard(self, module: nn.Module, transformer: nn.Module, dtype: torch.dtype) -> None:
        return None

    def gathered(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        return iter(tensors)

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(tensors)

    def write(self, folder: Path, name: str, tensors: Mapping[str, Tensor]) -> None:
        stored = {key: value.contiguous() for key, value in tensors.items()}
        save_file(stored, folder / f"{name}.safetensors")


ONE_PROCESS = OneProcess()


def read_tensors(folder: Path, name: str, *, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Read the tensors that `Placement.write` wrote under a name, whatever the number of ranks was and is.

    like: placed tensors. A stored tensor with the name of one of them, or with a prefix "KIND/" and its name, gets its
    placement if the shapes are equal. Files of a single process are returned as whole tensors, on every rank.
    """
    if (file := folder / f"{name}.safetensors").is_file():
        return load_file(file)
    from torch.distributed.checkpoint.api import CheckpointException  # takes a second, which most runs never need
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        stored = FileSystemReader(folder / name).read_metadata().state_dict_metadata
        tensors = {key: _empty(about, like.get(key, like.get(key.partition("/")[2]))) for key, about in stored.items()}
        load(tensors, checkpoint_id=folder / name, no_dist=not dist.is_initialized())
    except CheckpointException as error:
        raise ValueError(f"{folder / name}: {error}") from error
    return tensors


def _is_sharded(value: Any) -> TypeGuard[DTensor]:
    """Tell whether each rank holds only a share of a tensor, without importing the tensor's type."""
    return hasattr(value, "placements")


def _empty(about: Any, like: Tensor | None) -> Tensor:
    if _is_sharded(like) and like.shape == about.size:
        return torch.zeros_like(like, dtype=about.properties.dtype, requires_grad=False)
    return torch.empty(about.size, dtype=about.properties.dtype)


def placed_like(value: Tensor, like: Tensor | None) -> Tensor:
    """Place a whole tensor, present on every rank, like `like` if `like` is sharded and its shape is the same."""
    if not _is_sharded(like) or _is_sharded(value) or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def has_exact_weights(checkpoint: Path) -> bool:
    folder = checkpoint / TRAINING
    return (folder / f"{EXACT_WEIGHTS}.safetensors").is_file() or (folder / EXACT_WEIGHTS).is_dir()


def use_exact_weights(policy: Policy, folder: Path, *, partly: bool = False) -> None:
    """Give a policy the float32 weights, if it was loaded from a checkpoint with rounded weights in `folder`.

    Without this, a stage would start from other weights than the final weights of the stage before it. partly: the
    model is of another kind than the one in the folder, such as a classifier; weights that fit none of it stay.
    """
    if not has_exact_weights(folder):
        return
    try:
        weights = read_tensors(folder / TRAINING, EXACT_WEIGHTS, like={})
        for name, parameter in policy.model.named_parameters():
            if partly and (name not in weights or weights[name].shape != parameter.shape):
                continue
            parameter.data.copy_(weights[name])
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise incomplete(folder, error) from error
