"""Low-rank adapters (Hu et al., LoRA, arXiv:2106.09685) by the package peft.

A linear layer with weight W [out, in] computes x W^T + (alpha / rank) x A^T B^T, with A [rank, in] and B [out, rank]
trained and W frozen. B starts as zeros, so the adapters do not change the model at the start.

The adapted model is sampled and trained. `Policy.base` is a second set of modules without adapters on the same frozen
weights. The reference policy of a KL therefore needs no memory, and other threads can compute it at the same time as
the policy; switching the adapters off would not allow that.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ansatz.errors import ConfigError, MissingExtraError
from ansatz.models.four_bit import float_weights
from ansatz.models.load import Policy
from ansatz.registry import bind, suggest

MAX_RANK = 1024
"""Above the ranks that are useful: at the width of a layer, an adapter has more parameters than the layer itself."""

FOLDER = "adapter"
"""The folder of a checkpoint that holds only the adapters, in peft's format."""

_WEIGHTS_FILE = "adapter_model.safetensors"
_HEAD = "score"  # of a classifier; it is trained as a whole, next to the adapters
_TASKS = {"ForSequenceClassification": "SEQ_CLS", "ForTokenClassification": "TOKEN_CLS"}  # by the end of a class's name
_PREFIX = "base_model.model."  # peft's prefix of every name in its files
_NAME = "default"  # peft's name of the adapter: in the names of parameters, not in files


def bind_adapters(settings: Mapping[str, Any] | None, *, seed: int) -> Callable[[Policy], Policy] | None:
    """Return the function that adds the adapters of `model.lora` to a policy; None without `model.lora`.

    Raises ConfigError for an unknown setting, MissingExtraError without peft.
    """
    if settings is None:
        return None
    _peft()
    return bind(add_adapters, {"seed": seed, **settings}, what="model.lora")


def add_adapters(
    policy: Policy,
    *,
    rank: Annotated[int, Field(gt=0, le=MAX_RANK)] = 16,
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 32.0,
    targets: tuple[str, ...] = (),
    seed: int = 0,
) -> Policy:
    """Add adapters to the policy in place and freeze its own weights, except the head of a reward model.

    rank: the rank of each adapter, at most 1024.
    alpha: the adapters are multiplied by alpha / rank.
    targets: names of the linear layers that get an adapter, such as q_proj. Empty: all except the output embedding, or
        the head of a reward model.
    seed: for the random values of A.

    There is no dropout: with it, the update's log-probs would not be those of the model that sampled. Raises
    Raise ConfigError if a target is not a linear layer of the model, and MissingExtraError without peft.
    """
    peft, model = _peft(), policy.model
    base = copy.deepcopy(model, {id(value): value for value in (*model.parameters(), *model.buffers())})
    task = next((task for end, task in _TASKS.items() if type(model).__name__.endswith(end)), "CAUSAL_LM")
    settings = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=_linear_layers(policy, targets),
        base_model_name_or_path=policy.path,
        task_type=task,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(settings, model)
    if task in _TASKS.values():
        getattr(model, _HEAD).requires_grad_(True)
    return dataclasses.replace(policy, base=base)


def _linear_layers(policy: Policy, targets: tuple[str, ...]) -> list[str]:
    """List the full names of the linear layers to adapt."""
    heads = (policy.head, getattr(policy.model, _HEAD, None))
    layers = [
        name
        for name, module in policy.model.named_modules()
        if isinstance(module, nn.Linear) and not any(module is head for head in heads)
    ]
    last_names = {name.rpartition(".")[2] for name in layers}
    for target in targets:
        if target not in last_names:
            raise ConfigError(
                f"model.lora: targets: the model has no linear layer {target!r}.{suggest(target, last_names)}"
            )
    return [name for name in layers if not targets or name.rpartition(".")[2] in targets]


def merge_adapters(policy: Policy, base: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Compute the base's weights by their own names, with W + (alpha / rank) B A instead of each adapted W.

    Float32, CPU.

    base: the parameters of `policy.base` by name; its weights of 4 bits are added to them. weights: the trained
    tensors by parameter name: those of the adapters, and of the head of a reward model, which replace the base's.
    """
    settings = policy.model.peft_config[_NAME]
    scale = settings.lora_alpha / settings.r
    merged: dict[str, Tensor] = {}
    for name, value in chain(base.items(), float_weights(policy.base)):
        merged[name] = weights.get(name, value).detach().to("cpu", torch.float32, copy=True)
        a, b = (weights.get(f"{name.removesuffix('.weight')}.lora_{side}.{_NAME}.weight") for side in "AB")
        if a is not None and b is not None:
            merged[name] += scale * (b.cpu() @ a.cpu())
    return merged


def save_adapters(policy: Policy, folder: Path, *, weights: Mapping[str, Tensor]) -> None:
    """Save float32 adapters in peft's format. `PeftModel.from_pretrained(model, folder)` reads them.

    The folder of a reward model has its head too, as one of peft's `modules_to_save`.
    """
    folder.mkdir()
    settings = copy.copy(policy.model.peft_config[_NAME])
    if settings.task_type in _TASKS.values():
        settings.modules_to_save = [_HEAD]
    settings.target_modules = sorted(settings.target_modules)  # a set, which has another order in every process
    settings.save_pretrained(folder)
    stored = {_PREFIX + name.replace(f".{_NAME}.", "."): value.contiguous() for name, value in weights.items()}
    save_file(stored, folder / _WEIGHTS_FILE)


def read_adapters(folder: Path) -> dict[str, Tensor]:
    """Return the weights that were given to `save_adapters`, by parameter name."""
    stored = load_file(folder / _WEIGHTS_FILE)
    weights: dict[str, Tensor] = {}
    for name, value in stored.items():
        own = name.removeprefix(_PREFIX)
        weights[f"{own.removesuffix('weight')}{_NAME}.weight" if ".lora_" in own else own] = value
    return weights


def _peft() -> Any:
    try:
        import peft
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "model.lora needs the package peft, which is not installed. Install it: pip install 'ansatz-rl[lora]'."
        ) from error
    return peft
