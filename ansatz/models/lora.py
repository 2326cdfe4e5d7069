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
import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, cast

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ansatz.errors import ConfigError, MissingExtraError, ModelError, install_command
from ansatz.hub import check_ordinary_files, hub_name, local_folder
from ansatz.json_text import parse_json
from ansatz.links import make_new_folder, read_bytes
from ansatz.models.four_bit import float_weights
from ansatz.models.load import TEXT_NAMES, Policy
from ansatz.models.save import save_model
from ansatz.registry import LARGEST, bind, suggest

MAX_RANK = 1024
"""Above the ranks that are useful: at the width of a layer, an adapter has more parameters than the layer itself."""

FOLDER = "adapter"
"""The folder of a checkpoint that holds only the adapters, in peft's format."""

DEFAULT_RANK, _DEFAULT_ALPHA = 16, 32.0
_CONFIG_FILE, _WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
_PLAIN_STARTS = (True, False, "gaussian", "orthogonal", "eva")
"""Values of peft's `init_lora_weights` that leave the weights of the base as they are."""
_OF_NO_EFFECT = {
    *("r", "lora_alpha", "lora_dropout", "use_rslora", "peft_type", "task_type", "auto_mapping", "peft_version"),
    *("base_model_name_or_path", "revision", "inference_mode", "eva_config", "loftq_config", "megatron_core"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),  # the tensors say which layers
}
"""Keys of an adapter's config that are read, or that change nothing about a stored adapter."""
_HEAD = "score"  # of a classifier; it is trained as a whole, next to the adapters
_TASKS = {"ForSequenceClassification": "SEQ_CLS", "ForTokenClassification": "TOKEN_CLS"}  # by the end of a class's name
_PREFIX = "base_model.model."  # peft's prefix of every name in its files
_INNER = "model.language_model."  # of the layers in a model that also reads images
_NAME = "default"  # peft's name of the adapter: in the names of parameters, not in files


def bind_adapters(
    settings: Mapping[str, Any] | None, *, seed: int, path: str | Path | None = None, base: str = ""
) -> Callable[[Policy], Policy] | None:
    """Return the function that adds the adapters of `model.lora` to a policy; None without `model.lora`.

    path: the folder of an adapter that is continued; None: new ones. `model.lora.path` counts only at the run's start.
    base: the name of the model that the adapters belong to, for their files; empty: the policy's folder.
    Raises ConfigError for an unknown setting, MissingExtraError without peft.
    """
    if settings is None:
        return None
    _peft()
    continued = None if path is None else str(path)
    bound = bind(add_adapters, {"seed": seed, **settings, "path": continued}, what="model.lora")
    return functools.partial(bound, base=base) if base else bound


def add_adapters(
    policy: Policy,
    base: str = "",
    *,
    path: str | None = None,
    rank: Annotated[int, Field(gt=0, le=MAX_RANK)] | None = None,
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None,
    targets: tuple[str, ...] = (),
    seed: int = 0,
) -> Policy:
    """Add adapters to the policy in place and freeze its own weights, except the head of a reward model.

    path: a folder that peft has written (adapter_config.json, adapter_model.safetensors), or one of the hub, whose
        adapter is trained further. It belongs to the model of `model.path`: the base that it names itself is not
        loaded. Rank, alpha and targets are its own, and may be left out.
    rank: the rank of each adapter, at most 1024. Default: 16.
    alpha: the adapters are multiplied by alpha / rank. Default: 32.
    targets: names of the linear layers that get an adapter, such as q_proj. Empty: all except the output embedding, or
        the head of a reward model.
    seed: for the random values of A.

    There is no dropout: with it, the log-probs of update and sampling would come from different models. Raise
    ConfigError if a target is not a linear layer of the model, ModelError for an adapter that does not fit the model,
    and MissingExtraError without peft.
    """
    peft, model = _peft(), policy.model
    stored = None if path is None else read_adapter(path)
    layers = _linear_layers(policy, targets)
    rank, alpha = rank or DEFAULT_RANK, alpha or _DEFAULT_ALPHA
    if stored is not None:
        rank, alpha = stored.rank, stored.alpha
        layers = _layers_of(stored, policy, _linear_layers(policy, ()), targets=targets)
    below = copy.deepcopy(model, {id(value): value for value in (*model.parameters(), *model.buffers())})
    task = next((task for end, task in _TASKS.items() if type(model).__name__.endswith(end)), "CAUSAL_LM")
    parts = hub_name(base or policy.path)
    settings = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        target_modules=layers,
        base_model_name_or_path=base or policy.path if parts is None else parts.repository,
        revision=None if parts is None else parts.revision,
        task_type=task,
    )
    # Of a model with a config, peft would take `down_proj` for the experts of a mixture, and adapt those instead.
    plain = nn.ModuleDict(dict(model.named_children()))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        peft.inject_adapter_in_model(settings, plain)
    assert _adapted(name for name, _ in model.named_parameters()) == {*layers}, "peft has adapted other layers"
    model.peft_config = {_NAME: settings}
    if stored is not None:
        for name, value in stored.weights.items():
            model.get_parameter(name).data.copy_(value)
    if task in _TASKS.values():
        getattr(model, _HEAD).requires_grad_(True)
    return dataclasses.replace(policy, base=below)


def are_new(policy: Policy) -> bool:
    """Tell whether the policy's adapters do not change the model, because each B is still zero."""
    return not any(value.any() for name, value in policy.model.named_parameters() if ".lora_B." in name)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredAdapter:
    """An adapter in a folder. name: of the folder, for messages. weights: float32, by the names of a policy's
    parameters. dropout: the rate of its earlier training elsewhere."""

    name: str
    rank: int
    alpha: float
    dropout: float
    weights: Mapping[str, Tensor]


def read_adapter(name: str | Path, *, settings: Mapping[str, Any] | None = None) -> StoredAdapter:
    """Read an adapter that peft has written. The base that it names is not read.

    settings: `model.lora`. If its rank and alpha are given, they must equal the adapter's.
    Raise ModelError unless it is an adapter of linear layers with one rank, and has no features besides.
    """
    folder, where = local_folder(name, key="model.lora.path"), f"model.lora.path = {str(name)!r}"
    check_ordinary_files(folder)
    for file in (_CONFIG_FILE, _WEIGHTS_FILE):
        if not (folder / file).is_file():
            raise ModelError(
                f"{where} has no {file}. Give a folder that peft has written (save_pretrained), with {_CONFIG_FILE} "
                f"and {_WEIGHTS_FILE}."
            )
    rank, alpha, dropout = _read_config(folder / _CONFIG_FILE, where=where)
    for key, own in (("rank", rank), ("alpha", alpha)):
        given = None if settings is None else settings.get(key)
        if given is not None and float(given) != own:
            raise ConfigError(f"model.lora.{key} = {given}, but the adapter in {name} has {own:g}. Leave {key} out.")
    try:
        weights = {key: value.float() for key, value in read_adapters(folder).items()}
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{where}: {_WEIGHTS_FILE} cannot be read ({error}). Copy the folder again.") from error
    if broken := next((key for key, value in weights.items() if not value.isfinite().all()), None):
        raise ModelError(f"{where}: {broken:.120} has values that are nan or infinite. Give another checkpoint of it.")
    return StoredAdapter(name=str(name), rank=rank, alpha=alpha, dropout=dropout, weights=weights)


def _read_config(file: Path, *, where: str) -> tuple[int, float, float]:
    """Read the rank of an adapter, its alpha as of a scale alpha / rank, and its dropout."""
    try:
        config: Any = parse_json(read_bytes(file))
        if not isinstance(config, dict):
            raise ValueError("it is not a JSON object")
        config = cast("dict[str, Any]", config)
        rank, alpha, dropout = (config.get(key) for key in ("r", "lora_alpha", "lora_dropout"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{where}: {_CONFIG_FILE} cannot be read ({error}). Copy the folder again.") from error
    if config.get("peft_type") != "LORA":
        raise ModelError(
            f"{where} has peft_type = {config.get('peft_type')!r:.60}, expected LORA. Merge it into its base with peft "
            "(merge_and_unload) and give the merged model as model.path."
        )
    if type(rank) is not int or not 0 < rank <= MAX_RANK:
        raise ModelError(f"{where} has r = {rank!r:.60}, expected a number from 1 to {MAX_RANK}. Give another adapter.")
    if type(alpha) not in (int, float) or not 0 < alpha < LARGEST:
        raise ModelError(f"{where} has lora_alpha = {alpha!r:.60}, expected a positive number. Give another adapter.")
    plain = _peft().LoraConfig().to_dict()
    for key, value in config.items():
        if key == "init_lora_weights" and value in _PLAIN_STARTS:
            continue
        if key not in _OF_NO_EFFECT and value not in (None, False, plain.get(key)) and value not in ([], {}, ""):
            raise ModelError(
                f"{where} has {key:.60} = {value!r:.60}, which Ansatz cannot train further. Merge the adapter into its "
                "base with peft (merge_and_unload) and give the merged model as model.path."
            )
    scale = math.sqrt(rank) if config.get("use_rslora") else 1.0  # alpha / sqrt(rank) instead of alpha / rank
    return rank, alpha * scale, dropout if isinstance(dropout, int | float) else 0.0


def _layers_of(stored: StoredAdapter, policy: Policy, known: Sequence[str], *, targets: tuple[str, ...]) -> list[str]:
    """List the layers of the policy that a stored adapter belongs to. ModelError if a tensor of it fits none."""
    expected = dict[str, tuple[int, int]]()
    layers = [name for name in known if any(f"{name}.lora_{side}.{_NAME}.weight" in stored.weights for side in "AB")]
    for name in layers:
        layer = policy.model.get_submodule(name)
        expected[f"{name}.lora_A.{_NAME}.weight"] = (stored.rank, layer.in_features)
        expected[f"{name}.lora_B.{_NAME}.weight"] = (layer.out_features, stored.rank)
    found = {name: tuple(value.shape) for name, value in stored.weights.items()}
    wrong = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    if wrong or not found:
        shape, needed = found.get(wrong[0] if wrong else ""), expected.get(wrong[0] if wrong else "")
        has = f"has the shape {list(shape)}" if shape else "is missing"
        raise ModelError(
            f"model.lora.path = {stored.name!r} does not fit the model {policy.path!r}: "
            + (f"{wrong[0]:.120} {has}" if wrong else "it has no tensors")
            + (f", expected {list(needed)}. " if needed else ", and the model has no linear layer for it. ")
            + "Set model.path to the model that the adapter was trained on."
        )
    last_names = {name.rpartition(".")[2] for name in layers}
    if targets and {*targets} != last_names:
        raise ConfigError(
            f"model.lora.targets = {', '.join(targets)}, but the adapter in {stored.name} has "
            f"{', '.join(sorted(last_names))}. Leave targets out."
        )
    return layers


def _linear_layers(policy: Policy, targets: tuple[str, ...]) -> list[str]:
    """List the full names of the linear layers to adapt."""
    heads = (policy.head, getattr(policy.model, _HEAD, None))
    layers = [
        name
        for name, module in policy.model.named_modules()
        if isinstance(module, nn.Linear) and not any(module is head for head in heads)
    ]
    if not layers:
        raise ConfigError(
            f"model.lora: model.path = {policy.path!r} has no linear layers that take adapters (those of GPT-2 are of "
            "another kind). Leave model.lora out, or use another model."
        )
    check_targets(targets, {name.rpartition(".")[2] for name in layers})
    return [name for name in layers if not targets or name.rpartition(".")[2] in targets]


def check_targets(targets: Sequence[str], names: Collection[str]) -> None:
    """Raise ConfigError for a target that is not one of the names of the model's linear layers."""
    for target in targets:
        if target not in names:
            raise ConfigError(f"model.lora: targets: the model has no linear layer {target!r}.{suggest(target, names)}")


def _adapted(names: Iterable[str]) -> set[str]:
    """Return the full names of the layers that have adapters, from the names of parameters."""
    return {name.partition(".lora_")[0] for name in names if ".lora_" in name}


def merge_adapters(policy: Policy, base: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Compute the base's weights by their own names, with W + (alpha / rank) B A instead of each adapted W.

    Float32, CPU.

    base: the parameters of `policy.base` by name; its weights of 4 bits are added to them. weights: the trained
    tensors by parameter name: of the adapters, and of the head of a reward model. They replace the base's.
    """
    settings = policy.model.peft_config[_NAME]
    scale = settings.lora_alpha / settings.r
    merged: dict[str, Tensor] = {}
    for name, value in chain(base.items(), float_weights(policy.base)):
        merged[name] = weights.get(name, value).detach().to("cpu", torch.float32, copy=True)
    for layer in _adapted(weights):
        a, b = (weights[f"{layer}.lora_{side}.{_NAME}.weight"].detach().cpu() for side in "AB")
        merged[f"{layer}.weight"] += scale * (b @ a)
    return merged


def save_adapters(policy: Policy, folder: Path, *, weights: Mapping[str, Tensor]) -> None:
    """Save float32 adapters in peft's format. `PeftModel.from_pretrained(model, folder)` reads them, except those of
    dense MLPs in models that it takes for mixtures of experts throughout (DeepSeek, Qwen3).

    The folder of a reward model has its head too, as one of peft's `modules_to_save`.
    """
    make_new_folder(folder)
    settings = copy.copy(policy.model.peft_config[_NAME])
    if settings.task_type in _TASKS.values():
        settings.modules_to_save = [_HEAD]
    inner = "model." if policy.text_part is None else _INNER

    def name_in_base(name: str) -> str:
        return inner + name.removeprefix("model.") if name.startswith("model.") else name

    # Full names: peft shortens its own to endings, which layers for images can have too.
    settings.target_modules = sorted(map(name_in_base, _adapted(weights)))
    settings.save_pretrained(folder)
    stored = {
        _PREFIX + name_in_base(name).replace(f".{_NAME}.", "."): value.contiguous() for name, value in weights.items()
    }
    save_file(stored, folder / _WEIGHTS_FILE)


def save_merged(policy: Policy, folder: Path, *, dtype: torch.dtype) -> None:
    """Write the model with its adapters merged as a model folder in `dtype`, and the adapters into its FOLDER."""
    weights = {name: value.detach() for name, value in policy.model.named_parameters() if value.requires_grad}
    merged = merge_adapters(policy, dict(policy.base.named_parameters()), weights)
    save_model(policy, folder, state=merged, dtype=dtype)
    save_adapters(policy, folder / FOLDER, weights=weights)


def read_adapters(folder: Path) -> dict[str, Tensor]:
    """Return the weights that were given to `save_adapters`, or that peft has stored for a model that also reads
    images, by parameter name."""
    stored = load_file(folder / _WEIGHTS_FILE)
    weights: dict[str, Tensor] = {}
    for name, value in stored.items():
        own = name.removeprefix(_PREFIX)
        for pattern, ours in TEXT_NAMES.items():
            own = re.sub(pattern, ours, own)
        weights[f"{own.removesuffix('weight')}{_NAME}.weight" if ".lora_" in own else own] = value
    return weights


def _peft() -> Any:
    try:
        import peft
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"model.lora needs the package peft, which is not installed. Install it: {install_command('lora')}"
        ) from error
    return peft
