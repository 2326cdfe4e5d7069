"""A policy whose weights are sharded over ranks: FSDP2 (`torch.distributed.fsdp.fully_shard`).

Each rank keeps its share of the float32 weights, gradients and moments. A forward or backward pass gathers the weights
of one layer at a time, in the type that the model computes in, and sums the gradients in float32.

FSDP2 averages gradients by default. Here they are summed, because token weights refer to the whole batch. Both switches
in `_sum_gradients` are needed: gloo refuses the operation that the first one alone would use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from ansatz.errors import ConfigError, ModelError
from ansatz.models.load import Policy
from ansatz.train.optim import MasterAdamW
from ansatz.train.optimizers import bind_optimizer
from ansatz.train.placement import placed_like
from ansatz.train.process_ranks import ProcessGroupRanks
from ansatz.train.ranks import Ranks

T = TypeVar("T")


class ShardedForward(nn.Module):
    """The root of a sharded model. Code that reads its weights must run in `forward`, which gathers them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., T], *args: Any) -> T:
        return function(*args)


def rank_mesh(device: str, *, size: int, shard_size: int) -> DeviceMesh:
    """Return the mesh of all ranks of the default process group. shard_size: ranks that share one copy of the weights.

    The mesh is a single axis of shards if all ranks share one copy: if shard_size is 0 or does not divide `size`.
    """
    if shard_size == 0 or size % shard_size:
        return init_device_mesh(device, (size,))
    return init_device_mesh(device, (size // shard_size, shard_size), mesh_dim_names=("replicate", "shard"))


def _sum_gradients(root: nn.Module) -> None:
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def _layers(model: Any) -> nn.ModuleList:
    """Return the transformer layers. They are gathered one at a time."""
    depth = model.config.get_text_config().num_hidden_layers
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            return module
    raise ModelError(
        f"{type(model).__name__} has no list of its {depth} layers, so its weights cannot be sharded over ranks. "
        "Train it with one trainer."
    )


class ShardedAdamW(MasterAdamW):
    """AdamW on the shards of this rank. Gradients are summed over ranks in the backward pass of each microbatch."""

    def gradients(self, loss: Tensor) -> list[Tensor | None]:
        loss.backward()
        return []

    def accumulate(self, gradients: Sequence[Tensor | None]) -> None:
        """Do nothing: `gradients` has already added them to the sums."""

    def load(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        masters = self.masters
        super().load(
            {name: placed_like(value, masters.get(name)) for name, value in weights.items()},
            {
                key: placed_like(value, masters.get(key.partition("/")[2]))
                for key, value in self.converted(state).items()
            },
        )


NOT_SHARDED = {
    "adamw_8bit": "Its blocks of 256 values would be blocks of each rank's share, so that another number of ranks "
    "would change the result, and could not load its checkpoints.",
    "adamw_offload": "On ranks the optimizer's weights are the sharded parameters themselves, which FSDP2 gathers on "
    "the device; with n ranks, weights, gradient sums and moments take 1/n of the memory instead.",
}
"""The reason why an optimizer has no sharded form."""


def check_sharded_optimizer(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for a section train.optimizer whose optimizer has no sharded form."""
    bind_optimizer(settings)
    name = settings.get("name", "adamw")
    if name != "adamw":
        raise ConfigError(
            f"train.optimizer.name = {name}: trainer ranks support only adamw, whose state they share. "
            f"{NOT_SHARDED[name]} Set it to adamw, with more ranks if memory is short, or leave cluster.trainers out."
        )


class ShardedPlacement:
    """Weights, gradients and moments are sharded over the ranks of a mesh.

    mesh: with one axis, the ranks shard; with two, the first axis replicates and the second shards. Its ranks are the
    ranks of torch's default process group, and the caller has initialised that group.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        self._mesh = mesh
        self.ranks: Ranks = ProcessGroupRanks()

    def optimizer(self, settings: Mapping[str, Any]) -> Callable[[Any, torch.dtype], MasterAdamW]:
        """Raise ConfigError for an optimizer that has no sharded form."""
        check_sharded_optimizer(settings)
        options = {"betas": (0.9, 0.99), "weight_decay": 0.0, **settings}
        betas, weight_decay = options["betas"], options["weight_decay"]
        # The masters are the sharded float32 parameters, whatever type the layers compute in.
        return lambda model, dtype: ShardedAdamW(
            model, dtype=torch.float32, betas=(betas[0], betas[1]), weight_decay=weight_decay
        )

    def policy(self, policy: Policy, dtype: torch.dtype) -> Policy:
        return dataclasses.replace(policy, sharded=self.shard(policy.model, policy.model, dtype))

    def shard(self, module: nn.Module, transformer: nn.Module, dtype: torch.dtype) -> nn.Module:
        """Shard the weights in place: each layer, then the rest with the root.

        dtype: the type that the module computes in. The weights of one that is trained are kept in float32.
        """
        layers = _layers(transformer)
        precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
        if any(parameter.requires_grad for parameter in module.parameters()):
            for parameter in module.parameters():  # also frozen ones, because all weights of a layer need one type
                parameter.data = parameter.data.float()
        for layer in layers:
            fully_shard(layer, mesh=self._mesh, mp_policy=precision)
        root = ShardedForward(module)
        fully_shard(root, mesh=self._mesh, mp_policy=precision)
        _sum_gradients(root)
        return root

    def gathered(self, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Yield whole tensors on the CPU of rank 0."""
        for name, value in tensors:
            full = value.full_tensor() if isinstance(value, DTensor) else value
            if self.ranks.rank == 0:
                yield name, full.detach().cpu()

    def whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(self.gathered(tensors.items()))

    def write(self, folder: Path, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Write a folder of that name for torch.distributed.checkpoint. Any number of ranks can load it.

        Tensors are written in the order of their names, so that equal tensors give equal files: a loaded optimizer
        keeps its state in another order. Raise OSError on every rank if one of them cannot write.
        """
        try:
            save(dict(sorted(tensors.items())), checkpoint_id=folder / name)
        except CheckpointException as error:
            cause = next(iter(error.failures.values()))[0]
            raise cause if isinstance(cause, OSError) else OSError(str(cause)) from error
